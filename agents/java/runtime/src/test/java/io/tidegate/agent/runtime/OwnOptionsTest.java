package io.tidegate.agent.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tidegate.agent.core.StartRule;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.config.ConfigException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What consumers say of new partitions in their own configuration. */
class OwnOptionsTest {
  private static final String AGE = "auto.offset.reset.latest.max.age";
  private static final String NEW = "auto.offset.reset.new.partitions";

  private static OwnOptions of(Map<String, ?> originals) {
    return OwnOptions.takeOut(originals, ConsumerConfig.configNames());
  }

  private static StartOptions environment(String age, String start) throws Exception {
    StartOptions options = age.isEmpty() ? StartOptions.NONE : StartOptions.latestMaxAge(age);
    return start.isEmpty() ? options : StartOptions.newPartitions(start).over(options);
  }

  private static String shown(Optional<StartRule> rule) {
    return rule.map(
            found ->
                found.start()
                    + (found.maxAgeMs().isPresent() ? " " + found.maxAgeMs().getAsLong() : ""))
        .orElse("");
  }

  @Test
  void whatIsOursIsTakenOutAndTheRestStays() {
    Object bean = new Object();
    Map<String, Object> originals =
        new HashMap<>(Map.of("group.id", "g", AGE, "60000", NEW, "earliest", "their.bean", bean));
    Map<String, Object> before = Map.copyOf(originals);

    OwnOptions own = of(originals);

    assertEquals(Map.of("group.id", "g", "their.bean", bean), own.rest());
    assertEquals(before, originals, "the application's own is left as it is");
  }

  @Test
  void whatTheClientKnowsItselfIsPassedThroughAndTheAgentStaysOut() throws Exception {
    OwnOptions own = OwnOptions.takeOut(Map.of(AGE, "60000", NEW, "by_duration:PT1H"), Set.of(NEW));

    assertTrue(own.isNative());
    assertEquals(Map.of(NEW, "by_duration:PT1H"), own.rest());
    assertEquals(Optional.empty(), own.rule(environment("60000", "")));
    assertEquals(List.of(), own.notes("g", environment("60000", "")));
  }

  @ParameterizedTest
  @CsvSource({
    "'', '', '', '', latest, ''",
    "'', '', 60000, '', latest, EARLIEST 60000",
    "5000, '', 60000, '', latest, EARLIEST 5000",
    "-1, '', 60000, '', latest, ''",
    "5000, '', '', earliest, latest, EARLIEST 5000",
    "'', latest, 60000, earliest, latest, ''",
    "'', earliest, '', '', latest, EARLIEST",
    "'', latest, '', '', earliest, LATEST",
    "'', earliest, '', '', earliest, ''",
    "'', earliest, '', '', none, EARLIEST",
    "'', latest, '', '', by_duration:PT1H, LATEST",
    "5000, latest, '', '', earliest, LATEST",
    "5000, '', '', '', earliest, ''",
    "5000, '', '', '', none, ''",
    "0, '', '', '', '', EARLIEST 0",
    "5000, '', '', '', ' LATEST ', EARLIEST 5000",
  })
  void aConsumersOwnWordWinsOverTheEnvironments(
      String age,
      String start,
      String environmentAge,
      String environmentStart,
      String reset,
      String rule)
      throws Exception {
    Map<String, Object> originals = new HashMap<>();
    originals.put(AGE, age.isEmpty() ? null : age);
    originals.put(NEW, start.isEmpty() ? null : start);
    if (!reset.isEmpty()) {
      originals.put("auto.offset.reset", reset);
    }

    assertEquals(rule, shown(of(originals).rule(environment(environmentAge, environmentStart))));
  }

  @ParameterizedTest
  @CsvSource({"earliest, true", "none, true", "latest, false"})
  void aThresholdUnderAnotherPolicyIsSaidToDoNothing(String reset, boolean isSaid) {
    List<String> notes =
        of(Map.of(AGE, 60_000L, "auto.offset.reset", reset)).notes("g\n", StartOptions.NONE);

    assertEquals(1, notes.size());
    assertEquals(
        isSaid, notes.get(0).endsWith("says nothing here, for auto.offset.reset is " + reset));
    assertEquals(
        !isSaid, notes.get(0).contains("partitions not older than 60000 ms begin at earliest"));
    assertTrue(notes.get(0).startsWith("group g : "), notes.get(0));
  }

  @Test
  void aThresholdThatIsOffIsNotWorthAWord() {
    assertEquals(
        List.of(),
        of(Map.of(AGE, -1, "auto.offset.reset", "earliest")).notes("g", StartOptions.NONE));
  }

  @ParameterizedTest
  @CsvSource({
    AGE + ", -2",
    AGE + ", soon",
    AGE + ", 1e3",
    NEW + ", none",
    NEW + ", by_duration:P1D"
  })
  void aValueThatMeansNothingIsRefusedWithItsName(String name, String value) {
    ConfigException refused = assertThrows(ConfigException.class, () -> of(Map.of(name, value)));

    assertTrue(refused.getMessage().startsWith(name + " must be "), refused.getMessage());
    assertTrue(refused.getMessage().contains("'" + value + "'"), refused.getMessage());
  }

  @Test
  void aThresholdIsAWholeNumberOfWhateverKind() {
    for (Object value : new Object[] {5, 5L, (short) 5, "5", " 5 "}) {
      assertEquals("EARLIEST 5", shown(of(Map.of(AGE, value)).rule(StartOptions.NONE)));
    }
    for (Object value : new Object[] {true, 5.0, new Object()}) {
      assertThrows(ConfigException.class, () -> of(Map.of(AGE, value)));
    }
  }
}
