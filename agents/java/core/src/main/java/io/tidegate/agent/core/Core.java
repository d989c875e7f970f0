package io.tidegate.agent.core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeMap;

/**
 * What becomes of one consumer's partitions: when each is stopped, acked, sought and resumed.
 *
 * <p>Whoever drives it tells it what happens ({@link #assigned}, {@link #revoked}, {@link #know},
 * what the application does), asks for {@link #work} until there is none, carries each effect out
 * with its client library, and hands the outcome back with {@code done} or {@link #failed}. Calls
 * must not overlap: the driver has a lock. Times are nanoseconds of any clock that only goes
 * forward.
 */
public final class Core {
  private final Ownership owned;
  private final Lifecycle lifecycle;
  private final Withholding withholding;
  private final EffectMaker effects;

  /** Of a consumer that has no partitions yet. */
  public Core(CoreSettings settings) {
    owned = new Ownership(settings);
    lifecycle = new Lifecycle(owned);
    withholding = new Withholding(owned, lifecycle);
    effects = new EffectMaker(owned);
  }

  /** Which commits may reach the brokers, and which records the application. */
  public Withholding withholding() {
    return withholding;
  }

  /** Up to where what is known of the control topic was read. */
  public ReadTo readTo() {
    return owned.known.readTo();
  }

  /** The partitions that are this consumer's. */
  public List<Partition> owned() {
    return new ArrayList<>(owned.states.keySet());
  }

  /** Where a partition is; empty: not this consumer's. */
  public Optional<Stage> stage(Partition partition) {
    return Optional.ofNullable(owned.states.get(partition)).map(state -> state.stage);
  }

  // --- what happens

  /** The same, where the client has not asked yet where to begin. */
  public void assigned(
      Collection<Partition> partitions, long ticket, Collection<Partition> sought, long now) {
    assigned(partitions, ticket, sought, readTo(), now);
  }

  /**
   * Partitions this consumer has got; all of them have to be paused before they deliver anything.
   *
   * @param ticket the question to the control topic whose answer is needed first
   * @param sought those for which the application itself named the offset to begin at
   * @param known {@link #readTo} from before the client had them
   * @param now in nanoseconds
   */
  public void assigned(
      Collection<Partition> partitions,
      long ticket,
      Collection<Partition> sought,
      ReadTo known,
      long now) {
    for (Partition partition : partitions) {
      PartitionState state = new PartitionState(ticket, now, known);
      state.appSought = sought.contains(partition);
      state.unplaced = owned.settings.rule().isPresent() && !state.appSought;
      owned.states.put(partition, state);
      lifecycle.tellAgain(state, now);
      Lost lost = owned.lost.remove(partition);
      if (lost != null && !state.appSought) {
        state.lost = lost;
        state.inHand = lost.inHand;
      }
    }
  }

  /**
   * Partitions that are no longer this consumer's, whatever was being done with them.
   *
   * @param delivered the offset after the last record that was delivered of each since it was
   *     assigned; those of which none was may be missing
   */
  public void revoked(Collection<Partition> partitions, Map<Partition, Long> delivered) {
    for (Partition partition : partitions) {
      PartitionState state = owned.states.remove(partition);
      if (state != null) {
        long inHand =
            Collections.max(
                Arrays.asList(
                    state.inHand,
                    state.position,
                    state.passed,
                    delivered.getOrDefault(partition, Offsets.NONE)));
        owned.lost.put(partition, new Lost(inHand, owned.isGated(partition, state), readTo()));
      }
    }
  }

  /** What the control topic says now. */
  public void know(Known known) {
    owned.known = known;
  }

  /** The application paused these itself; the client is told so in any case. */
  public void appPaused(Collection<Partition> partitions) {
    for (Partition partition : partitions) {
      PartitionState state = owned.states.get(partition);
      if (state != null) {
        state.appPaused = true;
      }
    }
  }

