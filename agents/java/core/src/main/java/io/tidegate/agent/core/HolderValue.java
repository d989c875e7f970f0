package io.tidegate.agent.core;

import java.util.Objects;

/** What one holder says of one gate: a {@link Hold} or a {@link Limit}. */
public abstract class HolderValue extends RecordValue {
  private final String reason;
  private final long drainTimeoutMs;

  HolderValue(String reason, long drainTimeoutMs) {
    this.reason = Objects.requireNonNull(reason);
    this.drainTimeoutMs = drainTimeoutMs;
  }

  /** Why, for people; may be empty. */
  public String reason() {
    return reason;
  }

  /** How long what was handed out may take to finish, in milliseconds. */
  public long drainTimeoutMs() {
    return drainTimeoutMs;
  }
}
