package io.tidegate.agent.core;

/** Where to begin: at the first record there is, or after the last one. */
public enum Start {
  EARLIEST,
  LATEST
}