  /**
   * The application resumes these.
   *
   * @return those that may be resumed in the client now; the rest follow their gates
   */
  public List<Partition> appResumed(Collection<Partition> partitions) {
    List<Partition> free = new ArrayList<>();
    for (Partition partition : partitions) {
      PartitionState state = owned.states.get(partition);
      if (state != null) {
        state.appPaused = false;
      }
      if (state == null || state.stage == Stage.OPEN) {
        free.add(partition);
      }
    }
    return free;
  }

  /** The application itself moved this partition's position: it keeps it, unless it is reset. */
  public void appSought(Partition partition) {
    PartitionState state = owned.states.get(partition);
    if (state == null) {
      return;
    }
    state.appSought = true;
    state.unplaced = false;
    state.inHand = Offsets.NONE;
    state.lateFrom = Offsets.NONE;
    state.nextAt = Offsets.NONE;
    state.passed = Offsets.NONE;
    boolean isMovedBack =
        state.stage == Stage.OPENING && state.step == Step.SEEK && state.target == state.before;
    if (isMovedBack || state.step == Step.JUDGE || state.step == Step.BEGIN) {
      state.effect = null;
      state.need(Step.RESUME);
    }
  }

  // --- work

  /** The next effect that is due, for all who need it; empty: nothing before {@link #wakesAt}. */
  public Optional<Effect> work(long now) {
    owned.states.forEach(
        (partition, state) -> {
          if (state.effect instanceof Effect.SendAcks) {
            lifecycle.overtake(partition, state, (Effect.SendAcks) state.effect, now);
          } else if (state.effect == null) {
            lifecycle.consider(partition, state, now);
            if (state.step == Step.RESUME && state.appPaused) {
              // The application's own pause stays; resuming it is then the application's.
              lifecycle.opened(partition, state);
            }
          }
        });
    TreeMap<Step, List<Partition>> due = new TreeMap<>();
    owned.states.forEach(
        (partition, state) -> {
          if (isWanted(state) && state.due <= now) {
            due.computeIfAbsent(state.step, step -> new ArrayList<>()).add(partition);
          }
        });
    if (due.isEmpty()) {
      return effects.toldAgain(now);
    }
    Effect effect = effects.effect(due.firstEntry().getKey(), due.firstEntry().getValue());
    effect.partitions().forEach(partition -> owned.states.get(partition).effect = effect);
    return Optional.of(effect);
  }

  /** When {@link #work} may have something by itself; empty: not before something happens. */
  public OptionalLong wakesAt() {
    List<Long> times = new ArrayList<>();
    OptionalLong openAfter = owned.settings.openUnreadAfter();
    for (PartitionState state : owned.states.values()) {
      if (isWanted(state)) {
        times.add(state.due);
      }
      if (state.tellAgain) {
        times.add(state.tellAgainAt);
      }
      if (openAfter.isPresent() && state.stage == Stage.UNREAD && state.step == null) {
        times.add(state.since + openAfter.getAsLong());
      }
    }
    return times.stream().mapToLong(Long::longValue).min();
  }

  /** Whether nothing is done or waited for: each is open or closed, and has been acked. */
  public boolean isQuiet() {
    return owned.states.values().stream()
        .allMatch(
            state ->
                state.step == null && (state.stage == Stage.OPEN || state.stage == Stage.CLOSED));
  }

  /** The effect could not be carried out, or it is not known whether it was: it is tried again. */
  public void failed(Effect effect, long now) {
    if (effect instanceof Effect.Committed) {
      done(effect, now);
      return;
    }
    if (effect instanceof Effect.Pause || effect instanceof Effect.Resume) {
      withholding.leaked(effect.partitions(), now);
    }
    for (Partition partition : effect.partitions()) {
      PartitionState state = of(effect, partition);
      if (state != null) {
        Lifecycle.again(state, now);
      }
    }
  }

