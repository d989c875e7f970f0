package io.tidegate.agent.runtime;

import io.tidegate.agent.core.Start;
import io.tidegate.agent.core.StartRule;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * What is said about where new partitions begin (KIP-1327), by the draft's option and by the one
 * that Kafka accepted. Either may be unsaid.
 */
final class StartOptions {
  /** In milliseconds; −1 is off. Counts only where {@code auto.offset.reset} is {@code latest}. */
  static final String LATEST_MAX_AGE = "auto.offset.reset.latest.max.age";

  /** {@code earliest} or {@code latest}. */
  static final String NEW_PARTITIONS = "auto.offset.reset.new.partitions";

  /** Nothing is said. */
  static final StartOptions NONE = new StartOptions(OptionalLong.empty(), null);

  /** A value that means nothing; the message goes on after the option's name. */
  static final class Invalid extends Exception {
    private static final long serialVersionUID = 1L;

    private Invalid(String message) {
      super(message);
    }
  }

  private final OptionalLong latestMaxAgeMs;
  private final Start newPartitions;

  private StartOptions(OptionalLong latestMaxAgeMs, Start newPartitions) {
    this.latestMaxAgeMs = latestMaxAgeMs;
    this.newPartitions = newPartitions;
  }

  /** Only {@link #LATEST_MAX_AGE}, with this value. */
  static StartOptions latestMaxAge(Object value) throws Invalid {
    long age = -2;
    if (value instanceof String) {
      try {
        age = Long.parseLong(((String) value).trim());
      } catch (NumberFormatException none) {
        // It is refused below, as a number below −1 is.
      }
    } else if (value instanceof Long || value instanceof Integer || value instanceof Short) {
      age = ((Number) value).longValue();
    }
    if (age < -1) {
      throw new Invalid(
          "must be a whole number of milliseconds, or -1 for off, not " + Quoted.of(value));
    }
    return new StartOptions(OptionalLong.of(age), null);
  }

  /** Only {@link #NEW_PARTITIONS}, with this value; what Kafka knows beside the two is refused. */
  static StartOptions newPartitions(Object value) throws Invalid {
    Start start =
        reset(value)
            .orElseThrow(() -> new Invalid("must be earliest or latest, not " + Quoted.of(value)));
    return new StartOptions(OptionalLong.empty(), start);
  }

  /**
   * What an {@code auto.offset.reset} says; empty: neither, it fails or does something of its own.
   */
  static Optional<Start> reset(Object value) {
    switch (String.valueOf(value).trim().toLowerCase(Locale.ROOT)) {
      case "earliest":
        return Optional.of(Start.EARLIEST);
      case "latest":
        return Optional.of(Start.LATEST);
      default:
        return Optional.empty();
    }
  }

  /** The draft's threshold; empty: unsaid. */
  OptionalLong latestMaxAgeMs() {
    return latestMaxAgeMs;
  }

  /** Where new partitions begin by the other option; empty: unsaid. */
  Optional<Start> newPartitions() {
    return Optional.ofNullable(newPartitions);
  }

  /** This, and where it says nothing, the other. */
  StartOptions over(StartOptions other) {
    return new StartOptions(
        latestMaxAgeMs.isPresent() ? latestMaxAgeMs : other.latestMaxAgeMs,
        newPartitions == null ? other.newPartitions : newPartitions);
  }

  /**
   * The rule for a consumer.
   *
   * @param reset of its {@code auto.offset.reset}
   * @return empty: new partitions are as any other
   */
  Optional<StartRule> rule(Optional<Start> reset) {
    boolean hasAge =
        latestMaxAgeMs.isPresent()
            && latestMaxAgeMs.getAsLong() >= 0
            && reset.equals(Optional.of(Start.LATEST));
    OptionalLong maxAgeMs = hasAge ? latestMaxAgeMs : OptionalLong.empty();
    if (newPartitions == null) {
      return hasAge ? Optional.of(new StartRule(Start.EARLIEST, maxAgeMs)) : Optional.empty();
    }
    return reset.equals(Optional.of(newPartitions))
        ? Optional.empty()
        : Optional.of(new StartRule(newPartitions, maxAgeMs));
  }
}
