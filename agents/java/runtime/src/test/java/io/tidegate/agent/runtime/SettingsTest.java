package io.tidegate.agent.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tidegate.agent.core.Start;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What the environment and the system properties say. */
class SettingsTest {
  private final ByteArrayOutputStream written = new ByteArrayOutputStream();
  private final AgentLog log =
      AgentLog.to(new PrintStream(written, true, StandardCharsets.UTF_8), AgentLog.Level.DEBUG);

  private static Environment environment(Map<String, String> variables) {
    return new Environment(variables::get, name -> null);
  }

  private static Settings read(Map<String, String> variables) throws SettingsException {
    return Settings.read(environment(variables));
  }

  private String said() {
    return written.toString(StandardCharsets.UTF_8);
  }

  @Test
  void withoutAWordTheAgentIsOffAndEverythingHasItsDefault() throws SettingsException {
    Settings settings = read(Map.of());

    assertFalse(Settings.isOn(environment(Map.of())));
    assertFalse(Settings.isStrict(environment(Map.of())));
    assertEquals("__tidegate", settings.controlTopic());
    assertEquals("__tidegate_acks", settings.ackTopic());
    assertEquals(OptionalLong.empty(), settings.openUnreadAfter());
    assertEquals(Optional.empty(), settings.logLevel());
    assertEquals(Optional.empty(), settings.newPartitionsOf("payments").newPartitions());
    assertEquals(OptionalLong.empty(), settings.newPartitionsOf("payments").latestMaxAgeMs());
    assertEquals(List.of(), settings.complaints());
  }

  @Test
  void whatIsSaidIsTaken() throws SettingsException {
    Map<String, String> variables =
        Map.of(
            "TIDEGATE_AGENT", " Yes ",
            "TIDEGATE_CONTROL_TOPIC", " ops.gates",
            "TIDEGATE_ON_UNREACHABLE", "Open",
            "TIDEGATE_UNREACHABLE_AFTER_S", "2.5",
            "TIDEGATE_LOG", "info",
            "TIDEGATE_LATEST_MAX_AGE", " 3600000 ",
            "TIDEGATE_NEW_PARTITIONS", "Earliest");
    Settings settings = read(variables);

    assertTrue(Settings.isOn(environment(variables)));
    assertEquals("ops.gates", settings.controlTopic());
    assertEquals("ops.gates_acks", settings.ackTopic());
    assertEquals(OptionalLong.of(2_500_000_000L), settings.openUnreadAfter());
    assertEquals(Optional.of(AgentLog.Level.INFO), settings.logLevel());
    assertEquals(OptionalLong.of(3_600_000), settings.newPartitionsOf("payments").latestMaxAgeMs());
    assertEquals(Optional.of(Start.EARLIEST), settings.newPartitionsOf("payments").newPartitions());
    assertEquals("ops.acks", read(Map.of("TIDEGATE_ACK_TOPIC", " ops.acks ")).ackTopic());
  }

  @Test
  void aSystemPropertyWinsAndIsNamedInItsMistakes() throws SettingsException {
    Map<String, String> properties =
        Map.of("tidegate.control.topic", "theirs", "tidegate.log", "loud");
    Environment both =
        new Environment(Map.of("TIDEGATE_CONTROL_TOPIC", "ours")::get, properties::get);

    assertEquals(Optional.of("theirs"), both.get("TIDEGATE_CONTROL_TOPIC"));
    SettingsException wrong = assertThrows(SettingsException.class, () -> Settings.read(both));
    assertEquals(
        "tidegate.log must be one of DEBUG, INFO, WARNING, ERROR, not 'LOUD'", wrong.getMessage());
  }

  @ParameterizedTest
  @CsvSource({
    "TIDEGATE_ON_UNREACHABLE, maybe, 'must be wait or open, not ''maybe'''",
    "TIDEGATE_UNREACHABLE_AFTER_S, soon, 'must be a number of seconds from 0, not ''soon'''",
    "TIDEGATE_UNREACHABLE_AFTER_S, -1, 'must be a number of seconds from 0, not ''-1'''",
    "TIDEGATE_UNREACHABLE_AFTER_S, NaN, 'must be a number of seconds from 0, not ''NaN'''",
    "TIDEGATE_LOG, loud, 'must be one of DEBUG, INFO, WARNING, ERROR, not ''LOUD'''",
    "TIDEGATE_STRICT, perhaps, 'must be true or false, not ''perhaps'''",
  })
  void aValueThatMeansNothingIsRefusedByItsName(String name, String value, String message) {
    SettingsException wrong =
        assertThrows(SettingsException.class, () -> read(Map.of(name, value)));

    assertEquals(name + " " + message, wrong.getMessage());
  }

