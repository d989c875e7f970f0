package io.tidegate.agent.core;

import java.util.HashSet;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/**
 * A partition's way from its assignment on: which step follows which.
 *
 * <pre>
 * assigned → UNREAD ───────────────→ OPEN     its gate is read first; it delivers nothing before
 *               └→ DRAINING → CLOSED          closed already: nothing to finish, acked at once
 * OPEN → DRAINING ──────────→ CLOSED          pause, wait for the commits of what was delivered, ack
 * CLOSED → OPENING ────────────────→ OPEN     committed offset, seek to it, resume, ack
 * </pre>
 *
 * <p>Before a partition is resumed for the first time the rule for new partitions, where there is
 * one, may say where it begins; until that is decided it is <i>unplaced</i>. A partition that has
 * come to its limit is closed as by a hold, unless one closes it. A partition that is <i>sealed</i>
 * has its commits dropped: from shortly before the ack until it is open again.
 */
final class Lifecycle {
  /** A record taken off the client's queue just before the pause may show in its position late. */
  static final long SETTLE = TimeUnit.MILLISECONDS.toNanos(20);

  static final long DRAIN_POLL = TimeUnit.MILLISECONDS.toNanos(20);
  private static final long DRAIN_POLL_MOST = TimeUnit.MILLISECONDS.toNanos(250);
  private static final long RETRY = TimeUnit.MILLISECONDS.toNanos(100);
  private static final long RETRY_MOST = TimeUnit.SECONDS.toNanos(1);

  /**
   * How long after the drain timeout the ack waits until the broker tells the committed offset: a
   * transaction that is open may still bring one, and a commit may still be under way.
   */
  private static final long BARRIER_PATIENCE = TimeUnit.SECONDS.toNanos(60);

  /** The same where this owner has delivered nothing, and so has nothing under way. */
  private static final long UNDELIVERED_PATIENCE = TimeUnit.SECONDS.toNanos(1);

  /**
   * How often a partition with a limit is asked for its position: behind the last record below it
   * there may be none that would tell.
   */
  private static final long LOOK = TimeUnit.MILLISECONDS.toNanos(250);

  /** How long after a pause or a resume a client that may have dropped it is told once more. */
  private static final long TELL_AGAIN = TimeUnit.SECONDS.toNanos(1);

  private final Ownership owned;
  private final Placement placement;

  Lifecycle(Ownership owned) {
    this.owned = owned;
    this.placement = new Placement(owned);
  }

  // --- what the gate asks for

  /** Whether the gate asks for something else than what is being done. */
  void consider(Partition partition, PartitionState state, long now) {
    Optional<Gate> gate = owned.gate(partition, state);
    state.read = state.read || owned.known.answered() >= state.ticket;
    switch (state.stage) {
      case UNREAD:
        unread(partition, state, gate, now);
        break;
      case OPEN:
        open(partition, state, gate, now);
        break;
      case DRAINING:
        if (!gate.isPresent()) {
          state.stage = Stage.OPENING;
          state.need(state.sealed ? Step.TARGET : Step.RESUME);
        }
        break;
      case CLOSED:
        closed(state, gate, now);
        break;
      case OPENING:
        if (gate.isPresent()) {
          closeAgain(state, gate.get(), now);
        }
        break;
    }
    if (state.step == Step.JUDGE) {
      placement.judge(partition, state, now);
    }
  }

  /** Nothing waits for an ack that is on its way: what it says may be out of date already. */
  void overtake(Partition partition, PartitionState state, Effect.SendAcks acks, long now) {
    Optional<Gate> gate = owned.gate(partition, state);
    boolean isClosed = state.stage == Stage.CLOSED;
    if (gate.isPresent() != isClosed) {
      state.effect = null;
      state.needNothing();
      consider(partition, state, now);
    } else if (acks.generation() != owned.known.generation()
        || (gate.isPresent() && acks.acks().get(partition).epoch() < gate.get().epoch())) {
      state.effect = null;
    }
  }

