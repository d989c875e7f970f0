package io.tidegate.agent.core;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;

/** The group's members by name, on one control topic and with one set of committed offsets. */
final class TraceReplay {
  private static final String GROUP = "payments";
  private static final double NANOS = 1e9;
  private static final Map<Stage, String> GATES =
      Map.of(
          Stage.UNREAD, "unread",
          Stage.OPEN, "open",
          Stage.DRAINING, "closing",
          Stage.CLOSED, "closed",
          Stage.OPENING, "opening");

  private final JsonNode trace;
  private final Map<Partition, Long> committed;
  private final Map<String, SimulatedMember> members = new LinkedHashMap<>();
  private final Set<SimulatedMember> answered = new HashSet<>();
  private final Set<Partition> unstable = new HashSet<>();
  private final ControlReading reading = new ControlReading();
  private int controlTopics = 1;
  private long end;
  private boolean isAtEnd;
  private long now;

  TraceReplay(JsonNode trace) {
    Contract.requireOnly(
        trace,
        Set.of(
            "name",
            "committed",
            "log_end",
            "begins",
            "rule",
            "topic_ids",
            "open_unread_after_s",
            "client_commits",
            "client_stores",
            "steps"));
    this.trace = trace;
    this.committed = offsets(trace.get("committed"));
    reading.begin("control-1");
    reading.readTo(0, now);
  }

  void run() {
    trace.get("steps").forEach(this::step);
  }

  private void step(JsonNode step) {
    Contract.requireOnly(
        step,
        Set.of(
            "do",
            "member",
            "records",
            "end",
            "partitions",
            "partition",
            "offsets",
            "seconds",
            "arrive",
            "is_committed",
            "expect"));
    SimulatedMember member = member(step.path("member").asText("a"));
    int delivered = member.client.delivered.size();
    int acks = member.acks.size();
    List<String> dropped = carryOut(step, member);
    members.values().forEach(each -> each.run(now));
    Map<String, Object> found = new HashMap<>();
    found.put("gates", gates(member));
    found.put(
        "delivered",
        member.client.delivered.subList(delivered, member.client.delivered.size()).stream()
            .map(record -> List.of(record.partition().toString(), record.offset()))
            .toList());
    found.put(
        "acks",
        member.acks.subList(acks, member.acks.size()).stream()
            .map(ack -> List.of(ack.partition().toString(), ack.epoch(), ack.offset()))
            .toList());
    found.put("next", named(member.client.next));
    found.put("dropped", dropped);
    found.put("committed", named(committed));
    JsonNode expected = step.path("expect");
    Contract.requireOnly(expected, found.keySet());
    expected
        .properties()
        .forEach(
            entry ->
                assertEquals(
                    Contract.canonical(entry.getValue()),
                    Contract.canonical(found.get(entry.getKey())),
                    () -> trace.get("name") + ": " + entry.getKey() + " after " + step));
  }

  private List<String> carryOut(JsonNode step, SimulatedMember member) {
    switch (step.get("do").asText()) {
      case "control" -> take(step.get("records"));
      case "read_again" -> readFromStart(step);
      case "replaced" -> {
        controlTopics++;
        readFromStart(step);
      }
      case "read_to_end" -> {
        isAtEnd = true;
        answered.add(member);
        reading.identify(topicIds());
        tell();
      }
      case "assign" -> member.assign(partitions(step));
      case "revoke" -> member.revoke(partitions(step));
      case "fetch" -> {
        List<Long> offsets = new ArrayList<>();
        step.get("offsets").forEach(offset -> offsets.add(offset.asLong()));
        member.poll(partition(step.get("partition").asText()), offsets);
      }
      case "take_off" ->
          step.get("offsets")
              .forEach(
                  offset ->
                      member.takeOff(partition(step.get("partition").asText()), offset.asLong()));
      case "hand_over" -> member.handOver(partition(step.get("partition").asText()));
      case "pause" -> member.appPause(partitions(step));
      case "resume" -> member.appResume(partitions(step));
      case "seek" -> member.appSeek(offsets(step.get("offsets")));
      case "reset" -> committed.putAll(offsets(step.get("offsets")));
      case "advance" -> advance(now + (long) (step.get("seconds").asDouble() * NANOS));
      default -> {
        return commit(step, member);
      }
    }
    return List.of();
  }

  /** What reaches the brokers of the group's offsets, now or later; the partitions of the rest. */
  private List<String> commit(JsonNode step, SimulatedMember member) {
    Map<Partition, Long> asked = offsets(step.path("offsets"));
    Map<Partition, Long> passing = Map.of();
    switch (step.get("do").asText()) {
      case "commit" -> passing = member.commit(asked);
      case "store" -> passing = member.store(asked);
      case "client_commits" -> {
        member.client.losesCommits = !step.get("arrive").asBoolean();
        member.client.commitStored(member.core.owned());
      }
      case "begin_commit" -> passing = member.beginCommit(asked);
      case "end_commit" -> member.endCommit();
      case "send_offsets" -> passing = member.sendOffsets(asked);
      case "end_transaction" -> member.endTransaction(step.get("is_committed").asBoolean());
      default -> throw new AssertionError("no step is called " + step.get("do"));
    }
    List<String> dropped = new ArrayList<>();
    for (Partition partition : asked.keySet()) {
      if (!passing.containsKey(partition)) {
        dropped.add(partition.toString());
      }
    }
    return dropped;
  }

