package io.tidegate.agent.core;

import java.util.Objects;
import java.util.OptionalLong;

/**
 * Bounds of a partition's creation by the broker's clock (milliseconds since 1970), or: it was
 * there at the first discovery.
 */
public final class PartitionSeen extends RecordValue {
  /** It was there at the first discovery: nothing is known of its age. */
  public static final PartitionSeen INITIAL =
      new PartitionSeen(OptionalLong.empty(), OptionalLong.empty());

  private final OptionalLong seenMs;
  private final OptionalLong seenAbsentMs;

  private PartitionSeen(OptionalLong seenMs, OptionalLong seenAbsentMs) {
    this.seenMs = seenMs;
    this.seenAbsentMs = seenAbsentMs;
  }

  /**
   * It was made between two looks.
   *
   * @param seenMs when it was seen first
   * @param seenAbsentMs when it was seen to be missing; empty where it never was
   */
  public static PartitionSeen between(OptionalLong seenAbsentMs, long seenMs) {
    return new PartitionSeen(OptionalLong.of(seenMs), Objects.requireNonNull(seenAbsentMs));
  }

  /** Whether it was there at the first discovery. */
  public boolean isInitial() {
    return !seenMs.isPresent();
  }

  /** When it was seen first; empty where {@link #isInitial()}. */
  public OptionalLong seenMs() {
    return seenMs;
  }

  /** When it was seen to be missing, if it was. */
  public OptionalLong seenAbsentMs() {
    return seenAbsentMs;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof PartitionSeen
        && seenMs.equals(((PartitionSeen) other).seenMs)
        && seenAbsentMs.equals(((PartitionSeen) other).seenAbsentMs);
  }

  @Override
  public int hashCode() {
    return Objects.hash(seenMs, seenAbsentMs);
  }

  @Override
  public String toString() {
    return "PartitionSeen(" + (isInitial() ? "initial" : seenAbsentMs + ", " + seenMs) + ")";
  }
}
