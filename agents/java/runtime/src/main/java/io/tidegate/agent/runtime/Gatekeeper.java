package io.tidegate.agent.runtime;

import io.tidegate.agent.core.Effect;
import io.tidegate.agent.core.Offsets;
import io.tidegate.agent.core.Partition;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.WakeupException;

/**
 * What one consumer is told to do by its core, carried out on the application's thread when it
 * polls, and within a few milliseconds.
 */
final class Gatekeeper implements Effect.Driver {
  /** How long a poll without records may last before the gates are looked at again. */
  static final long IDLE_MS = 100;

  /** The same while a gate is being closed or opened. */
  static final long BUSY_MS = 10;

  /** How much of the application's time one turn may take where it waits for a broker. */
  static final long TURN = TimeUnit.MILLISECONDS.toNanos(40);

  /** After so long without the client's word a commit is taken for failed. */
  private static final long COMMIT = TimeUnit.SECONDS.toNanos(10);

  /**
   * In so many polls it has told: the one after the commit ends before there is an answer where it
   * has records, and in the next one the client tells what has come since.
   */
  private static final int COMMIT_POLLS = 2;

  private static final long NEVER = Long.MAX_VALUE;

  private final ConsumerGate gate;
  private final GovernedClient client;
  private final Link link;
  private final LongSupplier clock;
  private final AgentLog log;
  private final BooleanSupplier isBroken;

  private final List<Asked> asked = new ArrayList<>();
  private final Map<Effect.Commit, Committing> committing = new HashMap<>();
  private final Deque<Effect.Commit> committed = new ArrayDeque<>();
  private final Deque<Effect.Commit> notCommitted = new ArrayDeque<>();
  private final Queue<Runnable> acked = new ConcurrentLinkedQueue<>();
  private int acking;
  private long wakesAt = Long.MIN_VALUE;
  private long turnEnds;
  private boolean isStopped;
  private boolean hasComplained;
  private volatile boolean hasNews = true;

  /** A commit of which the client has not told yet what became of it. */
  private static final class Committing {
    private final long until;
    private int polls;

    Committing(long until) {
      this.until = until;
    }

    boolean isOverdue(long now) {
      return now >= until && polls > COMMIT_POLLS;
    }
  }

  /**
   * @param isBroken whether something that an ack promises cannot be kept any more
   */
  Gatekeeper(
      ConsumerGate gate,
      GovernedClient client,
      Link link,
      LongSupplier clock,
      AgentLog log,
      BooleanSupplier isBroken) {
    this.gate = gate;
    this.client = client;
    this.link = link;
    this.clock = clock;
    this.log = log;
    this.isBroken = isBroken;
  }

  /** There may be something to do that was not there before. On any thread. */
  void hasNews() {
    hasNews = true;
  }

  /** Do what is due. */
  void turnIfDue() {
    if (!hasNews && clock.getAsLong() < wakesAt) {
      return;
    }
    // What the application's own call would throw is left to that.
    if (!Thread.currentThread().isInterrupted()) {
      turn();
    }
  }

  private void turn() {
    hasNews = false;
    isStopped = false;
    turnEnds = clock.getAsLong() + TURN;
    gather();
    askAgain();
    Optional<Effect> effect = gate.work();
    while (effect.isPresent()) {
      carryOut(effect.get());
      effect = gate.work();
    }
    OptionalLong at = gate.wakesAt();
    wakesAt = at.isPresent() ? at.getAsLong() : NEVER;
    for (Asked each : asked) {
      wakesAt = Math.min(wakesAt, each.nextAt());
    }
    if (!committing.isEmpty()) {
      wakesAt = clock.getAsLong();
    }
  }

  /** How long (milliseconds) the client may wait for records before the next turn. */
  long waitMs() {
    if (hasNews || acking > 0 || !asked.isEmpty() || !committing.isEmpty()) {
      return BUSY_MS;
    }
    if (wakesAt == NEVER) {
      return IDLE_MS;
    }
    long ms = TimeUnit.NANOSECONDS.toMillis(wakesAt - clock.getAsLong());
    return Math.min(IDLE_MS, Math.max(1, ms));
  }

  private void carryOut(Effect effect) {
    try {
      effect.by(this);
    } catch (WakeupException taken) {
      client.wakeup();
      isStopped = true;
      gate.failed(effect);
    } catch (InterruptException interrupted) {
      // The thread is marked as interrupted again, which the application's call finds.
      isStopped = true;
      gate.failed(effect);
    } catch (RetriableException notYet) {
      gate.failed(effect);
    } catch (RuntimeException unforeseen) {
      complain(effect, unforeseen);
      gate.failed(effect);
    }
  }

  private void complain(Effect effect, RuntimeException unforeseen) {
    if (!hasComplained) {
      hasComplained = true;
      String what = effect.getClass().getSimpleName();
      log.error(
          "group " + gate.group() + ": the agent cannot carry out " + what + ": " + unforeseen);
    }
  }

  // --- what was answered since

  private void gather() {
    for (Runnable each = acked.poll(); each != null; each = acked.poll()) {
      acking--;
      each.run();
    }
    long now = clock.getAsLong();
    committing.forEach(
        (effect, sent) -> {
          sent.polls++;
          if (sent.isOverdue(now)) {
            notCommitted.add(effect);
          }
        });
    for (Effect.Commit each = committed.poll(); each != null; each = committed.poll()) {
      if (committing.remove(each) != null) {
        gate.done(each);
      }
    }
    for (Effect.Commit each = notCommitted.poll(); each != null; each = notCommitted.poll()) {
      if (committing.remove(each) != null) {
        gate.failed(each);
      }
    }
  }