  private void advance(long until) {
    OptionalLong keptUntil = reading.keptUntil();
    if (keptUntil.isPresent() && keptUntil.getAsLong() <= until) {
      now = keptUntil.getAsLong();
      members.values().forEach(each -> each.run(now));
      reading.releaseKept(now);
      tell();
    }
    now = until;
    members.values().forEach(each -> each.run(now));
  }

  private void readFromStart(JsonNode step) {
    reading.begin("control-" + controlTopics);
    isAtEnd = false;
    end = step.get("end").asLong();
    take(step.get("records"));
    isAtEnd = true;
  }

  private void take(JsonNode records) {
    for (JsonNode record : records) {
      Contract.requireOnly(record, Set.of("offset", "key", "value", "timestamp_ms"));
      long offset = record.get("offset").asLong();
      OptionalLong appendedMs =
          record.has("timestamp_ms")
              ? OptionalLong.of(record.get("timestamp_ms").asLong())
              : OptionalLong.empty();
      reading.take(
          bytes(record.get("key")), bytes(record.get("value")), offset, appendedMs, isAtEnd, now);
      end = Math.max(end, offset + 1);
    }
    reading.readTo(end, now);
    tell();
  }

  private static byte[] bytes(JsonNode body) {
    return body.isNull() ? null : Contract.canonical(body).getBytes(StandardCharsets.UTF_8);
  }

  private void tell() {
    members.values().forEach(this::tell);
  }

  private void tell(SimulatedMember member) {
    Known known = reading.known();
    member.core.know(answered.contains(member) ? known.withAnswered(1) : known);
  }

  private SimulatedMember member(String name) {
    return members.computeIfAbsent(
        name,
        missing -> {
          Map<Partition, Long> logEnd = offsets(trace.path("log_end"));
          SimulatedClient client = new SimulatedClient(committed, logEnd);
          client.begins = start(trace.path("begins").asText("latest"));
          client.autoStores = trace.path("client_stores").asBoolean();
          client.storesLate = !client.autoStores;
          SimulatedMember made = new SimulatedMember(settings(), client, now);
          made.unstable = unstable;
          tell(made);
          return made;
        });
  }

  private CoreSettings settings() {
    CoreSettings.Builder settings =
        CoreSettings.of(GROUP)
            .clientCommits(trace.path("client_commits").asBoolean())
            .clientStores(trace.path("client_stores").asBoolean());
    if (trace.has("open_unread_after_s")) {
      settings.openUnreadAfter((long) (trace.get("open_unread_after_s").asDouble() * NANOS));
    }
    if (trace.has("rule")) {
      JsonNode rule = trace.get("rule");
      Contract.requireOnly(rule, Set.of("start", "max_age_ms"));
      OptionalLong maxAgeMs =
          rule.has("max_age_ms")
              ? OptionalLong.of(rule.get("max_age_ms").asLong())
              : OptionalLong.empty();
      settings.rule(new StartRule(start(rule.get("start").asText()), maxAgeMs));
    }
    return settings.build();
  }

  private static Start start(String name) {
    return Start.valueOf(name.toUpperCase(Locale.ROOT));
  }

  private Map<String, String> topicIds() {
    Map<String, String> ids = new HashMap<>();
    trace
        .path("topic_ids")
        .properties()
        .forEach(entry -> ids.put(entry.getKey(), entry.getValue().asText()));
    return ids;
  }

  private static Map<String, String> gates(SimulatedMember member) {
    Map<String, String> gates = new TreeMap<>();
    for (Partition partition : member.core.owned()) {
      gates.put(partition.toString(), GATES.get(member.core.stage(partition).orElseThrow()));
    }
    return gates;
  }

  private static Map<String, Long> named(Map<Partition, Long> offsets) {
    Map<String, Long> named = new TreeMap<>();
    offsets.forEach((partition, offset) -> named.put(partition.toString(), offset));
    return named;
  }

  private static List<Partition> partitions(JsonNode step) {
    List<Partition> partitions = new ArrayList<>();
    step.get("partitions").forEach(name -> partitions.add(partition(name.asText())));
    return partitions;
  }

  private static Map<Partition, Long> offsets(JsonNode named) {
    Map<Partition, Long> offsets = new LinkedHashMap<>();
    named
        .properties()
        .forEach(entry -> offsets.put(partition(entry.getKey()), entry.getValue().asLong()));
    return offsets;
  }

  private static Partition partition(String name) {
    int dash = name.lastIndexOf('-');
    return new Partition(name.substring(0, dash), Integer.parseInt(name.substring(dash + 1)));
  }
}
