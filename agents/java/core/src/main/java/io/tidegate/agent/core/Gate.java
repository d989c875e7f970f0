package io.tidegate.agent.core;

import java.util.Collections;
import java.util.List;
import java.util.Objects;

/** A closed gate. */
public final class Gate {
  private final long epoch;
  private final long drainTimeoutMs;
  private final List<String> reasons;

  Gate(long epoch, long drainTimeoutMs, List<String> reasons) {
    this.epoch = epoch;
    this.drainTimeoutMs = drainTimeoutMs;
    this.reasons = Collections.unmodifiableList(reasons);
  }

  /** The newest hold's: the offset of its record. 0: of an earlier control topic. */
  public long epoch() {
    return epoch;
  }

  /** Of the hold that closed it, in milliseconds. */
  public long drainTimeoutMs() {
    return drainTimeoutMs;
  }

  /** Why it is closed, for people, in the order of the holds. */
  public List<String> reasons() {
    return reasons;
  }

  Gate withEpoch(long other) {
    return new Gate(other, drainTimeoutMs, reasons);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Gate
        && epoch == ((Gate) other).epoch
        && drainTimeoutMs == ((Gate) other).drainTimeoutMs
        && reasons.equals(((Gate) other).reasons);
  }

  @Override
  public int hashCode() {
    return Objects.hash(epoch, drainTimeoutMs, reasons);
  }

  @Override
  public String toString() {
    return "Gate(" + epoch + ", " + drainTimeoutMs + " ms, " + reasons + ")";
  }
}
