package io.tidegate.agent.core;

import java.util.concurrent.TimeUnit;

/** The newest clock record. */
public final class Clock {
  private final long brokerMs;
  private final long arrived;
  private final boolean live;

  /**
   * @param brokerMs the broker's time when it was appended, in milliseconds since 1970
   * @param arrived when it came here (nanoseconds)
   * @param live whether it came to a reader that was waiting for it. A record that was in the topic
   *     already is older by an unknown time, and reads the least that the broker's clock can show
   */
  public Clock(long brokerMs, long arrived, boolean live) {
    this.brokerMs = brokerMs;
    this.arrived = arrived;
    this.live = live;
  }

  /** When it came here (nanoseconds). */
  public long arrived() {
    return arrived;
  }

  /** Whether it came to a reader that was waiting for it. */
  public boolean isLive() {
    return live;
  }

  /** The broker's time at this time (nanoseconds), in milliseconds since 1970, rounded down. */
  public long reads(long now) {
    return brokerMs + Math.floorDiv(now - arrived, TimeUnit.MILLISECONDS.toNanos(1));
  }
}
