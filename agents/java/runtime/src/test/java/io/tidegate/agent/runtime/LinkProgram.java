package io.tidegate.agent.runtime;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.tidegate.agent.core.Discovered;
import io.tidegate.agent.core.Effect;
import io.tidegate.agent.core.Gate;
import io.tidegate.agent.core.GateId;
import io.tidegate.agent.core.Known;
import io.tidegate.agent.core.Partition;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Links on real brokers, driven by one command a line on standard input, each a JSON object of
 * strings; what becomes known is told by one object a line on standard output.
 */
public final class LinkProgram {
  private static final JsonFactory JSON = new JsonFactory();
  private static final PrintStream OUT = System.out;

  private final Map<String, Opened> links = new HashMap<>();

  /** A link, and the clock that it goes by. */
  private static final class Opened {
    private final String name;
    private final AtomicLong ahead = new AtomicLong();
    private final Set<String> named = ConcurrentHashMap.newKeySet();
    private ControlLink link;

    Opened(String name) {
      this.name = name;
    }

    long nanos() {
      return System.nanoTime() + ahead.get();
    }
  }

  /** Writes an object's members. */
  private interface Members {
    void write(JsonGenerator to) throws IOException;
  }

  private LinkProgram() {}

  /** Runs until its input ends. */
  public static void main(String[] arguments) throws IOException {
    LinkProgram program = new LinkProgram();
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      program.obey(object(line));
    }
  }

  private static Map<String, String> object(String line) throws IOException {
    Map<String, String> members = new HashMap<>();
    try (JsonParser parser = JSON.createParser(line)) {
      parser.nextToken();
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        String name = parser.currentName();
        members.put(name, parser.nextTextValue());
      }
    }
    return members;
  }

  private void obey(Map<String, String> command) throws IOException {
    String name = command.remove("link");
    switch (command.remove("do")) {
      case "open" -> links.put(name, open(name, command));
      case "ask" -> ask(links.get(name), command);
      case "ack" -> ack(links.get(name), command);
      case "advance" -> {
        Duration time = Duration.ofSeconds(Long.parseLong(command.get("seconds")));
        links.get(name).ahead.addAndGet(time.toNanos());
      }
      case "close" -> close(links.remove(name));
      default -> throw new IllegalArgumentException("unknown command");
    }
  }

  /** The command's other members are the application's settings. */
  private static Opened open(String name, Map<String, String> command) {
    Opened opened = new Opened(name);
    Ticks ticks =
        new Ticks() {
          @Override
          public long nanos() {
            return opened.nanos();
          }

          @Override
          public long wallMs() {
            return System.currentTimeMillis();
          }
        };
    AgentLog log =
        new AgentLog() {
          @Override
          void log(Level level, String message) {
            tell(
                name,
                "log",
                to -> {
                  to.writeStringField("level", level.name());
                  to.writeStringField("message", message);
                });
          }
        };
    String controlTopic = command.remove("control topic");
    String ackTopic = command.remove("ack topic");
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    OwnClients clients = new OwnClients(Connection.of(command, loader));
    opened.link = new ControlLink(clients, loader, controlTopic, ackTopic, log, ticks);
    opened.link.listen(() -> tellKnown(opened));
    return opened;
  }

  private static void ask(Opened opened, Map<String, String> command) {
    // Each is a member of its own, named "topic <name>".
    List<String> topics = new ArrayList<>();
    command.forEach(
        (member, topic) -> {
          if (member.startsWith("topic ")) {
            topics.add(topic);
          }
        });
    opened.named.addAll(topics);
    long ticket = opened.link.ask(topics);
    tell(opened.name, "asked", to -> to.writeNumberField("ticket", ticket));
  }

  private static void ack(Opened opened, Map<String, String> command) {
    Partition partition =
        new Partition(command.get("topic"), Integer.parseInt(command.get("partition")));
    Effect.AckWord word =
        new Effect.AckWord(
            Long.parseLong(command.get("epoch")), Long.parseLong(command.get("offset")));
    opened.link.sendAcks(
        command.get("group"),
        command.get("member"),
        Map.of(partition, word),
        Long.parseLong(command.get("generation")),
        done ->
            tell(
                opened.name,
                "acked",
                to -> {
                  to.writeStringField("tag", command.get("tag"));
                  to.writeBooleanField("done", done);
                }));
  }

  private static void close(Opened opened) {
    List<Thread> threads = opened.link.threads();
    opened.link.close();
    long left = 0;
    for (Thread thread : threads) {
      try {
        thread.join(30_000);
      } catch (InterruptedException interrupted) {
        throw new IllegalStateException(interrupted);
      }
      left += thread.isAlive() ? 1 : 0;
    }
    long alive = left;
    tell(opened.name, "closed", to -> to.writeNumberField("threads", alive));
  }

  private static void tellKnown(Opened opened) {
    // The link tells it on several threads: what is written last is to be the newest.
    synchronized (OUT) {
      tellKnown(opened, opened.link.known());
    }
  }

  private static void tellKnown(Opened opened, Known known) {
    tell(
        opened.name,
        "known",
        to -> {
          to.writeNumberField("taken", known.readTo().taken());
          to.writeNumberField("answered", known.answered());
          to.writeNumberField("generation", known.generation());
          to.writeArrayFieldStart("gates");
          known.gates().forEach((gate, closed) -> writeGate(to, gate, closed));
          to.writeEndArray();
          to.writeObjectFieldStart("topic_ids");
          for (String topic : opened.named) {
            if (known.topicId(topic).isPresent()) {
              to.writeStringField(topic, known.topicId(topic).get());
            }
          }
          to.writeEndObject();
          to.writeObjectFieldStart("discovered");
          for (String topic : opened.named) {
            writeDiscovered(to, topic, known.discovered(topic));
          }
          to.writeEndObject();
          if (known.clock().isPresent()) {
            to.writeObjectFieldStart("clock");
            to.writeNumberField(
                "broker_ms", known.clock().get().reads(known.clock().get().arrived()));
            to.writeBooleanField("is_live", known.clock().get().isLive());
            to.writeEndObject();
          }
        });
  }

  private static void writeGate(JsonGenerator to, GateId gate, Gate closed) {
    try {
      to.writeStartObject();
      to.writeStringField("group", gate.group());
      to.writeStringField("topic", gate.partition().topic());
      to.writeNumberField("partition", gate.partition().number());
      to.writeNumberField("epoch", closed.epoch());
      to.writeNumberField("drain_timeout_ms", closed.drainTimeoutMs());
      to.writeStringField("reason", String.join("; ", closed.reasons()));
      to.writeEndObject();
    } catch (IOException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  private static void writeDiscovered(JsonGenerator to, String topic, List<Discovered> said)
      throws IOException {
    to.writeArrayFieldStart(topic);
    for (Discovered each : said) {
      to.writeStartObject();
      to.writeStringField("topic_id", each.topicId());
      to.writeNumberField("newest", each.newest());
      to.writeArrayFieldStart("seen_ms");
      for (int i = 0; i < each.partitions(); i++) {
        to.writeNumber(each.recordedMs(i));
      }
      to.writeEndArray();
      to.writeEndObject();
    }
    to.writeEndArray();
  }

  private static void tell(String link, String event, Members members) {
    StringWriter text = new StringWriter();
    try (JsonGenerator to = JSON.createGenerator(text)) {
      to.writeStartObject();
      to.writeStringField("link", link);
      to.writeStringField("event", event);
      members.write(to);
      to.writeEndObject();
    } catch (IOException impossible) {
      throw new IllegalStateException(impossible);
    }
    synchronized (OUT) {
      OUT.println(text);
      OUT.flush();
    }
  }
}
