package io.tidegate.agent.core;

/** A partition that was taken away from a consumer. */
final class Lost {
  /** The offset after the last record that was handed out of it; {@link Offsets#NONE}: none. */
  final long inHand;

  /** Whether it was closed at some time since. */
  final boolean wasGated;

  /** What was known of the control topic at that time. */
  final ReadTo readTo;

  Lost(long inHand, boolean wasGated, ReadTo readTo) {
    this.inHand = inHand;
    this.wasGated = wasGated;
    this.readTo = readTo;
  }
}
