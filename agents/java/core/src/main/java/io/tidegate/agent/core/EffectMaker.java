package io.tidegate.agent.core;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** What partitions need, as an effect for all of them. */
final class EffectMaker {
  private final Ownership owned;

  EffectMaker(Ownership owned) {
    this.owned = owned;
  }

  /**
   * What the client is to be told once more; where all is as it should be, that changes nothing.
   * Nothing waits for it. What the application paused itself is left to it.
   */
  Optional<Effect> toldAgain(long now) {
    List<Partition> pause = new ArrayList<>();
    List<Partition> resume = new ArrayList<>();
    owned.states.forEach(
        (partition, state) -> {
          if (state.tellAgain && state.tellAgainAt <= now) {
            if (state.stage != Stage.OPEN) {
              pause.add(partition);
            } else if (state.appPaused) {
              state.tellAgain = false;
            } else {
              resume.add(partition);
            }
          }
        });
    List<Partition> told = pause.isEmpty() ? resume : pause;
    told.forEach(partition -> owned.states.get(partition).tellAgain = false);
    if (told.isEmpty()) {
      return Optional.empty();
    }
    return Optional.of(pause.isEmpty() ? new Effect.Resume(told) : new Effect.Pause(told));
  }

  /** What these partitions need. */
  Effect effect(Step step, List<Partition> partitions) {
    switch (step) {
      case PAUSE:
        return new Effect.Pause(partitions);
      case RESUME:
        return new Effect.Resume(partitions);
      case SEEK:
        Map<Partition, Long> targets = new LinkedHashMap<>();
        partitions.forEach(partition -> targets.put(partition, owned.states.get(partition).target));
        return new Effect.Seek(targets);
      case POSITION:
      case RECHECK:
      case LOOK:
        return new Effect.Position(partitions);
      case COMMIT:
        return new Effect.Commit(partitions);
      case FORGET:
        return new Effect.Forget(partitions);
      case BEGIN:
        return new Effect.Begin(
            owned.settings.rule().orElseThrow(IllegalStateException::new).start(), partitions);
      case ACK:
        Map<Partition, Effect.AckWord> acks = new LinkedHashMap<>();
        partitions.forEach(
            partition -> acks.put(partition, ack(partition, owned.states.get(partition))));
        return new Effect.SendAcks(acks, owned.known.generation());
      case DRAINED:
      case BARRIER:
      case TARGET:
      case PLACE:
        return new Effect.Committed(partitions);
      case JUDGE:
        break;
    }
    throw new IllegalStateException(step + " is no effect");
  }

  private Effect.AckWord ack(Partition partition, PartitionState state) {
    Optional<Gate> gate = owned.gate(partition, state);
    if (state.stage == Stage.CLOSED && gate.isPresent()) {
      if (!owned.held(partition).isPresent()) {
        return new Effect.AckWord(gate.get().epoch(), state.nextAt);
      }
      long offset = state.committed != Offsets.NONE ? state.committed : state.position;
      return new Effect.AckWord(gate.get().epoch(), offset);
    }
    return new Effect.AckWord(owned.known.openEpoch(), state.target);
  }
}
