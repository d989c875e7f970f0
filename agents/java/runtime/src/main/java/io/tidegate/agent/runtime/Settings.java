package io.tidegate.agent.runtime;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * How the agent behaves in this process: what the environment says, as {@code
 * docs/reference/agent.md} has it.
 */
public final class Settings {
  /** {@code 1}: consumers of this process are managed. Off by default. */
  static final String AGENT = "TIDEGATE_AGENT";

  static final String CONTROL_TOPIC = "TIDEGATE_CONTROL_TOPIC";
  static final String ACK_TOPIC = "TIDEGATE_ACK_TOPIC";
  static final String ON_UNREACHABLE = "TIDEGATE_ON_UNREACHABLE";
  static final String UNREACHABLE_AFTER = "TIDEGATE_UNREACHABLE_AFTER_S";
  static final String LATEST_MAX_AGE = "TIDEGATE_LATEST_MAX_AGE";
  static final String NEW_PARTITIONS = "TIDEGATE_NEW_PARTITIONS";
  static final String GROUP = "TIDEGATE_GROUP";
  static final String LOG = "TIDEGATE_LOG";

  /** {@code true}: a process with a setting that means nothing does not start. Off by default. */
  static final String STRICT = "TIDEGATE_STRICT";

  private static final List<String> ON = Arrays.asList("1", "true", "on", "yes");
  private static final List<String> OFF = Arrays.asList("0", "false", "off", "no");
  private static final double MOST_SECONDS = 1e9;
  private static final double NANOS_PER_S = 1e9;

  private final String controlTopic;
  private final String ackTopic;
  private final OptionalLong openUnreadAfter;
  private final StartOptions newPartitions;
  private final String group;
  private final AgentLog.Level logLevel;
  private final List<String> complaints;

  private Settings(Environment environment) throws SettingsException {
    String strict = environment.get(STRICT).orElse("false").toLowerCase(Locale.ROOT);
    if (!ON.contains(strict) && !OFF.contains(strict)) {
      throw wrong(environment, STRICT, "must be true or false", strict);
    }
    controlTopic = environment.get(CONTROL_TOPIC).orElse("__tidegate");
    ackTopic = environment.get(ACK_TOPIC).orElse(controlTopic + "_acks");
    long after = nanos(environment, UNREACHABLE_AFTER, 30);
    openUnreadAfter = opens(environment) ? OptionalLong.of(after) : OptionalLong.empty();
    group = environment.exactly(GROUP).orElse(null);
    logLevel = level(environment);
    List<String> wrong = new ArrayList<>();
    newPartitions = newPartitions(environment, wrong);
    if (isStrict(environment) && !wrong.isEmpty()) {
      throw new SettingsException(String.join("; ", wrong));
    }
    wrong.replaceAll(complaint -> complaint + ": it counts as absent");
    complaints = Collections.unmodifiableList(wrong);
  }

  /**
   * Whether the agent is to run in this process.
   *
   * @throws SettingsException where it is neither on nor off
   */
  static boolean isOn(Environment environment) throws SettingsException {
    String value = environment.get(AGENT).orElse("0").toLowerCase(Locale.ROOT);
    if (!ON.contains(value) && !OFF.contains(value)) {
      throw wrong(environment, AGENT, "must be 1 or 0", value);
    }
    return ON.contains(value);
  }

  /**
   * Whether a process with a setting that means nothing is not to start. A value that means nothing
   * itself does not say so.
   */
  static boolean isStrict(Environment environment) {
    return ON.contains(environment.get(STRICT).orElse("").toLowerCase(Locale.ROOT));
  }

  /**
   * The settings; what is absent or empty has its default.
   *
   * @throws SettingsException where one means nothing. Of new partitions only where {@link
   *     #isStrict}, and a {@link #complaints() complaint} otherwise: such a mistake must not open
   *     gates
   */
  static Settings read(Environment environment) throws SettingsException {
    return new Settings(environment);
  }

  /** The control topic's name. */
  String controlTopic() {
    return controlTopic;
  }

  /** Where acks are written. */
  String ackTopic() {
    return ackTopic;
  }

  /**
   * After how long (nanoseconds) partitions are delivered whose gate cannot be read; empty: they
   * wait.
   */
  OptionalLong openUnreadAfter() {
    return openUnreadAfter;
  }

  /** What the environment says about new partitions of this group. */
  StartOptions newPartitionsOf(String ofGroup) {
    return group == null || group.equals(ofGroup) ? newPartitions : StartOptions.NONE;
  }

  /**
   * What the agent's own log on standard error has; empty: it logs where the application's clients
   * do.
   */
  Optional<AgentLog.Level> logLevel() {
    return Optional.ofNullable(logLevel);
  }

  /** Of settings that mean nothing and count as absent, for people: to be logged once. */
  List<String> complaints() {
    return complaints;
  }

  private static boolean opens(Environment environment) throws SettingsException {
    String value = environment.get(ON_UNREACHABLE).orElse("wait").toLowerCase(Locale.ROOT);
    if (!value.equals("wait") && !value.equals("open")) {
      throw wrong(environment, ON_UNREACHABLE, "must be wait or open", value);
    }
    return value.equals("open");
  }

  private static AgentLog.Level level(Environment environment) throws SettingsException {
    Optional<String> value = environment.get(LOG).map(said -> said.toUpperCase(Locale.ROOT));
    if (!value.isPresent()) {
      return null;
    }
    for (AgentLog.Level level : AgentLog.Level.values()) {
      if (level.name().equals(value.get())) {
        return level;
      }
    }
    throw wrong(environment, LOG, "must be one of DEBUG, INFO, WARNING, ERROR", value.get());
  }

  private static long nanos(Environment environment, String name, double defaultSeconds)
      throws SettingsException {
    String value = environment.get(name).orElse(null);
    if (value == null) {
      return (long) (defaultSeconds * NANOS_PER_S);
    }
    double seconds = -1;
    try {
      seconds = Double.parseDouble(value);
    } catch (NumberFormatException none) {
      // It is refused below, as a number that is none of seconds is.
    }
    if (!(seconds >= 0 && seconds < MOST_SECONDS)) {
      throw wrong(environment, name, "must be a number of seconds from 0", value);
    }
    return (long) (seconds * NANOS_PER_S);
  }

  private static StartOptions newPartitions(Environment environment, List<String> complaints) {
    StartOptions options = StartOptions.NONE;
    Optional<String> age = environment.get(LATEST_MAX_AGE);
    Optional<String> start = environment.get(NEW_PARTITIONS);
    try {
      if (age.isPresent()) {
        options = StartOptions.latestMaxAge(age.get());
      }
    } catch (StartOptions.Invalid invalid) {
      complaints.add(environment.spelled(LATEST_MAX_AGE) + " " + invalid.getMessage());
    }
    try {
      if (start.isPresent() && !start.get().equalsIgnoreCase("none")) {
        options = StartOptions.newPartitions(start.get()).over(options);
      }
    } catch (StartOptions.Invalid invalid) {
      complaints.add(
          environment.spelled(NEW_PARTITIONS) + " " + invalid.getMessage() + ", or none");
    }
    return options;
  }

  private static SettingsException wrong(
      Environment environment, String name, String allowed, String value) {
    return new SettingsException(
        environment.spelled(name) + " " + allowed + ", not " + Quoted.of(value));
  }
}
