package io.tidegate.agent.core;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;

/**
 * Which commits of the application may reach the brokers, and which records the application. A
 * driver asks it around each commit of the application, and around each poll of the client.
 */
public final class Withholding {
  private final Ownership owned;
  private final Lifecycle lifecycle;
  private long serial;

  Withholding(Ownership owned, Lifecycle lifecycle) {
    this.owned = owned;
    this.lifecycle = lifecycle;
  }

  /**
   * A commit call of the application goes to the client, once {@link #dropped} was taken out.
   *
   * @return for {@link #commitEnds}
   */
  public long commitBegins() {
    serial++;
    owned.commits.add(serial);
    return serial;
  }

  /** The call of this number has ended, whatever came of it. */
  public void commitEnds(long call) {
    owned.commits.remove(call);
  }

  /**
   * Those of the application's offsets that must not be committed, now or (stored) later; told of
   * once a closing.
   *
   * @param positions the offset after the last record delivered of a partition, {@link
   *     Offsets#NONE} where there is none; asked for only where records that were handed out before
   *     a closing may still be committed although the group's offset was reset since
   */
  public Set<Partition> dropped(Map<Partition, Long> offsets, Function<Partition, Long> positions) {
    Set<Partition> found = new HashSet<>();
    offsets.forEach(
        (partition, offset) -> {
          PartitionState state = owned.states.get(partition);
          if (state == null
              ? isOthers(partition)
              : isDropped(state, partition, offset, positions)) {
            found.add(partition);
            if (state != null) {
              warn(state, partition, offset);
            }
          }
        });
    return found;
  }

  /**
   * A member may commit for partitions that are not its own: nothing of before they were closed.
   */
  private boolean isOthers(Partition partition) {
    Lost lost = owned.lost.get(partition);
    return owned.held(partition).isPresent() || (lost != null && owned.wasGated(partition, lost));
  }

  private static boolean isDropped(
      PartitionState state, Partition partition, long offset, Function<Partition, Long> positions) {
    if (state.sealed) {
      return true;
    }
    // Whether this may be the commit of a record from before the group was reset.
    if (state.lateFrom == Offsets.NONE || state.inHand == Offsets.NONE || offset > state.inHand) {
      return false;
    }
    long position = positions.apply(partition);
    if (position != Offsets.NONE && position >= state.inHand && state.inHand >= state.lateFrom) {
      state.inHand = Offsets.NONE;
      state.lateFrom = Offsets.NONE;
      return false;
    }
    long delivered = position == Offsets.NONE ? state.lateFrom : position;
    return offset < state.lateFrom || offset > delivered;
  }

  private void warn(PartitionState state, Partition partition, long offset) {
    if (state.warned) {
      return;
    }
    state.warned = true;
    owned
        .settings
        .notices()
        .warn(
            String.format(
                "group %s: dropping commits of %s (offset %d): %s",
                owned.settings.group(),
                partition,
                offset,
                state.sealed
                    ? "it is paused"
                    : "the record was delivered before it was paused and reset"));
  }

  /** Whether {@link #dropped} may need positions. */
  public boolean hasLate() {
    return owned.states.values().stream().anyMatch(state -> state.lateFrom != Offsets.NONE);
  }

  /** The partitions that are to deliver nothing: not open, or to be resumed by the application. */
  public List<Partition> stopped() {
    List<Partition> found = new ArrayList<>();
    owned.states.forEach(
        (partition, state) -> {
          if (state.stage != Stage.OPEN || state.appPaused) {
            found.add(partition);
          }
        });
    return found;
  }

  /**
   * Whether records of it may not reach the application, if the client returns some: its gate was
   * not read, or it was said to be paused, or it has a limit.
   */
  public boolean mayBeWithheld(Partition partition) {
    PartitionState state = owned.states.get(partition);
    return state != null
        && (state.stage == Stage.UNREAD || state.sealed || owned.limit(partition).isPresent());
  }

  /**
   * Whether this record may not reach the application now. What the client had taken off its queue
   * when it was paused counts as delivered: its commit was waited for, until the drain timeout. It
   * is handed over, however late.
   */
  public boolean isWithheld(Partition partition, long offset) {
    PartitionState state = owned.states.get(partition);
    if (state == null) {
      return false;
    }
    if (state.stage == Stage.UNREAD) {
      return true;
    }
    if (state.sealed) {
      return state.position == Offsets.NONE || offset >= state.position;
    }
    return owned.isBeyond(partition, offset);
  }

  /**
   * Whether this record is not to be delivered for its limit, the gate being open otherwise. Also
   * of a partition that was taken away while the client was about to return records of it.
   */
  public boolean isBeyondLimit(Partition partition, long offset) {
    return owned.isBeyond(partition, offset);
  }

  /**
   * The offsets after records that the application is given now. Needs to be told only of
   * partitions that have a limit, and where the client forgets its position when it is moved back
   * to a record that was withheld.
   */
  public void delivers(Map<Partition, Long> ends) {
    ends.forEach(
        (partition, end) -> {
          PartitionState state = owned.states.get(partition);
          if (state != null && owned.limit(partition).isPresent()) {
            state.passed = end;
          }
        });
  }

  /** The client returned records that are not given to the application; the first one of each. */
  public void withheld(Map<Partition, Long> offsets) {
    offsets.forEach(
        (partition, offset) -> {
          PartitionState state = owned.states.get(partition);
          if (state != null) {
            owned.comesTo(partition, state, offset);
          }
        });
  }

  /**
   * The client returned records of these although they are withheld. It has been told to pause them
   * again.
   */
  public void leaked(Collection<Partition> partitions, long now) {
    for (Partition partition : partitions) {
      PartitionState state = owned.states.get(partition);
      if (state != null) {
        lifecycle.tellAgain(state, now);
      }
    }
  }

  /** As {@link #delivers} was told, of the partitions that were not sought since. */
  public Map<Partition, Long> passed() {
    Map<Partition, Long> found = new HashMap<>();
    owned.states.forEach(
        (partition, state) -> {
          if (state.passed != Offsets.NONE) {
            found.put(partition, state.passed);
          }
        });
    return found;
  }

  /** The partitions of which nothing may be committed. */
  public Set<Partition> sealed() {
    Set<Partition> found = new HashSet<>();
    owned.states.forEach(
        (partition, state) -> {
          if (state.sealed) {
            found.add(partition);
          }
        });
    return Collections.unmodifiableSet(found);
  }

  /** The partitions whose position is the client's own for now, and is not where they begin. */
  public Set<Partition> unplaced() {
    Set<Partition> found = new HashSet<>();
    owned.states.forEach(
        (partition, state) -> {
          if (state.unplaced) {
            found.add(partition);
          }
        });
    return Collections.unmodifiableSet(found);
  }
}
