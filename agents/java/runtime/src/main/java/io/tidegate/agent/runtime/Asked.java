package io.tidegate.agent.runtime;

import io.tidegate.agent.core.Effect;
import io.tidegate.agent.core.Offsets;
import io.tidegate.agent.core.Partition;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;

/**
 * Committed offsets that are asked for, over as many turns as the answer takes. The client answers
 * for all partitions or for none, and for none while a transaction of one of them is open; so they
 * are asked for one by one after a while, and those that have no answer are left out.
 */
final class Asked {
  /** How long after it was asked for there is still hope of one answer for all. */
  private static final long TOGETHER = TimeUnit.MILLISECONDS.toNanos(500);

  /** How long one partition's answer is waited for. */
  private static final long EACH = TimeUnit.MILLISECONDS.toNanos(300);

  /** How often at least: where turns are far apart, that time is over before an answer was seen. */
  private static final int TRIES_TOGETHER = 3;

  private static final int TRIES_EACH = 3;

  /** From then on it is asked less often, for each attempt holds up the application's poll. */
  private static final long LONG = TimeUnit.SECONDS.toNanos(3);

  private static final long PATIENT = TimeUnit.MILLISECONDS.toNanos(250);

  /** After so long it is given up, and asked for again as the core sees fit. */
  private static final long MOST = TimeUnit.SECONDS.toNanos(10);

  /** An application that is away for longer than a slice of its poll has records to work on. */
  private static final long AWAY = TimeUnit.MILLISECONDS.toNanos(2 * Gatekeeper.BUSY_MS);

  /** By what share of the time for which it was away such an application can be held up. */
  private static final int SHARE = 8;

  /** The same where it is away for shorter, and is held up for longer. */
  private static final int LARGEST_SHARE = 4;

  private static final long LONGEST_WAIT = TimeUnit.MILLISECONDS.toNanos(400);

  private final Effect.Committed effect;
  private final Map<Partition, Long> answers = new HashMap<>();
  private final Deque<TopicPartition> open = new ArrayDeque<>();
  private final long since;
  private boolean isTogether = true;

  /** How often those are asked for that are asked for now, and since when. */
  private int tries;

  private long theseSince;

  /** Until when the last answer was waited for, and how long (nanoseconds) the next one is. */
  private long askedUntil;

  private long wait = Gatekeeper.TURN;
  private long nextAt;
  private boolean isGettingOn;

  Asked(Effect.Committed effect, long now) {
    this.effect = effect;
    this.since = now;
    this.theseSince = now;
    this.askedUntil = now;
    this.nextAt = now;
    effect.partitions().forEach(each -> open.add(ConsumerGate.topicPartition(each)));
  }

  Effect.Committed effect() {
    return effect;
  }

  Map<Partition, Long> answers() {
    return answers;
  }

  /** When it is to be asked again. */
  long nextAt() {
    return nextAt;
  }

  /** Whether the last attempt brought an answer, so that the next one may, too. */
  boolean isGettingOn() {
    return isGettingOn;
  }

  /**
   * Ask, and wait for the answer until then, or longer where the application has time.
   *
   * @return whether there is nothing more to be had
   */
  boolean isAnswered(GovernedClient client, long now, long until) {
    if (isTogether && tries == 0) {
      client.forgetAnswers();
    }
    if (isTogether && tries >= TRIES_TOGETHER && now - since >= TOGETHER) {
      isTogether = false;
      begin(now);
    }
    Set<TopicPartition> these =
        isTogether ? new HashSet<>(open) : Collections.singleton(open.peekFirst());
    boolean wasAway = now - askedUntil > AWAY;
    if (wasAway) {
      wait = Math.max(wait, Math.min(LONGEST_WAIT, (now - askedUntil) / SHARE));
    }
    long timeout = Math.max(TimeUnit.MILLISECONDS.toNanos(1), until - now);
    if (wait > Gatekeeper.TURN && (wasAway || !isTogether)) {
      timeout = Math.max(timeout, wait);
    }
    tries++;
    askedUntil = now + timeout;
    try {
      client
          .committed(these, Duration.ofNanos(timeout))
          .forEach(
              (partition, offset) ->
                  answers.put(
                      ConsumerGate.partition(partition), offset == null ? Offsets.NONE : offset));
      isGettingOn = true;
      open.removeAll(these);
      begin(now);
    } catch (RetriableException notYet) {
      isGettingOn = false;
      unanswered(these, now, wasAway);
    }
    return open.isEmpty() || now - since > MOST;
  }

  /**
   * What was asked last is refused. One topic that may not be described is the reason for all, so
   * that the others are asked for without it.
   *
   * @return whether there is nothing more to be had
   */
  boolean isRefused(long now) {
    if (isTogether && open.size() > 1) {
      isTogether = false;
    } else {
      open.removeFirst();
    }
    begin(now);
    return open.isEmpty();
  }

  /** Those that are asked for from now on have not been asked for yet. */
  private void begin(long now) {
    tries = 0;
    theseSince = now;
  }

  /**
   * The answer takes longer than was waited for. One that comes while the application is at work,
   * or in a slice of its poll, may be lost: the newer protocol's client keeps none. So the next one
   * is waited for longer, or each might be lost.
   */
  private void unanswered(Set<TopicPartition> these, long now, boolean wasAway) {
    nextAt = now - since < LONG ? now : now + PATIENT;
    if (wasAway) {
      nextAt = Math.max(nextAt, askedUntil + (LARGEST_SHARE - 1) * (askedUntil - now));
    }
    if (wasAway || !isTogether) {
      wait = Math.min(LONGEST_WAIT, 2 * wait);
    }
    if (!isTogether && tries >= TRIES_EACH && askedUntil - theseSince >= EACH) {
      open.removeAll(these);
      begin(now);
    }
  }
}
