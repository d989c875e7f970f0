package io.tidegate.agent.core;

/** Up to where the control topic was read. */
public final class ReadTo {
  private final long generation;
  private final long taken;

  ReadTo(long generation, long taken) {
    this.generation = generation;
    this.taken = taken;
  }

  /** Which of the control topics there have been; epochs of different ones cannot be compared. */
  public long generation() {
    return generation;
  }

  /** The offset of the last record that was read; {@link Offsets#NONE} when there was none. */
  public long taken() {
    return taken;
  }
}
