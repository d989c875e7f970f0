package io.tidegate.agent.core;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The records of the contract, which bind the operator and the other agent as well. */
class ContractVectorsTest {
  private static final JsonNode VECTORS = Contract.vectors();

  @Test
  void everySectionIsReplayedHere() {
    Contract.requireOnly(VECTORS, Set.of("readable", "unreadable", "operators"));
  }

  @TestFactory
  Stream<DynamicTest> aRecordOfTheContractIsReadAsWhatItSays() {
    return each(
        "readable",
        vector -> {
          DecodedRecord record = decode(vector);
          assertEquals(
              Contract.canonical(vector.get("record")), Contract.canonical(asVector(record)));
        });
  }

  @TestFactory
  Stream<DynamicTest> aKeyIsWrittenAsTheContractHasIt() {
    return each(
        "readable",
        vector ->
            assertArrayEquals(
                Contract.bytes(vector.get("key")), RecordCodec.encodeKey(decode(vector).key())));
  }

  @TestFactory
  Stream<DynamicTest> anAckIsReadAgainAsItWasWritten() {
    return each(
        "readable",
        vector -> {
          DecodedRecord record = decode(vector);
          if (record.value().orElse(null) instanceof Ack ack) {
            byte[] key = RecordCodec.encodeKey(record.key());
            assertEquals(
                ack, RecordCodec.decode(key, RecordCodec.encodeAck(ack)).value().orElseThrow());
          }
        });
  }

  @TestFactory
  Stream<DynamicTest> whatCannotBeReadIsToldFromIt() {
    return each(
        "unreadable", vector -> assertThrows(Unreadable.class, () -> decode(vector), "was read"));
  }

  @TestFactory
  Stream<DynamicTest> operatorsRecordsAreSkipped() {
    return each(
        "operators", vector -> assertThrows(Unreadable.class, () -> decode(vector), "was read"));
  }

  private interface Check {
    void accept(JsonNode vector) throws Unreadable;
  }

  private static Stream<DynamicTest> each(String section, Check check) {
    return StreamSupport.stream(VECTORS.get(section).spliterator(), false)
        .map(
            vector ->
                DynamicTest.dynamicTest(vector.get("name").asText(), () -> check.accept(vector)));
  }

  private static DecodedRecord decode(JsonNode vector) throws Unreadable {
    return RecordCodec.decode(
        Contract.bytes(vector.get("key")), Contract.bytes(vector.get("value")));
  }

  private static Map<String, Object> asVector(DecodedRecord record) {
    Map<String, Object> said = new TreeMap<>();
    RecordKey key = record.key();
    if (key instanceof HolderKey held) {
      said.put("kind", held instanceof HoldKey ? "hold" : "limit");
      said.put("holder", held.holder());
      put(said, held.gate());
    } else if (key instanceof AckKey acked) {
      said.put("kind", "ack");
      put(said, acked.gate());
    } else if (key instanceof PartitionKey seen) {
      said.put("kind", "partition");
      said.put("topic_id", seen.topicId());
      put(said, seen.partition());
    } else {
      said.put("kind", "clock");
    }
    if (record.value().isEmpty()) {
      said.put("released", true);
    } else {
      put(said, record.value().get());
    }
    return said;
  }

  private static void put(Map<String, Object> said, RecordValue value) {
    if (value instanceof Hold hold) {
      said.put("reason", hold.reason());
      said.put("drain_timeout_ms", hold.drainTimeoutMs());
    } else if (value instanceof Limit limit) {
      said.put("offset", limit.offset());
      said.put("reason", limit.reason());
      said.put("drain_timeout_ms", limit.drainTimeoutMs());
    } else if (value instanceof PartitionSeen seen) {
      said.put("initial", seen.isInitial());
      said.put("seen_ms", orNull(seen.seenMs()));
      said.put("seen_absent_ms", orNull(seen.seenAbsentMs()));
    } else if (value instanceof Ack ack) {
      said.put("epoch", ack.epoch());
      said.put("offset", ack.offset());
      said.put("member", ack.member());
    }
  }

  private static void put(Map<String, Object> said, GateId gate) {
    said.put("group", gate.group());
    put(said, gate.partition());
  }

  private static void put(Map<String, Object> said, Partition partition) {
    said.put("topic", partition.topic());
    said.put("partition", partition.number());
  }

  private static Object orNull(OptionalLong number) {
    return number.isPresent() ? number.getAsLong() : null;
  }
}