  private void unread(Partition partition, PartitionState state, Optional<Gate> gate, long now) {
    if (!state.read) {
      if (owned.settings.openUnreadAfter().isPresent()
          && now >= state.since + owned.settings.openUnreadAfter().getAsLong()
          && state.step == null) {
        owned
            .settings
            .notices()
            .warn(
                String.format(
                    "group %s: delivering %s although its gate could not be read",
                    owned.settings.group(), partition));
        state.need(Step.RESUME);
      }
      return;
    }
    if (state.inHand != Offsets.NONE && owned.isGated(partition, state)) {
      state.lateFrom = 0;
    }
    if (gate.isPresent()) {
      // Nothing was delivered by this owner: there is nothing to wait for.
      state.stage = Stage.DRAINING;
      state.sealed = true;
      state.deadline = now;
      state.giveUp = now + UNDELIVERED_PATIENCE;
      state.running = new HashSet<>(owned.commits);
      state.need(Step.FORGET);
    } else if (state.step == null) {
      if (state.lateFrom != Offsets.NONE || owned.wasMoved(partition, state)) {
        state.stage = Stage.OPENING;
        state.sealed = true;
        state.need(Step.TARGET);
      } else if (!state.appSought && owned.limit(partition).isPresent()) {
        state.stage = Stage.OPENING;
        state.need(Step.TARGET);
      } else {
        state.need(state.unplaced ? Step.PLACE : Step.RESUME);
      }
    }
  }

  private void open(Partition partition, PartitionState state, Optional<Gate> gate, long now) {
    if (gate.isPresent()) {
      beginClosing(state, gate.get(), now);
    } else if (state.step != null) {
      return;
    } else if (state.read && state.ackedGeneration != owned.known.generation()) {
      state.need(Step.ACK);
    } else if (owned.limit(partition).isPresent()) {
      state.need(Step.LOOK, now + LOOK);
    }
  }

  private void closed(PartitionState state, Optional<Gate> gate, long now) {
    if (!gate.isPresent()) {
      state.stage = Stage.OPENING;
      state.need(Step.TARGET);
    } else if (state.step == null && !isAcked(state, gate.get())) {
      // The group may have been reset since it was closed: the ack tells where it is now.
      state.giveUp = now + UNDELIVERED_PATIENCE;
      state.need(Step.BARRIER);
    }
  }

  private boolean isAcked(PartitionState state, Gate gate) {
    return state.ackedGeneration == owned.known.generation() && state.ackedEpoch >= gate.epoch();
  }

  private void beginClosing(PartitionState state, Gate gate, long now) {
    state.stage = Stage.DRAINING;
    state.warned = false;
    state.wasClosed = false;
    state.timedOut = false;
    state.committed = Offsets.NONE;
    state.before = Offsets.NONE;
    state.target = Offsets.NONE;
    state.position = Offsets.NONE;
    state.wait = DRAIN_POLL;
    giveTime(state, gate, now);
    state.need(Step.PAUSE);
  }

  private static void giveTime(PartitionState state, Gate gate, long now) {
    state.deadline = now + TimeUnit.MILLISECONDS.toNanos(gate.drainTimeoutMs());
    state.giveUp = state.deadline + BARRIER_PATIENCE;
  }

  /** A hold while it was being opened: it is still paused, since opened ones are open. */
  private static void closeAgain(PartitionState state, Gate gate, long now) {
    state.stage = Stage.DRAINING;
    if (state.sealed) {
      state.deadline = now;
      state.giveUp = now + UNDELIVERED_PATIENCE;
      state.need(Step.BARRIER);
    } else {
      giveTime(state, gate, now);
      state.need(Step.POSITION);
    }
  }

  // --- what follows what was done

  /** Try it again after a while that grows. */
  static void again(PartitionState state, long now) {
    state.tries++;
    state.due = now + Math.min(RETRY_MOST, RETRY << Math.min(state.tries - 1, 8));
  }

  /** Have the client told once more, where it may not have listened. */
  void tellAgain(PartitionState state, long now) {
    state.tellAgain = owned.settings.mayDrop();
    state.tellAgainAt = now + TELL_AGAIN;
  }

  /** Whether draining has lasted long enough. */
  boolean isOver(PartitionState state, long now) {
    // With both, the client would commit later, and nothing can stop it.
    boolean waitsForClient = owned.settings.clientCommits() && owned.settings.clientStores();
    return now >= (waitsForClient ? state.giveUp : state.deadline);
  }

  /** Told to pause. */
  void paused(PartitionState state, long now) {
    tellAgain(state, now);
    state.need(Step.POSITION, now + SETTLE);
  }

  /** The offset after the last record delivered was asked for. */
  void positioned(PartitionState state, long told) {
    state.position = position(state, told);
    state.need(owned.settings.clientCommits() ? Step.COMMIT : Step.DRAINED);
  }

