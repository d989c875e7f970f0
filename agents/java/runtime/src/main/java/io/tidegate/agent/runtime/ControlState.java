package io.tidegate.agent.runtime;

import io.tidegate.agent.core.ControlReading;
import io.tidegate.agent.core.Known;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.record.TimestampType;

/**
 * What a link's threads know together. The keeper says what is to be read, the reader hands over
 * what it has read; whoever asks finds the sum of both in {@link #known()}.
 */
final class ControlState {
  /** One reading of the control topic from its start. */
  static final class Reading {
    private final String topicId;

    private Reading(String topicId) {
      this.topicId = topicId;
    }
  }

  private final Ticks ticks;
  private final Troubles troubles;
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final ControlReading control = new ControlReading();
  private final List<Runnable> listeners = new ArrayList<>();

  /** Topics whose ids are asked for, with the newest question. */
  private final Map<String, Long> named = new HashMap<>();

  private volatile Known known = Known.NOTHING;
  private volatile boolean stopped;
  private long asked;
  private boolean doubted;

  /** What is to be read; null: nothing, for there is no control topic. */
  private Reading wanted;

  /** Up to where it is to be read before questions are answered. */
  private long end;

  /** The reading that the reader is at, and how far it is. */
  private Reading reading;

  private long position;
  private boolean isAtEnd;

  /** The furthest position in the topic that is read, by whatever reading. */
  private long furthest;

  /** Counts how often the topic was shorter than what had been read of it. */
  private int cuts;

  ControlState(Ticks ticks, Troubles troubles) {
    this.ticks = ticks;
    this.troubles = troubles;
  }

  // --- for everybody

  Known known() {
    return known;
  }

  boolean isStopped() {
    return stopped;
  }

  long ask(Collection<String> topics) {
    lock.lock();
    try {
      asked++;
      topics.forEach(topic -> named.put(topic, asked));
      changed.signalAll();
      return asked;
    } finally {
      lock.unlock();
    }
  }

  void listen(Runnable told) {
    lock.lock();
    try {
      listeners.add(told);
    } finally {
      lock.unlock();
    }
  }

  void unlisten(Runnable told) {
    lock.lock();
    try {
      listeners.remove(told);
    } finally {
      lock.unlock();
    }
  }

