package io.tidegate.agent.core;

import java.util.Objects;

/** That the records before an offset are delivered, and then the gate is closed. */
public final class Limit extends RecordValue {
  private final long offset;
  private final String reason;
  private final long drainTimeoutMs;

  /**
   * @param offset of the first record that is not delivered
   * @param reason why, for people
   * @param drainTimeoutMs how long what was handed out may take to finish, in milliseconds
   */
  public Limit(long offset, String reason, long drainTimeoutMs) {
    this.offset = offset;
    this.reason = Objects.requireNonNull(reason);
    this.drainTimeoutMs = drainTimeoutMs;
  }

  /** The offset of the first record that is not delivered. */
  public long offset() {
    return offset;
  }

  /** Why, for people; may be empty. */
  public String reason() {
    return reason;
  }

  /** How long what was handed out may take to finish, in milliseconds. */
  public long drainTimeoutMs() {
    return drainTimeoutMs;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Limit
        && offset == ((Limit) other).offset
        && drainTimeoutMs == ((Limit) other).drainTimeoutMs
        && reason.equals(((Limit) other).reason);
  }

  @Override
  public int hashCode() {
    return Objects.hash(offset, reason, drainTimeoutMs);
  }

  @Override
  public String toString() {
    return "Limit(" + offset + ", " + reason + ", " + drainTimeoutMs + " ms)";
  }
}
