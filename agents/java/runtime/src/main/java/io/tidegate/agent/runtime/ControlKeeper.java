package io.tidegate.agent.runtime;

import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InterruptException;

/**
 * Looks whether the control topic is still the same one, has it read to its end, and answers
 * questions. One thread of a {@link ControlLink}.
 */
final class ControlKeeper {
  /** How often the topic is looked at unasked. */
  private static final long LOOK_NANOS = TimeUnit.SECONDS.toNanos(5);

  /**
   * The same while there is none: the first pause of a cluster makes it, and should not have to
   * wait for long.
   */
  private static final long ABSENT_LOOK_NANOS = TimeUnit.SECONDS.toNanos(1);

  /**
   * After how long without having read to its end the topic is read from its start: tombstones may
   * be gone that would have opened gates. The brokers keep them for at least twice as long ({@code
   * delete.retention.ms}).
   */
  private static final long AWAY_NANOS = TimeUnit.HOURS.toNanos(1);

  private static final long REQUEST_NANOS = TimeUnit.MILLISECONDS.toNanos(Topics.REQUEST_MS);

  private final ControlState state;
  private final Ticks ticks;
  private final String controlTopic;
  private final String ackTopic;
  private final Troubles troubles;
  private final long rebuiltNanos;

  /** The newest time as of which what was read is known to have no gaps. */
  private Ticks.Moment current;

  /** When the control topic was found lost before anything of it had been read. */
  private OptionalLong lostAt = OptionalLong.empty();

  private Map<String, String> topicIds = Collections.emptyMap();

  /**
   * @param rebuiltNanos how long a control topic that was lost, before anything was read of it, is
   *     waited for
   */
  ControlKeeper(
      ControlState state,
      Ticks ticks,
      String controlTopic,
      String ackTopic,
      Troubles troubles,
      long rebuiltNanos) {
    this.state = state;
    this.ticks = ticks;
    this.controlTopic = controlTopic;
    this.ackTopic = ackTopic;
    this.troubles = troubles;
    this.rebuiltNanos = rebuiltNanos;
  }

  /** Keep it until the link is stopped. */
  void keep(Topics topics) throws InterruptedException {
    long answered = 0;
    long nextLook = ticks.nanos();
    while (!state.isStopped()) {
      OptionalLong asked = state.awaitWork(answered, nextLook);
      if (!asked.isPresent()) {
        continue;
      }
      Ticks.Moment looked = ticks.now();
      final long furthest = state.furthest();
      Optional<String> topicId;
      long end = 0;
      boolean isLost;
      try {
        topicId = topics.id(controlTopic);
        end = topicId.isPresent() ? topics.end(controlTopic) : 0;
        isLost = isLost(topics, topicId.isPresent(), end);
      } catch (InterruptException stopping) {
        throw stopping;
      } catch (KafkaException failed) {
        troubles.say(
            "reach", "cannot look at control topic " + controlTopic + ": " + Reason.of(failed));
        state.rest(ControlLink.RETRY_NANOS);
        continue;
      }
      if (isLost) {
        state.wantNothing();
        troubles.say(
            "gone", "control topic " + controlTopic + " is gone: the gates stay as they are");
        state.rest(ControlLink.RETRY_NANOS);
        continue;
      }
      nextLook = ticks.nanos() + (topicId.isPresent() ? LOOK_NANOS : ABSENT_LOOK_NANOS);
      if (!topicId.isPresent()) {
        state.wantNothing();
        troubles.say(
            "none", "there is no control topic " + controlTopic + ": nothing is paused by it");
        answered = asked.getAsLong();
        state.answer(answered);
      } else if (isRead(topicId.get(), end, furthest, looked)) {
        answered = asked.getAsLong();
        answer(topics, answered);
      }
    }
  }

  private boolean isRead(String topicId, long end, long furthest, Ticks.Moment looked)
      throws InterruptedException {
    boolean wasAway = current != null && ticks.since(current) > AWAY_NANOS;
    if (current == null || wasAway) {
      current = looked;
    }
    state.want(topicId, end, furthest, wasAway);
    if (!state.awaitRead(REQUEST_NANOS)) {
      return false;
    }
    current = looked;
    return true;
  }

  private void answer(Topics topics, long ticket) {
    if (identify(topics, state.takeNamed(ticket))) {
      state.answer(ticket, topicIds);
    } else {
      state.answer(ticket);
    }
    String again = "control topic " + controlTopic + " is read again";
    troubles.over("reach", again);
    troubles.over("clients", again);
    troubles.over(
        "gone", "there is a control topic " + controlTopic + " again: it was read from its start");
    troubles.forget("none");
  }

  /** Whether ids are to be told anew, for these topics were named. */
  private boolean identify(Topics topics, Set<String> named) {
    Set<String> discovered = new HashSet<>(named);
    discovered.removeIf(topic -> state.known().discovered(topic).isEmpty());
    if (discovered.isEmpty() && Collections.disjoint(named, topicIds.keySet())) {
      return false;
    }
    Map<String, String> found = new HashMap<>(topicIds);
    found.keySet().removeAll(named);
    if (!discovered.isEmpty()) {
      found.putAll(topics.ids(discovered));
    }
    topicIds = found;
    return true;
  }

  /** Whether there was a control topic, and this is none, or none that could be read. */
  private boolean isLost(Topics topics, boolean isThere, long end) {
    if (state.known().generation() > 0) {
      return !isThere;
    }
    if (!lostAt.isPresent()) {
      // The ack topic is made with the control topic: where it stands alone, the other one was
      // lost.
      if (isThere || !topics.id(ackTopic).isPresent()) {
        return false;
      }
      lostAt = OptionalLong.of(ticks.nanos());
    }
    boolean isWritten = isThere && end > 0;
    return !isWritten && ticks.nanos() < lostAt.getAsLong() + rebuiltNanos;
  }
}
