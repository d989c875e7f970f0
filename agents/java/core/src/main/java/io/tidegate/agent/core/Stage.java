package io.tidegate.agent.core;

/** Where a partition is on its way from its assignment on. */
public enum Stage {
  /** Its gate was not read since it was assigned: it delivers nothing. */
  UNREAD,
  /** It delivers. */
  OPEN,
  /** Its gate has closed: it delivers nothing more, and what was handed out is waited for. */
  DRAINING,
  /** It delivers nothing, nothing of it is committed, and that is acked or about to be. */
  CLOSED,
  /** Its gate has opened: it delivers again as soon as the client has been told where. */
  OPENING
}
