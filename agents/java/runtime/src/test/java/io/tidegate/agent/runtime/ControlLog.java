package io.tidegate.agent.runtime;

import io.tidegate.agent.core.GateId;
import io.tidegate.agent.core.HoldKey;
import io.tidegate.agent.core.Partition;
import io.tidegate.agent.core.RecordCodec;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A compacted control topic in memory, a clock that can be set forward, and the agent's clients on
 * both. Whether real ones behave so, {@code tests/agent/java} tells.
 */
final class ControlLog implements Clients, Topics, Ticks {
  static final String NAME = "__tidegate";
  static final String ACKS = "__tidegate_acks";
  static final GateId GATE = new GateId("g", new Partition("orders", 0));
  static final GateId OTHER = new GateId("g", new Partition("orders", 1));
  static final TopicPartition PARTITION = new TopicPartition(NAME, 0);

  private final TreeMap<Long, ConsumerRecord<byte[], byte[]>> records = new TreeMap<>();
  private final AtomicLong ahead = new AtomicLong();
  private long end;

  /** The topic's id; null: there is none. */
  private String topicId = "id";

  private boolean isReadable = true;
  private RuntimeException failure;
  private boolean refuses;
  private long looks;

  /** How often it was read from its start. */
  private int begun;

  /** How many readers there are now. */
  private int readers;

  /** Whether there is an ack topic. */
  boolean hasAckTopic = true;

  /** Whether a producer that is closed gets the broker's answers to all that it has sent. */
  boolean isAnsweredAtTheEnd;

  /** What happens next between a look at the topic's end and whatever is made of that. */
  final AtomicReference<Runnable> afterLook = new AtomicReference<>(() -> {});

  final List<MockProducer<byte[], byte[]>> producers = new ArrayList<>();

  // --- what is done to it

  synchronized long hold(GateId gate) {
    return append(gate, "{\"drain_timeout_ms\":1000,\"reason\":\"INC-4711\"}");
  }

  synchronized long release(GateId gate) {
    return append(gate, null);
  }

  private long append(GateId gate, String value) {
    byte[] key = RecordCodec.encodeKey(new HoldKey(gate, "pause/c/p"));
    byte[] bytes = value == null ? null : value.getBytes(StandardCharsets.UTF_8);
    records.put(end, new ConsumerRecord<>(NAME, 0, end, key, bytes));
    end++;
    notifyAll();
    return end - 1;
  }

  /** The mark of a transaction's end: an offset without a record. */
  synchronized void mark() {
    end++;
    notifyAll();
  }

  /** As after {@code delete.retention.ms}: tombstones, and what they delete, are gone. */
  synchronized void compact() {
    Map<String, Long> newest = new HashMap<>();
    records.forEach((offset, record) -> newest.put(text(record.key()), offset));
    records
        .entrySet()
        .removeIf(
            each ->
                each.getValue().value() == null
                    || !newest.get(text(each.getValue().key())).equals(each.getKey()));
  }

  private static String text(byte[] key) {
    return new String(key, StandardCharsets.UTF_8);
  }

  /** Another topic of the name, with nothing in it; null: none at all. */
  synchronized void replace(String otherId) {
    topicId = otherId;
    records.clear();
    end = 0;
    notifyAll();
  }

  /** As after a broker that lacks the last records has become the leader. */
  synchronized void cut(long toEnd) {
    records.tailMap(toEnd).clear();
    end = toEnd;
    notifyAll();
  }

  synchronized void readable(boolean value) {
    isReadable = value;
    notifyAll();
  }

  synchronized void fail(RuntimeException next) {
    failure = next;
    notifyAll();
  }

  /** Whether whoever reads it is told that he may not. */
  synchronized void refuse(boolean value) {
    refuses = value;
    notifyAll();
  }

  synchronized int begun() {
    return begun;
  }

  /** How often it was asked how long it is. */
  synchronized long looks() {
    return looks;
  }

  synchronized int readers() {
    return readers;
  }

  void setForward(Duration time) {
    ahead.addAndGet(time.toNanos());
  }

  // --- the machine's clocks

  @Override
  public long nanos() {
    return System.nanoTime() + ahead.get();
  }

  @Override
  public long wallMs() {
    return System.currentTimeMillis();
  }

  // --- the brokers' word

  @Override
  public synchronized Optional<String> id(String topic) {
    if (topic.equals(ACKS)) {
      return hasAckTopic ? Optional.of("acks") : Optional.empty();
    }
    return Optional.ofNullable(topicId);
  }

  @Override
  public long end(String topic) {
    long found;
    synchronized (this) {
      looks++;
      found = end;
    }
    afterLook.getAndSet(() -> {}).run();
    return found;
  }

  @Override
  public Map<String, String> ids(Collection<String> topics) {
    return new HashMap<>();
  }

  @Override
  public void close() {}

  // --- clients

  @Override
  public Topics topics() {
    return this;
  }

  @Override
  public synchronized Producer<byte[], byte[]> writer() {
    MockProducer<byte[], byte[]> made =
        new MockProducer<>(false, new ByteArraySerializer(), new ByteArraySerializer()) {
          @Override
          public void close(Duration timeout) {
            while (isAnsweredAtTheEnd && completeNext()) {
              // The broker's answers came while it was closed.
            }
            super.close(timeout);
          }
        };
    producers.add(made);
    notifyAll();
    return made;
  }

  @Override
  public Consumer<byte[], byte[]> reader() {
    synchronized (this) {
      readers++;
    }
    return new MockConsumer<byte[], byte[]>(OffsetResetStrategy.NONE) {
      private long next = -1;

      @Override
      public synchronized void seekToBeginning(Collection<TopicPartition> partitions) {
        synchronized (ControlLog.this) {
          begun++;
          next = -1;
        }
      }

      @Override
      public synchronized ConsumerRecords<byte[], byte[]> poll(Duration timeout) {
        return next(timeout);
      }

      @Override
      public synchronized long position(TopicPartition partition, Duration timeout) {
        if (next < 0) {
          throw new TimeoutException("the log's start is not known yet");
        }
        return next;
      }

      @Override
      public synchronized void close() {
        synchronized (ControlLog.this) {
          readers--;
          ControlLog.this.notifyAll();
        }
      }

      private ConsumerRecords<byte[], byte[]> next(Duration timeout) {
        synchronized (ControlLog.this) {
          if (failure == null && (!isReadable || next == end)) {
            pause(timeout);
          }
          if (failure != null) {
            RuntimeException thrown = failure;
            failure = null;
            throw thrown;
          }
          if (refuses) {
            throw new TopicAuthorizationException(NAME);
          }
          if (!isReadable) {
            return ConsumerRecords.empty();
          }
          if (next > end) {
            throw new OffsetOutOfRangeException(Map.of(PARTITION, next));
          }
          next = Math.max(next, 0);
          List<ConsumerRecord<byte[], byte[]>> found =
              new ArrayList<>(records.tailMap(next).values());
          next = found.isEmpty() ? end : found.get(found.size() - 1).offset() + 1;
          return new ConsumerRecords<>(Map.of(PARTITION, found));
        }
      }

      private void pause(Duration timeout) {
        try {
          ControlLog.this.wait(Math.min(20, timeout.toMillis()));
        } catch (InterruptedException interrupted) {
          throw new org.apache.kafka.common.errors.InterruptException(interrupted);
        }
      }
    };
  }
}
