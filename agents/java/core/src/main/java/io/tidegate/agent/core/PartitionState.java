package io.tidegate.agent.core;

import java.util.Collections;
import java.util.Set;

/**
 * What is known of one partition of a consumer, and what it needs next. Offsets are {@link
 * Offsets#NONE} where there is none; times are nanoseconds.
 */
final class PartitionState {
  /** The question to the control topic whose answer it needs first. */
  final long ticket;

  /** When it was assigned. */
  final long since;

  /** Up to where the control topic was read before the client could ask where to begin. */
  final ReadTo known;

  Stage stage = Stage.UNREAD;

  /** What it needs next; null: nothing. */
  Step step;

  long due;
  int tries;
  long wait = Lifecycle.DRAIN_POLL;

  /** What is being done for it; null: nothing. */
  Effect effect;

  boolean appPaused;
  boolean appSought;

  /** Nothing of it is committed: from shortly before the ack until it is open again. */
  boolean sealed;

  /** Its gate was read since it was assigned. */
  boolean read;

  /** The next record that it would deliver, where that was the limit's or beyond. */
  long nextAt = Offsets.NONE;

  /** Up to where was read at that time: once it was held since, the group may have been reset. */
  ReadTo nextKnown = new ReadTo(0, Offsets.NONE);

  /** After the last record that was delivered below a limit, since it was opened or sought. */
  long passed = Offsets.NONE;

  long position = Offsets.NONE;
  long committed = Offsets.NONE;

  /** Whether it has been closed since it was last open. */
  boolean wasClosed;

  /** The committed offset when it was closed, kept through later holds. */
  long before = Offsets.NONE;

  /** Where it goes on; none: at its own position. */
  long target = Offsets.NONE;

  long deadline;

  /** When the ack goes without the committed offset. */
  long giveUp;

  boolean timedOut;

  /** The application's commit calls that were under way when it was sealed. */
  Set<Long> running = Collections.emptySet();

  /** The rule for new partitions has not said yet where it begins. */
  boolean unplaced;

  long judgeBy;

  /** Whether the client is told once more what it was told last, at {@link #tellAgainAt}. */
  boolean tellAgain;

  long tellAgainAt;

  /** Generation and epoch of the newest ack; generation −1: there was none. */
  long ackedGeneration = -1;

  long ackedEpoch;

  /** Whether a dropped commit was told of since it was closed. */
  boolean warned;

  /** When it was this consumer's before; null: it was not, or that is of no matter. */
  Lost lost;

  /**
   * After the last record that may still be in hand from before a rebalance, or from before a
   * closing that did not wait for it, as long as its commit may come.
   */
  long inHand = Offsets.NONE;

  /**
   * Where it goes on since, if the group may have been reset after those were handed out; 0: not
   * known yet.
   */
  long lateFrom = Offsets.NONE;

  PartitionState(long ticket, long since, ReadTo known) {
    this.ticket = ticket;
    this.since = since;
    this.known = known;
  }

  void need(Step next) {
    need(next, Long.MIN_VALUE);
  }

  void need(Step next, long at) {
    if (next != step) {
      tries = 0;
    }
    step = next;
    due = at;
  }

  void needNothing() {
    need(null);
  }
}
