package io.tidegate.agent.core;

import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/** The partitions that one consumer has and had, and what the control topic says of them. */
final class Ownership {
  final CoreSettings settings;

  /** In the order of their assignment. */
  final Map<Partition, PartitionState> states = new LinkedHashMap<>();

  final Map<Partition, Lost> lost = new HashMap<>();

  /** The application's commit calls that are under way. */
  final Set<Long> commits = new HashSet<>();

  Known known = Known.NOTHING;

  Ownership(CoreSettings settings) {
    this.settings = settings;
  }

  private GateId id(Partition partition) {
    return new GateId(settings.group(), partition);
  }

  /** Whether the partition is held; empty: it is not. */
  Optional<Gate> held(Partition partition) {
    return known.gate(id(partition));
  }

  Optional<LimitGate> limit(Partition partition) {
    return known.limit(id(partition));
  }

  /** What closes it: holds, or a limit that it has come to. */
  Optional<Gate> gate(Partition partition, PartitionState state) {
    Optional<Gate> held = held(partition);
    Optional<LimitGate> limit = limit(partition);
    if (held.isPresent() || !limit.isPresent()) {
      return held;
    }
    if (state.nextAt == Offsets.NONE || state.nextAt < limit.get().offset()) {
      return Optional.empty();
    }
    return movedSince(partition, state.nextKnown)
        ? Optional.empty()
        : Optional.of(limit.get().closing());
  }

  /** Whether a record may not be delivered for the partition's limit. */
  boolean isBeyond(Partition partition, long offset) {
    return limit(partition).map(limit -> offset >= limit.offset()).orElse(false);
  }

  /** The next record would be at this offset, as far as known; whether it has to stop there. */
  boolean comesTo(Partition partition, PartitionState state, long offset) {
    if (offset == Offsets.NONE || !isBeyond(partition, offset)) {
      return false;
    }
    state.nextAt = offset;
    state.nextKnown = known.readTo();
    return true;
  }

  /** Whether the gate was closed at some time since records that may be in hand were handed out. */
  boolean wasGated(Partition partition, Lost earlier) {
    return earlier.wasGated || movedSince(partition, earlier.readTo);
  }

  /** The same of a partition that is this consumer's. */
  boolean isGated(Partition partition, PartitionState state) {
    if (state.sealed || state.lateFrom != Offsets.NONE || held(partition).isPresent()) {
      return true;
    }
    return state.stage == Stage.UNREAD && state.lost != null && wasGated(partition, state.lost);
  }

  /** Whether the group may have been reset after the client asked where to begin. */
  boolean wasMoved(Partition partition, PartitionState state) {
    return !state.appSought && movedSince(partition, state.known);
  }

  /**
   * Whether a record moved the gate that was not known then; in another control topic any counts.
   */
  private boolean movedSince(Partition partition, ReadTo then) {
    long after = then.generation() == known.generation() ? then.taken() : Offsets.NONE;
    return known.movedAfter(id(partition), after);
  }
}
