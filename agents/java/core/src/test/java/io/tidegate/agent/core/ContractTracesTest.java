package io.tidegate.agent.core;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Set;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The traces of the contract, which say how any agent behaves, replayed against this one. */
class ContractTracesTest {
  private static final JsonNode TRACES = Contract.traces();

  @Test
  void thereAreTracesAndNothingElse() {
    Contract.requireOnly(TRACES, Set.of("traces"));
    assertTrue(TRACES.get("traces").size() > 15);
  }

  @TestFactory
  Stream<DynamicTest> theAgentDoesWhatTheTraceSays() {
    return StreamSupport.stream(TRACES.get("traces").spliterator(), false)
        .map(
            trace ->
                DynamicTest.dynamicTest(
                    trace.get("name").asText(), () -> new TraceReplay(trace).run()));
  }
}
