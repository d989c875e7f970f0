package io.tidegate.agent.runtime;

import io.tidegate.agent.bridge.CommitCall;
import io.tidegate.agent.core.Partition;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.stream.Collectors;

/** By group the gates of the consumers here, for the producers that commit for them. */
final class Groups {
  private final Map<String, Set<ConsumerGate>> gates = new HashMap<>();

  synchronized void add(ConsumerGate gate) {
    gates
        .computeIfAbsent(gate.group(), any -> Collections.newSetFromMap(new WeakHashMap<>()))
        .add(gate);
  }

  synchronized void remove(ConsumerGate gate) {
    Set<ConsumerGate> ofGroup = gates.get(gate.group());
    if (ofGroup != null) {
      ofGroup.remove(gate);
      if (ofGroup.isEmpty()) {
        gates.remove(gate.group());
      }
    }
  }

  private synchronized List<ConsumerGate> of(String group) {
    return new ArrayList<>(gates.getOrDefault(group, Collections.emptySet()));
  }

  /**
   * A producer adds these offsets to its transaction. They may be of any consumer of the group:
   * what is dropped is what its owner drops, or what nobody here owns and somebody drops.
   *
   * @return null: no consumer of the group is here
   */
  CommitCall transactionBegins(String group, Map<?, ?> offsets) {
    List<ConsumerGate> here = of(group);
    Map<Partition, Long> named = PassedCommit.named(offsets);
    if (here.isEmpty() || named.isEmpty()) {
      return null;
    }
    List<ConsumerGate.Passed> passed =
        here.stream().map(gate -> gate.commitBegins(named)).collect(Collectors.toList());
    Set<Partition> dropped = new HashSet<>();
    for (Partition each : named.keySet()) {
      List<ConsumerGate.Passed> owners =
          passed.stream().filter(one -> one.owns(each)).collect(Collectors.toList());
      List<ConsumerGate.Passed> deciding = owners.isEmpty() ? passed : owners;
      if (deciding.stream().anyMatch(one -> one.dropped().contains(each))) {
        dropped.add(each);
      }
    }
    return PassedCommit.of(offsets, dropped, passed);
  }
}
