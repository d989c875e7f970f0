package io.tidegate.agent.core;

import java.util.Objects;
import java.util.OptionalLong;

/** New partitions without a committed offset begin somewhere else than the client begins. */
public final class StartRule {
  private final Start start;
  private final OptionalLong maxAgeMs;

  /**
   * @param start where new partitions begin
   * @param maxAgeMs how old a new partition may be, in milliseconds; empty: new are all that came
   *     after the first discovery
   */
  public StartRule(Start start, OptionalLong maxAgeMs) {
    this.start = Objects.requireNonNull(start);
    this.maxAgeMs = Objects.requireNonNull(maxAgeMs);
  }

  /** Where new partitions begin. */
  public Start start() {
    return start;
  }

  /** How old a new partition may be, in milliseconds; empty: any that came after the first look. */
  public OptionalLong maxAgeMs() {
    return maxAgeMs;
  }
}
