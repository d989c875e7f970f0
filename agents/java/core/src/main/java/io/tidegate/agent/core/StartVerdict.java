package io.tidegate.agent.core;

import java.util.Optional;

/** What a {@link StartRule} says of a partition, or until when to wait for what would decide. */
public final class StartVerdict {
  private final boolean waits;
  private final long until;
  private final Start start;
  private final String why;
  private final boolean known;

  private StartVerdict(boolean waits, long until, Start start, String why, boolean known) {
    this.waits = waits;
    this.until = until;
    this.start = start;
    this.why = why;
    this.known = known;
  }

  static StartVerdict waitUntil(long until) {
    return new StartVerdict(true, until, null, "", false);
  }

  static StartVerdict beginAt(Start start, String why) {
    return new StartVerdict(false, 0, start, why, true);
  }

  static StartVerdict asTheClient(String why, boolean isKnown) {
    return new StartVerdict(false, 0, null, why, isKnown);
  }

  /** Whether a record that decides may still arrive. */
  public boolean waits() {
    return waits;
  }

  /** Until when to wait (nanoseconds); of no meaning unless {@link #waits()}. */
  public long until() {
    return until;
  }

  /** Where it begins; empty: where the client itself begins. */
  public Optional<Start> start() {
    return Optional.ofNullable(start);
  }

  /** Why, for people. */
  public String why() {
    return why;
  }

  /** Whether it is known if the partition is new. */
  public boolean isKnown() {
    return known;
  }
}
