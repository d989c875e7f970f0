package io.tidegate.agent.core;

/** What is said of the partitions of one topic. */
public final class Discovered {
  /** In the place of a time: no record says anything of this partition. */
  public static final long NEVER = -1;

  /** In the place of a time: it was there at the first discovery. */
  public static final long INITIAL = -2;

  private final String topicId;
  private final long newest;
  private final long[] seenMs;
  private final int initial;

  Discovered(String topicId, long newest, long[] seenMs) {
    this.topicId = topicId;
    this.newest = newest;
    this.seenMs = seenMs;
    int end = seenMs.length;
    while (end > 0 && seenMs[end - 1] != INITIAL) {
      end--;
    }
    this.initial = end;
  }

  /** The topic's id, as Kafka writes it. */
  public String topicId() {
    return topicId;
  }

  /** Which record said something last, counted over all topics. */
  public long newest() {
    return newest;
  }

  /** One more than the highest partition of which a record says something. */
  public int partitions() {
    return seenMs.length;
  }

  /**
   * When a partition was seen first (milliseconds since 1970 by the broker's clock), {@link #NEVER}
   * or {@link #INITIAL}. Partitions are only added at the end: those below an initial one of which
   * nothing else is said were there at the first discovery, too.
   */
  public long seenMs(int partition) {
    long said = recordedMs(partition);
    return said == NEVER && partition < initial ? INITIAL : said;
  }

  /** The same, by a record of its own only. */
  public long recordedMs(int partition) {
    return partition < seenMs.length ? seenMs[partition] : NEVER;
  }
}
