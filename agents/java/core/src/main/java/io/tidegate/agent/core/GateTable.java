package io.tidegate.agent.core;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** All holds and limits of one control topic, fed with its records in order. */
public final class GateTable {
  /** By gate and holder: the offset of the record, and what it says. */
  private final Map<GateId, Map<String, Said<Hold>>> holds = new HashMap<>();

  private final Map<GateId, Map<String, Said<Limit>>> limits = new HashMap<>();
  private final Map<GateId, Gate> gates = new HashMap<>();
  private final Map<GateId, Long> moved = new HashMap<>();
  private final Set<GateId> closedBefore = new HashSet<>();

  /** What one holder said last, and in which record. */
  private static final class Said<T> {
    private final long offset;
    private final T value;

    Said(long offset, T value) {
      this.offset = offset;
      this.value = value;
    }
  }

  /** Of a topic of which nothing was read yet. */
  public GateTable() {}

  /** The same topic, read from its start again; {@code before}: what the reading before came to. */
  public GateTable(GateTable before) {
    moved.putAll(before.moved);
    closedBefore.addAll(before.closedBefore);
    closedBefore.addAll(before.gates.keySet());
  }

  /** One record at its offset. Kinds that are of no gate are passed over. */
  public void take(DecodedRecord record, long offset) {
    if (record.key() instanceof LimitKey) {
      takeLimit((LimitKey) record.key(), record, offset);
    } else if (record.key() instanceof HoldKey) {
      takeHold((HoldKey) record.key(), record, offset);
    }
  }

  private void takeHold(HoldKey key, DecodedRecord record, long offset) {
    moved.merge(key.gate(), offset, Math::max);
    Map<String, Said<Hold>> held = holds.computeIfAbsent(key.gate(), gate -> new HashMap<>());
    if (record.value().isPresent()) {
      held.put(key.holder(), new Said<>(offset, (Hold) record.value().get()));
    } else {
      held.remove(key.holder());
    }
    if (held.isEmpty()) {
      holds.remove(key.gate());
      gates.remove(key.gate());
    } else {
      gates.put(key.gate(), gate(held));
    }
  }

  private void takeLimit(LimitKey key, DecodedRecord record, long offset) {
    Map<String, Said<Limit>> limited = limits.computeIfAbsent(key.gate(), gate -> new HashMap<>());
    if (record.value().isPresent()) {
      limited.put(key.holder(), new Said<>(offset, (Limit) record.value().get()));
    } else {
      limited.remove(key.holder());
    }
    if (limited.isEmpty()) {
      limits.remove(key.gate());
    }
  }

  /**
   * The topic was read from its start up to this record. Gates that were closed before and are not
   * now have been opened by records that are gone from the log.
   *
   * @param offset of the last record
   */
  public void readToEnd(long offset) {
    for (GateId gate : closedBefore) {
      if (!gates.containsKey(gate)) {
        moved.put(gate, offset);
      }
    }
    closedBefore.clear();
  }

  /** The closed gates as they are now; later records do not change the result. */
  public Map<GateId, Gate> gates() {
    return Collections.unmodifiableMap(new HashMap<>(gates));
  }

  /** Where gates are to close as it is now; later records do not change the result. */
  public Map<GateId, LimitGate> limits() {
    Map<GateId, LimitGate> found = new HashMap<>();
    limits.forEach((gate, limited) -> found.put(gate, limitGate(limited)));
    return Collections.unmodifiableMap(found);
  }

  /** The offset of the newest hold or release of each gate that ever had one, open ones too. */
  public Map<GateId, Long> moved() {
    return Collections.unmodifiableMap(new HashMap<>(moved));
  }

  private static Gate gate(Map<String, Said<Hold>> held) {
    List<Said<Hold>> inOrder = inOrder(held);
    return closing(inOrder, inOrder.get(0).value);
  }

  private static LimitGate limitGate(Map<String, Said<Limit>> limited) {
    List<Said<Limit>> inOrder = inOrder(limited);
    Limit lowest =
        Collections.min(inOrder, Comparator.comparingLong(said -> said.value.offset())).value;
    return new LimitGate(lowest.offset(), closing(inOrder, lowest));
  }

  /** A gate that all of these close; {@code first} says how long draining may take. */
  private static <T extends HolderValue> Gate closing(List<Said<T>> inOrder, T first) {
    Set<String> reasons = new LinkedHashSet<>();
    inOrder.forEach(said -> reasons.add(said.value.reason()));
    reasons.remove("");
    return new Gate(
        inOrder.get(inOrder.size() - 1).offset, first.drainTimeoutMs(), new ArrayList<>(reasons));
  }

  private static <T> List<Said<T>> inOrder(Map<String, Said<T>> said) {
    Map<Long, Said<T>> byOffset = new TreeMap<>();
    said.values().forEach(one -> byOffset.put(one.offset, one));
    return new ArrayList<>(byOffset.values());
  }
}
