package io.tidegate.agent.core;

/**
 * The value of a record that agents read or write: a {@link Hold}, {@link Limit}, {@link
 * PartitionSeen}, {@link ClockReading} or {@link Ack}.
 */
public abstract class RecordValue {
  RecordValue() {}
}
