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

  /** From then on it is asked less often, for each attempt holds up the application's poll. */
  private static final long LONG = TimeUnit.SECONDS.toNanos(3);

  private static final long PATIENT = TimeUnit.MILLISECONDS.toNanos(250);

  /** After so long it is given up, and asked for again as the core sees fit. */
  private static final long MOST = TimeUnit.SECONDS.toNanos(10);

  private final Effect.Committed effect;
  private final Map<Partition, Long> answers = new HashMap<>();
  private final Deque<TopicPartition> open = new ArrayDeque<>();
  private final long since;
  private long eachSince;
  private long nextAt;
  private boolean isAsked;

  Asked(Effect.Committed effect, long now) {
    this.effect = effect;
    this.since = now;
    this.eachSince = now;
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

  /**
   * Ask, and wait for the answer until then.
   *
   * @return whether there is nothing more to be had
   */
  boolean isAnswered(GovernedClient client, long now, long until) {
    if (!isAsked) {
      client.forgetAnswers();
      isAsked = true;
    }
    boolean isTogether = now - since < TOGETHER;
    Set<TopicPartition> these =
        isTogether ? new HashSet<>(open) : Collections.singleton(open.peekFirst());
    try {
      Duration timeout = Duration.ofNanos(Math.max(TimeUnit.MILLISECONDS.toNanos(1), until - now));
      client
          .committed(these, timeout)
          .forEach(
              (partition, offset) ->
                  answers.put(
                      ConsumerGate.partition(partition), offset == null ? Offsets.NONE : offset));
      open.removeAll(these);
      eachSince = now;
    } catch (RetriableException notYet) {
      if (!isTogether && now - eachSince > EACH) {
        open.removeAll(these);
        eachSince = now;
      }
      nextAt = now - since < LONG ? now : now + PATIENT;
    }
    return open.isEmpty() || now - since > MOST;
  }
}
