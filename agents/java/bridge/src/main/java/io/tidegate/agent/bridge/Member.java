package io.tidegate.agent.bridge;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;

/**
 * One governed consumer, as its instrumented client sees it. Objects are Kafka's: partitions are
 * {@code TopicPartition}, offsets maps from these to {@code OffsetAndMetadata}, records {@code
 * ConsumerRecords}.
 */
public interface Member {
  /** Whether the client may hand out nothing of this partition. Called for each fetched batch. */
  boolean isWithheld(Object partition);

  /** Takes those out of a list of partitions of which nothing may be handed out. */
  void removeWithheld(List<?> partitions);

  /**
   * The assignment has changed. Called within the client's own step, before anything of a new
   * partition can be delivered.
   *
   * @param isByUser the application has assigned the partitions itself
   */
  void reassigned(boolean isByUser);

  /**
   * Positions without a committed offset are about to be reset by the client's rule.
   *
   * @param included those that would be
   * @return those of them that need not wait
   */
  Predicate<?> placed(Predicate<?> included);

  /** The same where the client resets all or none: whether it must not. */
  boolean mustWait();

  /** The application polls; null: there is nothing to be done around this poll. */
  PollCall pollBegins(Duration timeout);

  /** The application has moved this partition, or these; an empty collection: all it has. */
  void sought(Object partitions);

  /** The client is about to send these offsets; null: as they are. */
  CommitCall commitBegins(Map<?, ?> offsets);

  /** The consumer is closed. */
  void closed();
}