  private void askAgain() {
    List<Asked> before = new ArrayList<>(asked);
    asked.clear();
    for (Asked each : before) {
      ask(each);
    }
  }

  private void ask(Asked question) {
    long now = clock.getAsLong();
    if (isStopped || now >= turnEnds || now < question.nextAt()) {
      asked.add(question);
      return;
    }
    try {
      boolean isAnswered = question.isAnswered(client, now, turnEnds);
      while (!isAnswered && question.isGettingOn() && clock.getAsLong() < turnEnds) {
        isAnswered = question.isAnswered(client, clock.getAsLong(), turnEnds);
      }
      if (isAnswered) {
        gate.done(question.effect(), question.answers());
      } else {
        asked.add(question);
      }
    } catch (WakeupException taken) {
      client.wakeup();
      isStopped = true;
      asked.add(question);
    } catch (InterruptException interrupted) {
      isStopped = true;
      asked.add(question);
    } catch (RuntimeException refused) {
      complain(question.effect(), refused);
      if (question.isRefused(now)) {
        gate.done(question.effect(), question.answers());
      } else {
        asked.add(question);
      }
    }
  }

  // --- effects

  @Override
  public void pause(Effect.Pause effect) {
    gate.done(effect);
  }

  @Override
  public void resume(Effect.Resume effect) {
    gate.done(effect);
  }

  @Override
  public void position(Effect.Position effect) {
    Map<Partition, Long> positions = new LinkedHashMap<>(gate.delivered(effect.partitions()));
    for (Partition each : effect.partitions()) {
      if (gate.isOpen(each)) {
        // Asked whether its limit is reached, behind the last record before which there may be
        // none.
        OptionalLong next = client.position(ConsumerGate.topicPartition(each));
        positions.put(each, next.orElse(Offsets.NONE));
      }
    }
    gate.done(effect, positions);
  }

  @Override
  public void commit(Effect.Commit effect) {
    Map<TopicPartition, Long> offsets = new HashMap<>();
    gate.delivered(effect.partitions())
        .forEach(
            (partition, delivered) -> {
              TopicPartition each = ConsumerGate.topicPartition(partition);
              if (delivered != Offsets.NONE) {
                // As the client would by itself: past what is no record, too.
                offsets.put(each, Math.max(delivered, client.position(each).orElse(delivered)));
              }
            });
    if (offsets.isEmpty()) {
      gate.done(effect);
      return;
    }
    committing.put(effect, new Committing(clock.getAsLong() + COMMIT));
    try {
      client.commit(offsets, isDone -> (isDone ? committed : notCommitted).add(effect));
    } catch (RuntimeException failed) {
      committing.remove(effect);
      throw failed;
    }
  }

  @Override
  public void committed(Effect.Committed effect) {
    ask(new Asked(effect, clock.getAsLong()));
  }

  @Override
  public void forget(Effect.Forget effect) {
    // What the client commits by itself are positions, and these do not pass while it is sealed.
    gate.done(effect);
  }

  @Override
  public void seek(Effect.Seek effect) {
    List<Partition> moved = new ArrayList<>();
    Map<TopicPartition, Long> offsets = new LinkedHashMap<>();
    Set<TopicPartition> assigned = client.assigned();
    effect
        .offsets()
        .forEach(
            (partition, offset) -> {
              TopicPartition each = ConsumerGate.topicPartition(partition);
              if (assigned.contains(each)) {
                offsets.put(each, offset);
              }
            });
    outdated(effect, offsets);
    try {
      offsets.forEach(
          (each, offset) -> {
            client.seek(each, offset);
            moved.add(ConsumerGate.partition(each));
          });
    } finally {
      gate.moved(moved);
    }
    gate.done(effect, moved);
  }

  /** Those that do not go on where they are. That a framework is not told keeps none closed. */
  private void outdated(Effect.Seek effect, Map<TopicPartition, Long> offsets) {
    Set<TopicPartition> elsewhere = new HashSet<>();
    offsets.forEach(
        (each, offset) -> {
          OptionalLong position = client.position(each);
          if (position.isPresent() && position.getAsLong() != offset) {
            elsewhere.add(each);
          }
        });
    if (elsewhere.isEmpty()) {
      return;
    }
    try {
      client.outdated(elsewhere);
    } catch (WakeupException | InterruptException applications) {
      throw applications;
    } catch (RuntimeException unforeseen) {
      complain(effect, unforeseen);
    }
  }

  @Override
  public void begin(Effect.Begin effect) {
    List<Partition> moved = new ArrayList<>();
    Set<TopicPartition> assigned = client.assigned();
    for (Partition partition : effect.partitions()) {
      TopicPartition each = ConsumerGate.topicPartition(partition);
      if (assigned.contains(each)) {
        client.begin(each, effect.start());
        moved.add(partition);
      }
    }
    gate.done(effect, moved);
  }

  @Override
  public void sendAcks(Effect.SendAcks effect) {
    Optional<String> member = isBroken.getAsBoolean() ? Optional.empty() : client.memberId();
    if (!member.isPresent()) {
      // Whose the partitions are is not known: an ack without a member would speak for another.
      gate.failed(effect);
      return;
    }
    acking++;
    link.sendAcks(
        gate.group(),
        member.get(),
        effect.acks(),
        effect.generation(),
        isWritten -> {
          acked.add(() -> answered(effect, isWritten));
          hasNews = true;
        });
  }

  private void answered(Effect.SendAcks effect, boolean isWritten) {
    if (isWritten) {
      gate.done(effect);
    } else {
      gate.failed(effect);
    }
  }
}
