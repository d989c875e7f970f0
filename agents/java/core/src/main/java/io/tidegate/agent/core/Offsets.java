package io.tidegate.agent.core;

/** How offsets are written where there may be none. */
public final class Offsets {
  /**
   * In the place of an offset: there is none, or it is not known. The contract's acks say it so.
   */
  public static final long NONE = -1;

  private Offsets() {}
}
