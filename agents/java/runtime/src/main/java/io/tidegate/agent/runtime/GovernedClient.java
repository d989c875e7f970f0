package io.tidegate.agent.runtime;

import io.tidegate.agent.core.Start;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Consumer;
import org.apache.kafka.common.TopicPartition;

/**
 * What a member asks of the client that it governs. All of it is called on the application's
 * thread, unless it says otherwise, and may throw what the client throws.
 */
interface GovernedClient {
  /** The partitions that are this consumer's. On any thread. */
  Set<TopicPartition> assigned();

  /** By whom they were assigned, the last time; by the application: as no member of the group. */
  void assignedByUser(boolean isByUser);

  /** Of these, those that have no position yet. On any thread. */
  Set<TopicPartition> initializing();

  /** Whether it has a rule of its own for where partitions begin; otherwise it throws for them. */
  boolean hasResetRule();

  /** Have this one begin there. */
  void begin(TopicPartition partition, Start start);

  /** The offset that is fetched next; empty: there is none yet. */
  OptionalLong position(TopicPartition partition);

  /**
   * The group's committed offsets, null where there is none.
   *
   * @throws org.apache.kafka.common.errors.TimeoutException where the answer takes longer; it may
   *     be asked for once more
   */
  Map<TopicPartition, Long> committed(Set<TopicPartition> partitions, Duration timeout);

  /**
   * An answer to an earlier question for committed offsets, the client's own or the application's,
   * is not to be taken for one to the next: the group may have been reset since.
   */
  void forgetAnswers();

  /**
   * These are about to be sought: what a framework keeps of them beside the client is out of date.
   *
   * @throws IllegalStateException where it is built otherwise than it has been so far
   */
  void outdated(Set<TopicPartition> partitions);

  /** Fetch from there. The member is not told of it as of the application's seeks. */
  void seek(TopicPartition partition, long offset);

  /** Whether a seek is this member's own. */
  boolean isSeeking();

  /** Commit these, and tell later, on the same thread, whether that was done. */
  void commit(Map<TopicPartition, Long> offsets, Consumer<Boolean> done);

  /** The member id in the group, "" for no member; empty: it is not known yet. */
  Optional<String> memberId();

  /** A wake-up that was meant for the application was taken: it gets it. */
  void wakeup();
}
