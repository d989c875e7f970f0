package io.tidegate.agent.core;

import java.util.Objects;

/** That the records before an offset are delivered, and then the gate is closed. */
public final class Limit extends HolderValue {
  private final long offset;

  /**
   * @param offset of the first record that is not delivered
   * @param reason why, for people
   * @param drainTimeoutMs how long what was handed out may take to finish, in milliseconds
   */
  public Limit(long offset, String reason, long drainTimeoutMs) {
    super(reason, drainTimeoutMs);
    this.offset = offset;
  }

  /** The offset of the first record that is not delivered. */
  public long offset() {
    return offset;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Limit
        && offset == ((Limit) other).offset
        && drainTimeoutMs() == ((Limit) other).drainTimeoutMs()
        && reason().equals(((Limit) other).reason());
  }

  @Override
  public int hashCode() {
    return Objects.hash(offset, reason(), drainTimeoutMs());
  }

  @Override
  public String toString() {
    return "Limit(" + offset + ", " + reason() + ", " + drainTimeoutMs() + " ms)";
  }
}
