package io.tidegate.agent.core;

/** What a partition needs next; of several partitions' needs the first one here is done first. */
enum Step {
  PAUSE,
  SEEK,
  BEGIN,
  RESUME,
  POSITION,
  COMMIT,
  /** Committed offset: has what was delivered been committed? */
  DRAINED,
  /** Position once more, now that no commit passes. */
  RECHECK,
  FORGET,
  /** Committed offset after the last commit that passed. */
  BARRIER,
  /** Committed offset to go on from. */
  TARGET,
  /** Committed offset: is there one to begin at? */
  PLACE,
  ACK,
  /** No effect: what would decide where to begin may still come. */
  JUDGE,
  /** Position: has it come to its limit? */
  LOOK
}
