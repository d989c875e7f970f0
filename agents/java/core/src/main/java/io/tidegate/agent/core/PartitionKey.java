package io.tidegate.agent.core;

import java.util.Objects;

/**
 * A partition that was discovered; the topic's id tells a topic from an earlier one of its name.
 */
public final class PartitionKey extends RecordKey {
  private final Partition partition;
  private final String topicId;

  /** The partition of the topic with this id, as Kafka writes ids. */
  public PartitionKey(Partition partition, String topicId) {
    this.partition = Objects.requireNonNull(partition);
    this.topicId = Objects.requireNonNull(topicId);
  }

  /** The partition; its number is below {@link RecordCodec#MOST_PARTITIONS}. */
  public Partition partition() {
    return partition;
  }

  /** The topic's id, as Kafka writes it. */
  public String topicId() {
    return topicId;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof PartitionKey
        && partition.equals(((PartitionKey) other).partition)
        && topicId.equals(((PartitionKey) other).topicId);
  }

  @Override
  public int hashCode() {
    return 31 * partition.hashCode() + topicId.hashCode();
  }

  @Override
  public String toString() {
    return "PartitionKey(" + partition + ", " + topicId + ")";
  }
}
