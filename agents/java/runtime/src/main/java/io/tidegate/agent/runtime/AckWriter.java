package io.tidegate.agent.runtime;

import io.tidegate.agent.core.Ack;
import io.tidegate.agent.core.AckKey;
import io.tidegate.agent.core.Effect;
import io.tidegate.agent.core.GateId;
import io.tidegate.agent.core.Partition;
import io.tidegate.agent.core.RecordCodec;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/**
 * Writes to the ack topic of one cluster, in the order in which it is asked to: what came in the
 * meantime goes together.
 *
 * <p>Kafka's producers have brokers create a topic that is not there, with whatever settings are
 * theirs by default. So each attempt begins with a look whether there is one, a producer that finds
 * none ends before it asks again, and one that has nothing to do is let go.
 */
final class AckWriter {
  /** How long one attempt may take. */
  static final int ATTEMPT_MS = 4_000;

  /** After how long acks are given up that could not be written. */
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(10);

  private static final long IDLE_MS = 60_000;

  private final Clients clients;
  private final Supplier<Topics> topics;
  private final String topic;
  private final LongSupplier generation;
  private final Troubles troubles;
  private final Ticks ticks;
  private final BooleanSupplier isStopped;
  private final BlockingQueue<Order> queue = new LinkedBlockingQueue<>();
  private volatile boolean ended;
  private Producer<byte[], byte[]> producer;
  private volatile boolean isSpent;

  /**
   * @param topics to ask whether the topic is there
   * @param generation of the control topic that is read now
   * @param isStopped whether the link is; whoever stops it interrupts the thread
   */
  AckWriter(
      Clients clients,
      Supplier<Topics> topics,
      String topic,
      LongSupplier generation,
      Troubles troubles,
      Ticks ticks,
      BooleanSupplier isStopped) {
    this.clients = clients;
    this.topics = topics;
    this.topic = topic;
    this.generation = generation;
    this.troubles = troubles;
    this.ticks = ticks;
    this.isStopped = isStopped;
  }

  /** Some acks of one member, and who is told about them, once. */
  private static final class Order {
    private final Map<AckKey, Ack> acks = new LinkedHashMap<>();
    private final long generation;
    private final long until;
    private final Consumer<Boolean> done;

    Order(long generation, long until, Consumer<Boolean> done) {
      this.generation = generation;
      this.until = until;
      this.done = done;
    }
  }

  /** One record to be written. */
  private static final class Word {
    private final Order order;
    private final byte[] key;
    private final byte[] value;

    Word(Order order, byte[] key, byte[] value) {
      this.order = order;
      this.key = key;
      this.value = value;
    }
  }

  /** As {@link Link#sendAcks}. */
  void send(
      String group,
      String member,
      Map<Partition, Effect.AckWord> acks,
      long ofGeneration,
      Consumer<Boolean> done) {
    Order order = new Order(ofGeneration, ticks.nanos() + PATIENCE_NANOS, done);
    acks.forEach(
        (partition, word) ->
            order.acks.put(
                new AckKey(new GateId(group, partition)),
                new Ack(word.epoch(), word.offset(), member)));
    queue.add(order);
    if (ended && queue.remove(order)) {
      tell(order, false);
    }
  }

  /** Write until the link is stopped. */
  void write() {
    while (!isStopped.getAsBoolean()) {
      try {
        writeNext();
      } catch (InterruptedException stopped) {
        // Or by somebody whose thread this is not.
        Thread.interrupted();
      } catch (RuntimeException | LinkageError failed) {
        isSpent = true;
        say(failed);
      }
    }
    ended = true;
    List<Order> left = new ArrayList<>();
    queue.drainTo(left);
    left.forEach(order -> tell(order, false));
    letGo();
  }

  private void writeNext() throws InterruptedException {
    Order first = queue.poll(IDLE_MS, TimeUnit.MILLISECONDS);
    if (first == null) {
      letGo();
      return;
    }
    List<Order> orders = new ArrayList<>();
    orders.add(first);
    queue.drainTo(orders);
    writeAll(orders);
  }

  private void writeAll(List<Order> orders) throws InterruptedException {
    Set<Order> open = new HashSet<>(orders);
    try {
      List<Word> words = new ArrayList<>();
      orders.forEach(order -> words.addAll(encoded(order, open)));
      while (dropLate(words, open)) {
        int written = attempt(words, open);
        words.subList(0, written).clear();
        finish(orders, words, open);
        if (dropLate(words, open)) {
          TimeUnit.NANOSECONDS.sleep(ControlLink.RETRY_NANOS);
        }
      }
      finish(orders, words, open);
    } catch (InterruptException stopped) {
      throw new InterruptedException();
    } finally {
      open.forEach(order -> tell(order, false));
    }
  }

