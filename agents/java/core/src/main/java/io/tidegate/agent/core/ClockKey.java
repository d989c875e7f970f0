package io.tidegate.agent.core;

/** The key of the record whose LogAppendTime is the broker's time; there is one. */
public final class ClockKey extends RecordKey {
  /** The only one. */
  public static final ClockKey INSTANCE = new ClockKey();

  private ClockKey() {}

  @Override
  public String toString() {
    return "ClockKey";
  }
}
