package io.tidegate.agent.runtime;

import io.tidegate.agent.bridge.PollCall;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.apache.kafka.clients.consumer.ConsumerRecords;

/**
 * One poll of the application, in slices: before each the member has its turn, so that no gate
 * waits for a long poll to end.
 */
final class PollSlices implements PollCall {
  /** By so much the client's clock and this one may differ on a slice. */
  private static final long BLUR = TimeUnit.MILLISECONDS.toNanos(2);

  private final ConsumerMember member;
  private final Gatekeeper gatekeeper;
  private final LongSupplier clock;
  private final Duration timeout;
  private final long timeoutMs;
  private final long since;
  private long sliceSince;
  private long sliceMs;
  private boolean hasRecords;

  PollSlices(ConsumerMember member, Gatekeeper gatekeeper, LongSupplier clock, Duration timeout) {
    this.member = member;
    this.gatekeeper = gatekeeper;
    this.clock = clock;
    this.timeout = timeout;
    this.timeoutMs = millis(timeout);
    this.since = clock.getAsLong();
  }

  private static long millis(Duration timeout) {
    try {
      return timeout.toMillis();
    } catch (ArithmeticException endless) {
      return Long.MAX_VALUE;
    }
  }

  private long remainingMs() {
    return Math.max(0, timeoutMs - TimeUnit.NANOSECONDS.toMillis(clock.getAsLong() - since));
  }

  @Override
  public Duration slice() {
    long remaining = remainingMs();
    sliceMs = Math.min(remaining, gatekeeper.waitMs());
    sliceSince = clock.getAsLong();
    return sliceMs == timeoutMs ? timeout : Duration.ofMillis(sliceMs);
  }

  @Override
  public Object returned(Object records) {
    ConsumerRecords<?, ?> given = member.returned((ConsumerRecords<?, ?>) records);
    hasRecords = !given.isEmpty();
    return given;
  }

  @Override
  public boolean goesOn() {
    if (hasRecords || !member.isOpen()) {
      return false;
    }
    long used = clock.getAsLong() - sliceSince;
    if (used < TimeUnit.MILLISECONDS.toNanos(sliceMs) - BLUR) {
      // The client has returned with nothing of its own accord, as when only its position moved.
      return false;
    }
    if (remainingMs() == 0) {
      return false;
    }
    gatekeeper.turnIfDue();
    return true;
  }
}
