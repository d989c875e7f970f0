package io.tidegate.agent.core;

import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/**
 * Where a partition begins of which the group has committed nothing (KIP-1327). What a record
 * leaves open about an age is taken for its younger bound: in doubt a partition counts as new.
 */
public final class StartJudge {
  /** How long a record that would decide is waited for; the clock's come every 5 s. */
  public static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(6);

  /** Whoever wrote a clock record not longer ago than this discovers partitions. */
  static final long ALIVE_NANOS = TimeUnit.SECONDS.toNanos(15);

  private StartJudge() {}

  /**
   * What the rule says of a partition. What counts is its age when it was assigned.
   *
   * @param assigned when that was (nanoseconds)
   * @param now in nanoseconds
   * @param deadline from when on it is no longer waited for (nanoseconds)
   */
  public static StartVerdict judge(
      StartRule rule, Known known, Partition partition, long assigned, long now, long deadline) {
    List<Discovered> said = known.discovered(partition.topic());
    int number = partition.number();
    Optional<Discovered> topic = current(said, known.topicId(partition.topic()), number);
    long seenMs = topic.map(discovered -> discovered.seenMs(number)).orElse(Discovered.NEVER);
    if (seenMs == Discovered.INITIAL) {
      return StartVerdict.asTheClient("it was there at the first discovery", true);
    }
    if (seenMs != Discovered.NEVER) {
      return byAge(rule, known.clock(), seenMs, assigned, now, deadline);
    }
    Optional<Clock> clock = known.clock();
    // Partitions are added at the end, and the rest of the topic was discovered: it came after the
    // last look.
    boolean isBeyond = !topic.isPresent() || number >= topic.get().partitions();
    boolean isLater = clock.isPresent() && !said.isEmpty() && isBeyond;
    boolean isLookedFor =
        clock.isPresent() && (!clock.get().isLive() || now - clock.get().arrived() <= ALIVE_NANOS);
    if (now < deadline && (isLater || isLookedFor)) {
      return StartVerdict.waitUntil(deadline);
    }
    if (isLater) {
      return StartVerdict.beginAt(rule.start(), "it was made since its topic was looked at last");
    }
    return StartVerdict.asTheClient("its age is not known", false);
  }

  private static StartVerdict byAge(
      StartRule rule, Optional<Clock> clock, long seenMs, long assigned, long now, long deadline) {
    if (!rule.maxAgeMs().isPresent()) {
      return StartVerdict.beginAt(rule.start(), "it came after the first discovery");
    }
    if (!clock.isPresent()) {
      return now < deadline
          ? StartVerdict.waitUntil(deadline)
          : StartVerdict.asTheClient("its age is not known, for want of the broker's time", false);
    }
    long maxAgeMs = rule.maxAgeMs().getAsLong();
    boolean isLive = clock.get().isLive();
    long leastMs = Math.max(0, clock.get().reads(assigned) - seenMs);
    String age =
        String.format(
            "it is %s%d ms old, and new up to %d ms", isLive ? "" : "at least ", leastMs, maxAgeMs);
    if (leastMs > maxAgeMs) {
      return StartVerdict.asTheClient(age, true);
    }
    if (!isLive && now < deadline) {
      return StartVerdict.waitUntil(deadline);
    }
    return StartVerdict.beginAt(rule.start(), age);
  }

  /**
   * What is said of the topic that is there now; where nobody knows its id, what was said last of
   * the partition.
   */
  private static Optional<Discovered> current(
      List<Discovered> said, Optional<String> topicId, int partition) {
    if (topicId.isPresent()) {
      return said.stream().filter(topic -> topic.topicId().equals(topicId.get())).findFirst();
    }
    return said.stream()
        .max(
            Comparator.comparing(
                    (Discovered topic) -> topic.recordedMs(partition) != Discovered.NEVER)
                .thenComparing(topic -> topic.seenMs(partition) != Discovered.NEVER)
                .thenComparingLong(Discovered::newest));
  }
}