  private List<Word> encoded(Order order, Set<Order> open) {
    List<Word> words = new ArrayList<>();
    try {
      order.acks.forEach(
          (key, ack) ->
              words.add(new Word(order, RecordCodec.encodeKey(key), RecordCodec.encodeAck(ack))));
      return words;
    } catch (RuntimeException unwritable) {
      fail(order, open, unwritable);
      return new ArrayList<>();
    }
  }

  /**
   * Without those of an earlier control topic, and those that took too long. Whether any is left.
   */
  private boolean dropLate(List<Word> words, Set<Order> open) {
    for (Word word : words) {
      boolean isLate = ticks.nanos() - word.order.until >= 0;
      if (isLate || word.order.generation != generation.getAsLong()) {
        if (open.remove(word.order)) {
          tell(word.order, false);
        }
      }
    }
    words.removeIf(word -> !open.contains(word.order));
    return !words.isEmpty();
  }

  /**
   * Write these.
   *
   * @return how many of them, from the first on, the broker has. What follows a failure is written
   *     again after it, or an earlier ack would be the last word about its gate
   */
  private int attempt(List<Word> words, Set<Order> open) throws InterruptedException {
    List<Future<RecordMetadata>> sent = new ArrayList<>();
    try {
      if (!topics.get().id(topic).isPresent()) {
        throw new UnknownTopicOrPartitionException("there is no such topic");
      }
      Producer<byte[], byte[]> writer = writer();
      for (Word word : words) {
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, word.key, word.value);
        Future<RecordMetadata> one =
            writer.send(record, (written, failed) -> ended(writer, failed));
        sent.add(one);
        if (one.isDone() && !isWritten(one)) {
          break;
        }
      }
      int written = 0;
      for (Future<RecordMetadata> each : sent) {
        each.get(2L * ATTEMPT_MS, TimeUnit.MILLISECONDS);
        written++;
      }
      troubles.over("acks", "acks are written to topic " + topic + " again");
      return written;
    } catch (ExecutionException | java.util.concurrent.TimeoutException failed) {
      Throwable cause = failed instanceof ExecutionException ? failed.getCause() : failed;
      return failedAfter(sent, words, open, cause);
    } catch (InterruptException stopped) {
      throw stopped;
    } catch (KafkaException | IllegalStateException failed) {
      return failedAfter(sent, words, open, failed);
    }
  }

  private int failedAfter(
      List<Future<RecordMetadata>> sent, List<Word> words, Set<Order> open, Throwable why)
      throws InterruptedException {
    int written = 0;
    while (written < sent.size() && isWritten(sent.get(written))) {
      written++;
    }
    isSpent = isSpent || !(why instanceof ApiException);
    say(why);
    if (why instanceof AuthorizationException || why instanceof AuthenticationException) {
      words.forEach(word -> fail(word.order, open, why));
    } else if (why instanceof ApiException && !(why instanceof RetriableException)) {
      fail(words.get(written).order, open, why);
    }
    return written;
  }

  private static boolean isWritten(Future<RecordMetadata> sent) throws InterruptedException {
    if (!sent.isDone()) {
      return false;
    }
    try {
      sent.get();
      return true;
    } catch (ExecutionException failed) {
      return false;
    }
  }

  /** Runs on the producer's thread, before it asks anew where the topic is. */
  private void ended(Producer<byte[], byte[]> writer, Exception failed) {
    if (failed instanceof InvalidMetadataException) {
      isSpent = true;
      writer.close(Duration.ZERO);
    }
  }

  private Producer<byte[], byte[]> writer() {
    if (isSpent) {
      letGo();
    }
    if (producer == null) {
      producer = clients.writer();
    }
    return producer;
  }

  private void letGo() {
    if (producer != null) {
      try {
        producer.close(Duration.ZERO);
      } catch (KafkaException unclean) {
        say(unclean);
      }
    }
    producer = null;
    isSpent = false;
  }

  /** Tell those of whose acks none is left to be written. */
  private void finish(List<Order> orders, List<Word> words, Set<Order> open) {
    Map<Order, Integer> left = new HashMap<>();
    words.forEach(word -> left.merge(word.order, 1, Integer::sum));
    for (Order order : orders) {
      if (!left.containsKey(order) && open.remove(order)) {
        tell(order, true);
      }
    }
  }

  private void fail(Order order, Set<Order> open, Throwable why) {
    say(why);
    if (open.remove(order)) {
      tell(order, false);
    }
  }

  private void say(Throwable why) {
    if (!isStopped.getAsBoolean()) {
      troubles.say("acks", "cannot write acks to topic " + topic + ": " + Reason.of(why));
    }
  }

  private void tell(Order order, boolean isWritten) {
    try {
      order.done.accept(isWritten);
    } catch (RuntimeException failed) {
      troubles.say("listeners", "a consumer could not be told of its acks: " + Reason.of(failed));
    }
  }
}
