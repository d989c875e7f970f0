package io.tidegate.agent.core;

import java.util.Objects;
import java.util.Optional;

/** A record that was read. */
public final class DecodedRecord {
  private final RecordKey key;
  private final RecordValue value;

  DecodedRecord(RecordKey key, RecordValue value) {
    this.key = Objects.requireNonNull(key);
    this.value = value;
  }

  /** What it is about. */
  public RecordKey key() {
    return key;
  }

  /** What it says; empty: a tombstone, which deletes what was written under its key. */
  public Optional<RecordValue> value() {
    return Optional.ofNullable(value);
  }

  @Override
  public String toString() {
    return key + ": " + (value == null ? "tombstone" : value);
  }
}