  /** The effect was carried out; of those that have an answer it says nothing of any partition. */
  public void done(Effect effect, long now) {
    done(effect, now, Collections.emptyMap());
  }

  /** A seek or a beginning was carried out for these; the others are tried again. */
  public void done(Effect effect, long now, Collection<Partition> moved) {
    Map<Partition, Long> answered = new LinkedHashMap<>();
    moved.forEach(partition -> answered.put(partition, Offsets.NONE));
    done(effect, now, answered);
  }

  /**
   * Positions or committed offsets were asked for.
   *
   * @param offsets {@link Offsets#NONE}: there is none. Those that are missing are asked for again
   */
  public void done(Effect effect, long now, Map<Partition, Long> offsets) {
    for (Partition partition : effect.partitions()) {
      PartitionState state = of(effect, partition);
      if (state != null && state.step != null) {
        if (isAnswered(effect) && !offsets.containsKey(partition)) {
          unanswered(partition, state, now);
        } else if (effect instanceof Effect.SendAcks) {
          state.ackedGeneration = ((Effect.SendAcks) effect).generation();
          state.ackedEpoch = ((Effect.SendAcks) effect).acks().get(partition).epoch();
          state.needNothing();
        } else {
          next(partition, state, now, offsets.getOrDefault(partition, Offsets.NONE));
        }
      }
    }
  }

  // --- inside

  private static boolean isAnswered(Effect effect) {
    return effect instanceof Effect.Position
        || effect instanceof Effect.Committed
        || effect instanceof Effect.Seek
        || effect instanceof Effect.Begin;
  }

  private void unanswered(Partition partition, PartitionState state, long now) {
    if (state.step == Step.LOOK) {
      state.needNothing();
    } else if (state.step == Step.BARRIER && now >= state.giveUp) {
      lifecycle.close(partition, state, state.committed);
    } else if (state.step == Step.DRAINED && lifecycle.isOver(state, now)) {
      state.timedOut = true;
      lifecycle.seal(state);
    } else {
      Lifecycle.again(state, now);
    }
  }

  private void next(Partition partition, PartitionState state, long now, long offset) {
    switch (state.step) {
      case PAUSE:
        lifecycle.paused(state, now);
        break;
      case POSITION:
        lifecycle.positioned(state, offset);
        break;
      case COMMIT:
        state.need(Step.DRAINED);
        break;
      case DRAINED:
        lifecycle.drained(state, offset, now);
        break;
      case RECHECK:
        lifecycle.rechecked(state, offset);
        break;
      case FORGET:
        state.need(Step.BARRIER);
        break;
      case BARRIER:
        lifecycle.close(partition, state, offset);
        break;
      case TARGET:
        lifecycle.aim(partition, state, offset, now);
        break;
      case PLACE:
        lifecycle.place(partition, state, offset, now);
        break;
      case BEGIN:
        state.unplaced = false;
        state.need(Step.RESUME);
        break;
      case SEEK:
        state.need(Step.RESUME);
        break;
      case RESUME:
        lifecycle.tellAgain(state, now);
        lifecycle.opened(partition, state);
        break;
      case LOOK:
        state.needNothing();
        owned.comesTo(partition, state, offset);
        break;
      case ACK:
      case JUDGE:
        throw new IllegalStateException("a partition that needs " + state.step + " has no answer");
    }
  }

  /** The state that the effect was for; null where the partition was taken away meanwhile. */
  private PartitionState of(Effect effect, Partition partition) {
    PartitionState state = owned.states.get(partition);
    if (state == null || state.effect != effect) {
      return null;
    }
    state.effect = null;
    return state;
  }

  /** Whether it needs an effect that nothing holds up but the time. */
  private boolean isWanted(PartitionState state) {
    // A commit call of the application has to end first, which it tells by commitEnds.
    boolean isHeldUp =
        state.step == Step.BARRIER && !Collections.disjoint(state.running, owned.commits);
    return state.step != null && state.effect == null && !isHeldUp;
  }
}
