package io.tidegate.agent.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tidegate.agent.core.Effect;
import io.tidegate.agent.core.Partition;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.common.errors.NotLeaderOrFollowerException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Acks: in order, told about once, and nothing of an earlier control topic. */
class AckWriterTest {
  private static final Partition P0 = new Partition("orders", 0);
  private static final Partition P1 = new Partition("orders", 1);

  private final ByteArrayOutputStream written = new ByteArrayOutputStream();
  private final ControlLog topic = new ControlLog();
  private final AtomicLong generation = new AtomicLong(1);
  private final AtomicBoolean stopped = new AtomicBoolean();
  private final List<Boolean> told = new CopyOnWriteArrayList<>();
  private final AckWriter writer =
      new AckWriter(
          topic,
          () -> topic,
          ControlLog.ACKS,
          generation::get,
          new Troubles(
              AgentLog.to(
                  new PrintStream(written, true, StandardCharsets.UTF_8), AgentLog.Level.INFO)),
          topic,
          stopped::get);
  private final Thread thread = AgentThread.of("acks", null, writer::write);

  @BeforeEach
  void start() {
    thread.start();
  }

  @AfterEach
  void stop() throws InterruptedException {
    stopped.set(true);
    thread.interrupt();
    thread.join(10_000);
    assertFalse(thread.isAlive());
  }

  private void send(long epoch, Partition... partitions) {
    Map<Partition, Effect.AckWord> words = new LinkedHashMap<>();
    for (Partition partition : partitions) {
      words.put(partition, new Effect.AckWord(epoch, 42));
    }
    writer.send("g", "m-1", words, 1, told::add);
  }

  private void until(BooleanSupplier reached, String what) {
    long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
    while (!reached.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, () -> "not within 20 s: " + what + "\n" + written);
      Thread.onSpinWait();
    }
  }

  private void untilTold(Boolean... words) {
    until(() -> told.size() >= words.length, "it is told");
    assertEquals(List.of(words), told);
  }

  /** The producer number so many, once it has been given so many records. */
  private MockProducer<byte[], byte[]> producer(int number, int records) {
    until(() -> made() >= number, "there is a producer");
    MockProducer<byte[], byte[]> found = topic.producers.get(number - 1);
    until(() -> found.history().size() >= records, "it is given records");
    return found;
  }

  private int made() {
    synchronized (topic) {
      return topic.producers.size();
    }
  }

  private static List<String> values(MockProducer<byte[], byte[]> producer) {
    return producer.history().stream()
        .map(record -> new String(record.value(), StandardCharsets.UTF_8))
        .toList();
  }

  private String said() {
    return written.toString(StandardCharsets.UTF_8);
  }

  @Test
  void anAckIsWhatTheContractSays() {
    send(7, P0);
    MockProducer<byte[], byte[]> producer = producer(1, 1);
    assertEquals(List.of(), told, "the broker has not answered");
    producer.completeNext();

    untilTold(true);
    assertEquals(ControlLog.ACKS, producer.history().get(0).topic());
    assertEquals(
        "{\"group\":\"g\",\"kind\":\"ack\",\"partition\":0,\"topic\":\"orders\"}",
        new String(producer.history().get(0).key(), StandardCharsets.UTF_8));
    assertEquals(List.of("{\"epoch\":7,\"member\":\"m-1\",\"offset\":42}"), values(producer));
  }

  @Test
  void whatComesWhileTheBrokerAnswersGoesTogether() {
    send(1, P0);
    MockProducer<byte[], byte[]> producer = producer(1, 1);
    send(2, P0, P1);
    send(3, P1);
    producer.completeNext();
    producer(1, 4);
    assertEquals(List.of(true), told);
    for (int i = 0; i < 3; i++) {
      producer.completeNext();
    }

    untilTold(true, true, true);
  }

  @Test
  void acksOfAnEarlierControlTopicAreNotSent() {
    send(1, P0);
    MockProducer<byte[], byte[]> producer = producer(1, 1);
    send(2, P1);
    generation.set(2);
    producer.errorNext(new NotLeaderOrFollowerException());

    untilTold(false, false);
    assertEquals(1, made());
    assertEquals(1, producer.history().size());
  }

  @Test
  void afterAFailureAllThatFollowsIsWrittenAgainSoThatTheLastWordIsTheNewest() {
    send(1, P0);
    MockProducer<byte[], byte[]> first = producer(1, 1);
    send(2, P0);
    send(3, P0);
    first.completeNext();
    producer(1, 3);
    topic.isAnsweredAtTheEnd = true;
    first.errorNext(new NotLeaderOrFollowerException());
    MockProducer<byte[], byte[]> second = producer(2, 2);
    assertEquals(3, first.history().size(), "it is not used any more");
    assertTrue(first.closed(), "it would ask brokers for a topic that may be gone");
    second.completeNext();
    second.completeNext();

    untilTold(true, true, true);
    assertEquals(
        List.of(
            "{\"epoch\":2,\"member\":\"m-1\",\"offset\":42}",
            "{\"epoch\":3,\"member\":\"m-1\",\"offset\":42}"),
        values(second));
    assertTrue(said().contains("cannot write acks to topic __tidegate_acks: NotLeader"), said());
    assertTrue(said().contains("acks are written to topic __tidegate_acks again"), said());
  }

  @Test
  void whereThereIsNoSuchTopicNoProducerAsksForIt() {
    topic.hasAckTopic = false;
    send(1, P0);
    until(() -> said().contains("there is no such topic"), "it is said");
    topic.setForward(Duration.ofSeconds(10));

    untilTold(false);
    assertEquals(0, made());
    topic.hasAckTopic = true;
    send(2, P0);
    producer(1, 1).completeNext();
    untilTold(false, true);
  }

  @Test
  void whoMayNotWriteIsToldSoAtOnceForAllThatWaits() {
    send(1, P0);
    MockProducer<byte[], byte[]> producer = producer(1, 1);
    send(2, P0, P1);
    send(3, P1);
    producer.completeNext();
    producer(1, 4);
    for (int i = 0; i < 3; i++) {
      producer.errorNext(new TopicAuthorizationException(ControlLog.ACKS));
    }

    untilTold(true, false, false);
    assertEquals(1, said().lines().count(), said());
    assertEquals(1, made());
  }

  @Test
  void anAckThatCannotBeWrittenKeepsNoOtherFromIt() {
    send(1, P0);
    MockProducer<byte[], byte[]> producer = producer(1, 1);
    send(2, P0);
    send(3, P1);
    producer.completeNext();
    producer(1, 3);
    producer.errorNext(new RecordTooLargeException());
    producer.errorNext(new RecordTooLargeException());
    producer(1, 4).completeNext();

    untilTold(true, false, true);
  }

  @Test
  void whoeverStopsTellsThoseThatWait() throws InterruptedException {
    send(1, P0);
    producer(1, 1);
    send(2, P0);
    stop();

    untilTold(false, false);
    send(3, P0);
    untilTold(false, false, false);
    assertTrue(topic.producers.get(0).closed());
    assertEquals("", said());
  }

  @Test
  void whoeverInterruptsItsThreadEndsNothing() {
    send(1, P0);
    producer(1, 1);
    thread.interrupt();
    untilTold(false);
    send(2, P0);
    producer(1, 2).completeNext();
    producer(1, 2).completeNext();

    untilTold(false, true);
  }
}