  /** The committed offset was asked for, and whether what was delivered is committed. */
  void drained(PartitionState state, long committed, long now) {
    state.committed = committed;
    if (state.position == Offsets.NONE || committed >= state.position) {
      seal(state);
    } else if (isOver(state, now)) {
      state.timedOut = true;
      seal(state);
    } else {
      state.wait = Math.min(DRAIN_POLL_MOST, state.wait + state.wait / 2);
      state.need(
          Step.POSITION, Math.min(now + state.wait, Math.max(state.deadline, now + DRAIN_POLL)));
    }
  }

  /** From here on nothing of it is committed. */
  void seal(PartitionState state) {
    state.sealed = true;
    state.running = new HashSet<>(owned.commits);
    state.need(Step.RECHECK);
  }

  /** The position was asked for once more, after it was sealed. */
  void rechecked(PartitionState state, long told) {
    long position = position(state, told);
    if (position != Offsets.NONE && position != state.position && !state.timedOut) {
      // A record had been taken off the queue when the partition was paused: it is waited for, too.
      state.sealed = false;
      state.position = position;
      state.need(Step.POSITION);
      return;
    }
    state.position = position;
    state.need(Step.FORGET);
  }

  /** Where the client has none, since it was moved back: what it was seen to deliver. */
  private static long position(PartitionState state, long told) {
    return told == Offsets.NONE ? state.passed : told;
  }

  /** The last commit is through: acked next. */
  void close(Partition partition, PartitionState state, long committed) {
    state.committed = committed;
    state.stage = Stage.CLOSED;
    state.need(Step.ACK);
    if (state.wasClosed) {
      return;
    }
    state.wasClosed = true;
    state.before = committed;
    if (committed != Offsets.NONE && committed == state.position) {
      state.appSought = false;
    }
    if (state.position != Offsets.NONE && state.timedOut) {
      state.inHand = Math.max(state.position, state.inHand);
    }
    String reasons =
        owned.gate(partition, state).map(gate -> String.join("; ", gate.reasons())).orElse("");
    owned
        .settings
        .notices()
        .info(
            String.format(
                "group %s: %s is paused at offset %s%s%s",
                owned.settings.group(),
                partition,
                committed == Offsets.NONE ? "(none)" : Long.toString(committed),
                state.timedOut ? ", not everything delivered had been committed in time" : "",
                reasons.isEmpty() ? "" : ": " + reasons));
  }

  /** The committed offset that it had when it was begun to be opened was asked for. */
  void aim(Partition partition, PartitionState state, long committed, long now) {
    state.target = committed;
    boolean keepsItsPosition = state.appSought && committed == state.before;
    if (!keepsItsPosition && owned.comesTo(partition, state, committed)) {
      state.needNothing();
    } else if (committed == Offsets.NONE && state.position == Offsets.NONE && state.unplaced) {
      placement.place(partition, state, committed, now);
    } else if (committed == Offsets.NONE || keepsItsPosition) {
      state.target = committed == Offsets.NONE ? state.position : Offsets.NONE;
      state.need(Step.RESUME);
    } else {
      state.need(Step.SEEK);
    }
  }

  /** The committed offset of a partition that is to begin was asked for. */
  void place(Partition partition, PartitionState state, long committed, long now) {
    placement.place(partition, state, committed, now);
  }

  /** It was told to resume, or the application has it paused itself. */
  void opened(Partition partition, PartitionState state) {
    boolean wasSealed = state.sealed;
    boolean mayBeReset =
        state.lateFrom != Offsets.NONE || (state.wasClosed && state.target != state.before);
    if (wasSealed && mayBeReset && state.inHand != Offsets.NONE && state.target != Offsets.NONE) {
      // What was handed out may still be in hand, and be committed although the group was reset.
      state.lateFrom = state.target;
    }
    state.stage = Stage.OPEN;
    state.sealed = false;
    state.timedOut = false;
    state.warned = false;
    state.unplaced = false;
    state.nextAt = Offsets.NONE;
    if (state.target != Offsets.NONE) {
      state.passed = Offsets.NONE;
    }
    state.need(state.read ? Step.ACK : null);
    if (wasSealed) {
      String where = state.target == Offsets.NONE ? "its own position" : "offset " + state.target;
      owned
          .settings
          .notices()
          .info(
              String.format(
                  "group %s: %s goes on at %s", owned.settings.group(), partition, where));
    }
  }
}
