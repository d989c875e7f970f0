package io.tidegate.agent.runtime;

import java.util.concurrent.TimeUnit;

/**
 * The two clocks of this machine, one of which stands while it is suspended, the other may be set.
 */
interface Ticks {
  /** This machine's. */
  Ticks SYSTEM =
      new Ticks() {
        @Override
        public long nanos() {
          return System.nanoTime();
        }

        @Override
        public long wallMs() {
          return System.currentTimeMillis();
        }
      };

  /** The clock that only goes forward, in nanoseconds. */
  long nanos();

  /** The clock that people set, in milliseconds since 1970. */
  long wallMs();

  /** Now, by both. */
  default Moment now() {
    return new Moment(nanos(), wallMs());
  }

  /**
   * How long ago that was (nanoseconds), by the clock that says more: too long costs a reading of
   * the control topic, too short a gate that never opens.
   */
  default long since(Moment then) {
    return Math.max(nanos() - then.nanos, TimeUnit.MILLISECONDS.toNanos(wallMs() - then.wallMs));
  }

  /** A time by both clocks. */
  final class Moment {
    private final long nanos;
    private final long wallMs;

    private Moment(long nanos, long wallMs) {
      this.nanos = nanos;
      this.wallMs = wallMs;
    }
  }
}