  void stop() {
    lock.lock();
    try {
      stopped = true;
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** The topic may be another one than before: have it looked at now. */
  void doubt() {
    lock.lock();
    try {
      doubted = true;
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** Wait so long, or until the link is stopped. */
  void rest(long nanos) throws InterruptedException {
    await(() -> false, nanos);
  }

  // --- for the keeper

  /**
   * Wait until there is something to do.
   *
   * @param answered the newest question that is answered
   * @param nextLook when the topic is to be looked at unasked (nanoseconds)
   * @return the newest question, where the topic is to be looked at now; empty where only what was
   *     kept had to be let go
   */
  OptionalLong awaitWork(long answered, long nextLook) throws InterruptedException {
    long newest;
    boolean isDue;
    lock.lock();
    try {
      while (!stopped && asked == answered && !doubted) {
        OptionalLong kept = control.keptUntil();
        long left = nextLook - ticks.nanos();
        left = kept.isPresent() ? Math.min(left, kept.getAsLong() - ticks.nanos()) : left;
        if (left <= 0) {
          break;
        }
        changed.awaitNanos(left);
      }
      newest = asked;
      isDue = asked != answered || doubted || nextLook - ticks.nanos() <= 0;
      doubted = false;
    } finally {
      lock.unlock();
    }
    change(told -> told.releaseKept(ticks.nanos()));
    return isDue && !stopped ? OptionalLong.of(newest) : OptionalLong.empty();
  }

  /**
   * The control topic as it is now is to be read.
   *
   * <p>One that ends before what was read of it counts as another one: brokers have lost its end,
   * or it is another one whose id nobody tells. Its offsets are used again, so that epochs from
   * before say nothing any more.
   *
   * @param topicId {@link Topics#UNTOLD} where nobody tells it
   * @param endNow the offset after its last record
   * @param furthestBefore {@link #furthest} from before that was looked at
   * @param isAnew whether from its start, although it may be the one that was read already
   */
  void want(String topicId, long endNow, long furthestBefore, boolean isAnew) {
    lock.lock();
    try {
      boolean isRead = reading != null && reading.topicId.equals(topicId + " " + cuts);
      if (isRead && endNow < Math.min(furthestBefore, furthest)) {
        cuts++;
        troubles.say(
            "cut", "the control topic ends before what was read of it: it counts as another one");
      }
      String id = topicId + " " + cuts;
      if (isAnew || wanted == null || !wanted.topicId.equals(id)) {
        wanted = new Reading(id);
      }
      end = endNow;
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** How far the topic that is read now was read. */
  long furthest() {
    lock.lock();
    try {
      return furthest;
    } finally {
      lock.unlock();
    }
  }

  /** There is nothing to read. What was read stays known. */
  void wantNothing() {
    lock.lock();
    try {
      wanted = null;
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** Wait until what is wanted has been read. */
  boolean awaitRead(long nanos) throws InterruptedException {
    return await(() -> wanted != null && reading == wanted && isAtEnd && position >= end, nanos);
  }

  /** Those topics whose ids were asked for up to this question. */
  Set<String> takeNamed(long upTo) {
    lock.lock();
    try {
      Set<String> found = new HashSet<>();
      named.forEach(
          (topic, ticket) -> {
            if (ticket <= upTo) {
              found.add(topic);
            }
          });
      named.keySet().removeAll(found);
      return found;
    } finally {
      lock.unlock();
    }
  }

  /** The questions up to this one are answered. */
  void answer(long ticket) {
    change(told -> told.answer(ticket));
  }

  /** The same, and these are the ids that topics have now. */
  void answer(long ticket, Map<String, String> topicIds) {
    change(
        told -> {
          told.identify(topicIds);
          told.answer(ticket);
        });
  }

  // --- for the reader

  /** Wait until there is something to read; null: the link is stopped. */
  Reading awaitWanted() throws InterruptedException {
    await(() -> wanted != null, Long.MAX_VALUE);
    lock.lock();
    try {
      return stopped ? null : wanted;
    } finally {
      lock.unlock();
    }
  }

  boolean isWanted(Reading which) {
    lock.lock();
    try {
      return !stopped && wanted == which;
    } finally {
      lock.unlock();
    }
  }

  /** Something was missed: read the same topic from its start. */
  void again(Reading which) {
    lock.lock();
    try {
      if (wanted == which) {
        wanted = new Reading(which.topicId);
        changed.signalAll();
      }
    } finally {
      lock.unlock();
    }
  }

  /** A reading begins at the topic's start. */
  void begin(Reading which) {
    lock.lock();
    try {
      if (reading == null || !reading.topicId.equals(which.topicId)) {
        furthest = 0;
      }
      reading = which;
      position = 0;
      isAtEnd = false;
      control.begin(which.topicId);
    } finally {
      lock.unlock();
    }
  }

  /**
   * The topic may not be read: what there seems to be no more of, as in one without records, is not
   * read to its end.
   */
  void refuse(Reading which) {
    lock.lock();
    try {
      isAtEnd = isAtEnd && reading != which;
    } finally {
      lock.unlock();
    }
  }

  /** Whether there is more to be read before questions are answered. */
  boolean isBehind() {
    lock.lock();
    try {
      return position < end;
    } finally {
      lock.unlock();
    }
  }

  /**
   * These records were read, and whatever else is before the position, such as the marks of
   * transactions.
   */
  void take(Reading which, Iterable<ConsumerRecord<byte[], byte[]>> records, long positionNow) {
    change(
        told -> {
          if (wanted != which || reading != which) {
            return;
          }
          for (ConsumerRecord<byte[], byte[]> record : records) {
            // What came after a look at the topic's end is not older than that.
            boolean isLive = isAtEnd || record.offset() >= end;
            told.take(
                record.key(),
                record.value(),
                record.offset(),
                appended(record),
                isLive,
                ticks.nanos());
          }
          boolean isFurther = positionNow > position;
          position = Math.max(position, positionNow);
          furthest = Math.max(furthest, position);
          // Before its end is reached, holds would seem to be released.
          boolean isFirst = !isAtEnd && position >= end;
          if (isFirst || (isAtEnd && isFurther)) {
            told.readTo(position, ticks.nanos());
            isAtEnd = true;
          }
          changed.signalAll();
        });
  }

  private static OptionalLong appended(ConsumerRecord<byte[], byte[]> record) {
    boolean isBrokers = record.timestampType() == TimestampType.LOG_APPEND_TIME;
    return isBrokers ? OptionalLong.of(record.timestamp()) : OptionalLong.empty();
  }

  // --- inside

  /** Change what is known, and tell it. Nobody sees what is known before it is whole. */
  private void change(Consumer<ControlReading> change) {
    List<Runnable> told;
    lock.lock();
    try {
      change.accept(control);
      if (control.known() == known) {
        return;
      }
      known = control.known();
      told = new ArrayList<>(listeners);
      changed.signalAll();
    } finally {
      lock.unlock();
    }
    told.forEach(this::tell);
  }

  private void tell(Runnable listener) {
    try {
      listener.run();
    } catch (RuntimeException failed) {
      // The others, and the topic, are none the worse for it.
      troubles.say("listeners", "a consumer could not be told of its gates: " + Reason.of(failed));
    }
  }

  private boolean await(BooleanSupplier reached, long nanos) throws InterruptedException {
    lock.lock();
    try {
      long left = nanos;
      while (!stopped && !reached.getAsBoolean() && left > 0) {
        left = changed.awaitNanos(left);
      }
      return !stopped && reached.getAsBoolean();
    } finally {
      lock.unlock();
    }
  }
}
