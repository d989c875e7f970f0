package io.tidegate.agent.runtime;

import io.tidegate.agent.bridge.CommitCall;
import io.tidegate.agent.bridge.Member;
import io.tidegate.agent.bridge.PollCall;
import java.time.Duration;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.LongSupplier;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;

/** One governed consumer: what its instrumented client asks, and tells. */
final class ConsumerMember implements Member {
  private final ConsumerGate gate;
  private final Gatekeeper gatekeeper;
  private final GovernedClient client;
  private final LongSupplier clock;
  private final Runnable letGo;
  private final Limits limits;
  private volatile boolean isClosed;

  /**
   * @param letGo called once when it is closed
   */
  ConsumerMember(
      ConsumerGate gate,
      Gatekeeper gatekeeper,
      GovernedClient client,
      LongSupplier clock,
      Runnable letGo) {
    this.gate = gate;
    this.gatekeeper = gatekeeper;
    this.client = client;
    this.clock = clock;
    this.letGo = letGo;
    this.limits = new Limits(gate, client);
  }

  @Override
  public boolean isWithheld(Object partition) {
    Set<TopicPartition> withheld = gate.withheld();
    return !withheld.isEmpty() && withheld.contains(partition);
  }

  @Override
  public void removeWithheld(List<?> partitions) {
    Set<TopicPartition> withheld = gate.withheld();
    if (!withheld.isEmpty()) {
      partitions.removeIf(withheld::contains);
    }
  }

  @Override
  public void reassigned(boolean isByUser) {
    client.assignedByUser(isByUser);
    gate.reassign(client.assigned());
    gatekeeper.hasNews();
  }

  /**
   * Those for which the client would throw, having no rule of its own, before it is decided where
   * they begin. Where it has one they get a position by that, which is not where they begin: an
   * application may ask for positions as soon as it has partitions, and would wait for long.
   */
  private Set<TopicPartition> waiting() {
    return client.hasResetRule() ? Collections.emptySet() : gate.unplaced();
  }

  @Override
  @SuppressWarnings("unchecked")
  public Predicate<?> placed(Predicate<?> included) {
    Set<TopicPartition> waiting = waiting();
    if (waiting.isEmpty()) {
      return included;
    }
    Predicate<Object> those = (Predicate<Object>) included;
    return partition -> !waiting.contains(partition) && those.test(partition);
  }

  @Override
  public boolean mustWait() {
    Set<TopicPartition> waiting = waiting();
    // Of one that does not wait the client tells the application that it has no offset.
    return !waiting.isEmpty() && waiting.containsAll(client.initializing());
  }

  @Override
  public PollCall pollBegins(Duration timeout) {
    if (isClosed || timeout == null || timeout.isNegative()) {
      return null;
    }
    gatekeeper.turnIfDue();
    return new PollSlices(this, gatekeeper, clock, timeout);
  }

  /** What of these records the application is given. */
  ConsumerRecords<?, ?> returned(ConsumerRecords<?, ?> records) {
    if (records.isEmpty()) {
      return records;
    }
    ConsumerRecords<?, ?> given = gate.hasLimits() ? limits.below(records) : records;
    gate.delivered(Limits.ends(given));
    return given;
  }

  /** Whether the client may still be asked. */
  boolean isOpen() {
    return !isClosed;
  }

  @Override
  public void sought(Object partitions) {
    if (client.isSeeking()) {
      return;
    }
    Collection<?> named =
        partitions instanceof Collection
            ? (Collection<?>) partitions
            : Collections.singleton(partitions);
    Collection<?> all = named.isEmpty() ? client.assigned() : named;
    gate.sought(all.stream().map(TopicPartition.class::cast).collect(Collectors.toList()));
    gatekeeper.hasNews();
  }

  @Override
  public CommitCall commitBegins(Map<?, ?> offsets) {
    if (offsets.isEmpty()) {
      return null;
    }
    ConsumerGate.Passed passed = gate.commitBegins(PassedCommit.named(offsets));
    return PassedCommit.of(offsets, passed.dropped(), Collections.singletonList(passed));
  }

  @Override
  public void closed() {
    // What was sealed stays sealed, for what the client may still commit.
    if (!isClosed) {
      isClosed = true;
      letGo.run();
    }
  }
}
