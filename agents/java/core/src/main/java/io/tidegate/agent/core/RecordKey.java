package io.tidegate.agent.core;

/**
 * The key of a record that agents read or write: a {@link HoldKey}, {@link LimitKey}, {@link
 * PartitionKey}, {@link ClockKey} or {@link AckKey}.
 */
public abstract class RecordKey {
  RecordKey() {}
}
