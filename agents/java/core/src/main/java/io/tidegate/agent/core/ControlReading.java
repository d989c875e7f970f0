package io.tidegate.agent.core;

import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;

/**
 * The control topic as it is read, whatever becomes of it: it may be read from its start again, and
 * may be another topic than before. Whoever reads it says where a reading begins ({@link #begin}),
 * hands over the records in order ({@link #take}), and says how far that has come ({@link
 * #readTo}).
 *
 * <p>Not for several threads at once; what {@link #known()} returns is.
 */
public final class ControlReading {
  /** How long gates stay closed of which a control topic that was made again has no record. */
  public static final long REBUILT_NANOS = TimeUnit.SECONDS.toNanos(10);

  private final PartitionTable partitions = new PartitionTable();
  private final KeptGates kept = new KeptGates();
  private GateTable table = new GateTable();
  private String topicId = "";
  private boolean isAnother;
  private boolean isAtEnd;
  private Clock clock;
  private Known known = Known.NOTHING;
  private long unreadable;

  /** Nothing has been read. */
  public ControlReading() {}

  /**
   * What is known now. Until a new reading has reached the end this is what was known before it.
   */
  public Known known() {
    return known;
  }

  /** How many records were skipped because they cannot be read or are of kinds for others. */
  public long unreadable() {
    return unreadable;
  }

  /**
   * The topic is read from its start.
   *
   * @param topicIdNow tells a topic from an earlier one of its name
   */
  public void begin(String topicIdNow) {
    boolean isSame = topicIdNow.equals(topicId);
    table = isSame ? new GateTable(table) : new GateTable();
    isAnother = isAnother || !isSame;
    topicId = Objects.requireNonNull(topicIdNow);
    isAtEnd = false;
  }

  /**
   * One record; those that cannot be read are counted.
   *
   * @param key its bytes, or null
   * @param value its bytes, or null
   * @param offset of the record
   * @param appendedMs its LogAppendTime in milliseconds; empty where its timestamp is of another
   *     type
   * @param isLive whether the reader had come to the topic's end before it
   * @param now when it arrived (nanoseconds)
   */
  public void take(
      byte[] key, byte[] value, long offset, OptionalLong appendedMs, boolean isLive, long now) {
    DecodedRecord record;
    try {
      record = RecordCodec.decode(key, value);
    } catch (Unreadable skipped) {
      unreadable++;
      return;
    }
    table.take(record, offset);
    kept.take(record.key());
    partitions.take(record);
    if (record.key() instanceof ClockKey) {
      boolean tells = record.value().isPresent() && appendedMs.isPresent();
      clock = tells ? new Clock(appendedMs.getAsLong(), now, isLive) : null;
    }
  }

  /**
   * Whatever is before this offset has been taken: tell it. The first time after {@link #begin}
   * this must be the topic's end as it was then, for before that holds would seem to be released.
   *
   * @param end one more than the last record's offset
   * @param now in nanoseconds
   */
  public void readTo(long end, long now) {
    if (!isAtEnd) {
      table.readToEnd(end - 1);
      if (isAnother) {
        kept.keep(known, table, now + REBUILT_NANOS);
      }
    }
    long generation = known.generation() + (isAnother ? 1 : 0);
    isAtEnd = true;
    isAnother = false;
    known =
        known
            .withGates(kept.withGates(table.gates()), kept.withLimits(table.limits()))
            .withReading(new ReadTo(generation, end - 1), table.moved())
            .withAges(partitions.view(), clock);
  }

  /** The questions up to this one are answered. */
  public void answer(long ticket) {
    known = known.withAnswered(ticket);
  }

  /** These are the ids that topics have now. */
  public void identify(Map<String, String> topicIds) {
    known = known.withTopicIds(topicIds);
  }

  /** When {@link #releaseKept} is due (nanoseconds); empty: nothing is kept. */
  public OptionalLong keptUntil() {
    return kept.until();
  }

  /** Gates of an earlier control topic that nobody has closed in this one open when it is time. */
  public void releaseKept(long now) {
    OptionalLong until = kept.until();
    if (until.isPresent() && now >= until.getAsLong()) {
      kept.release();
      // What is being read from its start is not told before its end.
      if (isAtEnd) {
        known = known.withGates(table.gates(), table.limits());
      }
    }
  }
}
