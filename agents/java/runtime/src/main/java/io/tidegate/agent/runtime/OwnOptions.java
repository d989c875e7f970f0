package io.tidegate.agent.runtime;

import io.tidegate.agent.core.Start;
import io.tidegate.agent.core.StartRule;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.apache.kafka.common.config.ConfigException;

/**
 * What a consumer's own configuration says of new partitions, and the configuration that its client
 * library may see: without those options that it does not know.
 */
final class OwnOptions {
  private static final String RESET = "auto.offset.reset";

  private final Map<String, Object> rest;
  private final StartOptions options;
  private final boolean isNative;
  private final Object reset;

  private OwnOptions(
      Map<String, Object> rest, StartOptions options, boolean isNative, Object reset) {
    this.rest = rest;
    this.options = options;
    this.isNative = isNative;
    this.reset = reset;
  }

  /**
   * Divide a consumer's configuration, which is left as it is.
   *
   * @param originals as the application gives them
   * @param known which settings the client library has: {@code ConsumerConfig.configNames()}
   * @throws ConfigException where an option has a value that means nothing, as the library itself
   *     refuses others
   */
  static OwnOptions takeOut(Map<String, ?> originals, Collection<String> known) {
    Map<String, Object> rest = new HashMap<>(originals);
    StartOptions options = StartOptions.NONE;
    boolean isNative = false;
    for (String name : new String[] {StartOptions.LATEST_MAX_AGE, StartOptions.NEW_PARTITIONS}) {
      if (known.contains(name)) {
        isNative = isNative || rest.containsKey(name);
        continue;
      }
      Object value = rest.remove(name);
      if (value != null) {
        options = said(name, value).over(options);
      }
    }
    return new OwnOptions(
        Collections.unmodifiableMap(rest), options, isNative, originals.get(RESET));
  }

  private static StartOptions said(String name, Object value) {
    try {
      return name.equals(StartOptions.LATEST_MAX_AGE)
          ? StartOptions.latestMaxAge(value)
          : StartOptions.newPartitions(value);
    } catch (StartOptions.Invalid invalid) {
      throw new ConfigException(name + " " + invalid.getMessage());
    }
  }

  /** The configuration without those of the options that the client library does not know. */
  Map<String, Object> rest() {
    return rest;
  }

  /** Whether the library knows one that is given, and applies it itself. */
  boolean isNative() {
    return isNative;
  }

  /**
   * The rule for the consumer: its own word wins over the environment's.
   *
   * @param environment what {@link Settings#newPartitionsOf} says of its group
   * @return empty: new partitions are as any other, as far as the agent goes
   */
  Optional<StartRule> rule(StartOptions environment) {
    return isNative ? Optional.empty() : options.over(environment).rule(policy());
  }

  /**
   * What is worth a line in the log, once for each consumer: the rule, or that an option says
   * nothing here.
   */
  List<String> notes(String group, StartOptions environment) {
    List<String> notes = new ArrayList<>();
    OptionalLong age = options.over(environment).latestMaxAgeMs();
    boolean isAsked = !isNative && age.isPresent() && age.getAsLong() >= 0;
    if (isAsked && !policy().equals(Optional.of(Start.LATEST))) {
      notes.add(
          String.format(
              "group %s: %s says nothing here, for %s is %s",
              Quoted.plain(group),
              StartOptions.LATEST_MAX_AGE,
              RESET,
              Quoted.plain(String.valueOf(reset))));
    }
    rule(environment)
        .ifPresent(
            rule ->
                notes.add(
                    String.format(
                        "group %s: %s begin at %s, with either group protocol",
                        Quoted.plain(group),
                        rule.maxAgeMs().isPresent()
                            ? "partitions not older than " + rule.maxAgeMs().getAsLong() + " ms"
                            : "new partitions",
                        rule.start().name().toLowerCase(Locale.ROOT))));
    return notes;
  }

  private Optional<Start> policy() {
    // Unsaid it is the client's default, in every version.
    return reset == null ? Optional.of(Start.LATEST) : StartOptions.reset(reset);
  }
}
