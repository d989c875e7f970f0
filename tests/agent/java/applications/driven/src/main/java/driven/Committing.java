package driven;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * How an application commits what it has worked on:
 *
 * <ul>
 *   <li>{@code auto}, {@code none}: not at all
 *   <li>{@code position}, {@code position-async}: by a commit without offsets
 *   <li>{@code manual}, {@code manual-async}: the offsets of what it was given
 *   <li>{@code transaction}: in a transaction, with the consumer's metadata
 *   <li>{@code transaction-of-group}: in a transaction, with the group's name; clients have that up to 3.9
 * </ul>
 */
final class Committing implements AutoCloseable {
  private final Job job;
  private final Consumer<byte[], byte[]> consumer;
  private final Out out;
  private KafkaProducer<byte[], byte[]> producer;

  Committing(Job job, Consumer<byte[], byte[]> consumer, Out out) {
    this.job = job;
    this.consumer = consumer;
    this.out = out;
    if (job.commit.startsWith("transaction")) {
      producer();
    }
  }

  /** What is to be committed once these were worked on. */
  static Map<TopicPartition, OffsetAndMetadata> after(ConsumerRecords<byte[], byte[]> records) {
    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
    for (ConsumerRecord<byte[], byte[]> record : records) {
      offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
    }
    return offsets;
  }

  /** Begins what is to hold both the work and the commit. */
  void begin(String how) {
    if (how.startsWith("transaction")) {
      producer().beginTransaction();
    }
  }

  void commit(String how, Map<TopicPartition, OffsetAndMetadata> offsets) {
    switch (how) {
      case "auto":
      case "none":
        break;
      case "position":
        consumer.commitSync();
        break;
      case "position-async":
        consumer.commitAsync((told, error) -> out.committed(job.name, told, error));
        break;
      case "manual":
        consumer.commitSync(offsets);
        out.committed(job.name, offsets, null);
        break;
      case "manual-async":
        consumer.commitAsync(offsets, (told, error) -> out.committed(job.name, told, error));
        break;
      case "transaction":
        producer().sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer().commitTransaction();
        out.committed(job.name, offsets, null);
        break;
      case "transaction-of-group":
        sendWithGroupAlone(offsets);
        producer().commitTransaction();
        out.committed(job.name, offsets, null);
        break;
      default:
        throw new IllegalArgumentException(how);
    }
  }

  @SuppressWarnings("deprecation")
  private void sendWithGroupAlone(Map<TopicPartition, OffsetAndMetadata> offsets) {
    producer().sendOffsetsToTransaction(offsets, job.config.getProperty("group.id"));
  }

  private KafkaProducer<byte[], byte[]> producer() {
    if (producer == null) {
      Properties config = new Properties();
      for (String name : job.config.stringPropertyNames()) {
        if (name.equals("bootstrap.servers") || name.startsWith("ssl.") || name.matches("sasl\\..*|security\\..*")) {
          config.setProperty(name, job.config.getProperty(name));
        }
      }
      config.setProperty("transactional.id", job.config.getProperty("group.id") + "-" + job.name);
      producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
      producer.initTransactions();
    }
    return producer;
  }

  @Override
  public void close() {
    if (producer != null) {
      producer.close(Duration.ofSeconds(5));
    }
  }
}
