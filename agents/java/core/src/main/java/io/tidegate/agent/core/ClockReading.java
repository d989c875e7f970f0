package io.tidegate.agent.core;

/** A clock record that was not taken back: what it says is its record's timestamp. */
public final class ClockReading extends RecordValue {
  /** The only one. */
  public static final ClockReading INSTANCE = new ClockReading();

  private ClockReading() {}

  @Override
  public String toString() {
    return "ClockReading";
  }
}
