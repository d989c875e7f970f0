package io.tidegate.agent.core;

/**
 * A record that is not of the contract, or of a kind that agents skip: to be counted and skipped.
 */
public final class Unreadable extends Exception {
  private static final long serialVersionUID = 1L;

  /** Without a stack trace: whoever writes such records decides how many there are. */
  Unreadable(String message) {
    super(message, null, false, false);
  }
}
