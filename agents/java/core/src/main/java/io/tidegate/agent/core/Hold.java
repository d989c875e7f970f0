package io.tidegate.agent.core;

import java.util.Objects;

/** That a gate is closed. */
public final class Hold extends HolderValue {
  /**
   * @param reason why, for people
   * @param drainTimeoutMs how long what was handed out may take to finish, in milliseconds
   */
  public Hold(String reason, long drainTimeoutMs) {
    super(reason, drainTimeoutMs);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Hold
        && drainTimeoutMs() == ((Hold) other).drainTimeoutMs()
        && reason().equals(((Hold) other).reason());
  }

  @Override
  public int hashCode() {
    return Objects.hash(reason(), drainTimeoutMs());
  }

  @Override
  public String toString() {
    return "Hold(" + reason() + ", " + drainTimeoutMs() + " ms)";
  }
}