  @ParameterizedTest
  @CsvSource({
    "TIDEGATE_LATEST_MAX_AGE, -2",
    "TIDEGATE_LATEST_MAX_AGE, 1h",
    "TIDEGATE_LATEST_MAX_AGE, 1.5",
    "TIDEGATE_LATEST_MAX_AGE, 9223372036854775808",
    "TIDEGATE_NEW_PARTITIONS, newest",
    "TIDEGATE_NEW_PARTITIONS, by_duration:PT1H",
  })
  void aMistakeAboutNewPartitionsIsSaidAndChangesNothingElse(String name, String value)
      throws SettingsException {
    Map<String, String> variables = Map.of(name, value, "TIDEGATE_CONTROL_TOPIC", "ops.gates");
    Settings settings = read(variables);

    assertEquals("ops.gates", settings.controlTopic());
    assertEquals(Optional.empty(), settings.newPartitionsOf("payments").newPartitions());
    assertEquals(OptionalLong.empty(), settings.newPartitionsOf("payments").latestMaxAgeMs());
    assertEquals(1, settings.complaints().size());
    String complaint = settings.complaints().get(0);
    assertTrue(complaint.startsWith(name + " must be "), complaint);
    assertTrue(complaint.contains("'" + value + "'"), complaint);
    assertTrue(complaint.endsWith(": it counts as absent"), complaint);
  }

  @ParameterizedTest
  @CsvSource({"TIDEGATE_LATEST_MAX_AGE, -1", "TIDEGATE_NEW_PARTITIONS, none"})
  void whatTurnsTheRuleOffIsNoMistake(String name, String value) throws SettingsException {
    assertEquals(List.of(), read(Map.of(name, value)).complaints());
  }

  @Test
  void whatIsSaidForOneGroupIsForNoOther() throws SettingsException {
    Settings settings = read(Map.of("TIDEGATE_GROUP", "payments", "TIDEGATE_LATEST_MAX_AGE", "5"));

    assertEquals(OptionalLong.of(5), settings.newPartitionsOf("payments").latestMaxAgeMs());
    assertEquals(OptionalLong.empty(), settings.newPartitionsOf("refunds").latestMaxAgeMs());
  }

  @ParameterizedTest
  @ValueSource(strings = {"TIDEGATE_AGENT", "TIDEGATE_LOG", "TIDEGATE_STRICT"})
  void aProcessWithAMistakeStartsWithoutTheAgentAndIsToldSo(String name) throws SettingsException {
    Environment wrong =
        environment(
            name.equals("TIDEGATE_AGENT")
                ? Map.of(name, "perhaps")
                : Map.of("TIDEGATE_AGENT", "1", name, "perhaps"));

    assertFalse(Startup.isWanted(wrong, log));
    assertTrue(said().contains("ERROR tidegate_agent: the agent stays out: " + name), said());
    assertEquals(1, said().lines().count());
  }

  @ParameterizedTest
  @CsvSource({"TIDEGATE_AGENT, perhaps", "TIDEGATE_LOG, loud", "TIDEGATE_LATEST_MAX_AGE, 1h"})
  void aStrictProcessWithAMistakeDoesNotStart(String name, String value) {
    Environment wrong =
        environment(
            name.equals("TIDEGATE_AGENT")
                ? Map.of("TIDEGATE_STRICT", "true", name, value)
                : Map.of("TIDEGATE_STRICT", "true", "TIDEGATE_AGENT", "1", name, value));

    SettingsException refused =
        assertThrows(SettingsException.class, () -> Startup.isWanted(wrong, log));

    String start = "Tidegate refuses to start this process, for TIDEGATE_STRICT is on: ";
    assertTrue(refused.getMessage().startsWith(start + name + " must be "), refused.getMessage());
  }

  @Test
  void aStrictProcessWithoutAMistakeOrWithoutTheAgentStarts() throws SettingsException {
    assertTrue(
        Startup.isWanted(environment(Map.of("TIDEGATE_STRICT", "1", "TIDEGATE_AGENT", "1")), log));
    assertFalse(
        Startup.isWanted(environment(Map.of("TIDEGATE_STRICT", "1", "TIDEGATE_LOG", "loud")), log));
    assertEquals("", said());
  }

  @Test
  void aProcessWithAMistakeAboutNewPartitionsHasTheAgent() throws SettingsException {
    Environment wrong =
        environment(Map.of("TIDEGATE_AGENT", "1", "TIDEGATE_NEW_PARTITIONS", "newest\nERROR x"));

    assertTrue(Startup.isWanted(wrong, log));
    assertEquals(1, said().lines().count(), "nobody forges a line");
  }
}
