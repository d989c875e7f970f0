package boot;

import com.fasterxml.jackson.databind.JsonNode;
import driven.Job;
import driven.Member;
import driven.Out;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.listener.AcknowledgingMessageListener;
import org.springframework.kafka.listener.BatchAcknowledgingMessageListener;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ConsumerAwareRebalanceListener;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.ContainerProperties.AckMode;
import org.springframework.kafka.support.Acknowledgment;
import org.springframework.kafka.transaction.KafkaTransactionManager;

/**
 * A listener container of Spring Kafka.
 *
 * <p>How it commits: {@code auto} (the client does), {@code batch}, {@code record} (the container does), {@code manual}
 * and {@code manual-immediate} (the listener acknowledges), {@code transaction} (with Kafka's transaction manager). Its
 * commands: {@code pause} and {@code resume} of {@code partitions}, or of the whole container where there are none.
 */
final class ListenerContainer implements Member {
  private final Job job;
  private final Out out;
  private ConcurrentMessageListenerContainer<byte[], byte[]> container;

  private ListenerContainer(Job job, Out out) {
    this.job = job;
    this.out = out;
  }

  static Member start(Job job, Out out, boolean inBatches) {
    ListenerContainer made = new ListenerContainer(job, out);
    made.container = made.container(inBatches);
    made.container.start();
    return made;
  }

  private ConcurrentMessageListenerContainer<byte[], byte[]> container(boolean inBatches) {
    ContainerProperties properties = new ContainerProperties(job.topics.toArray(new String[0]));
    properties.setPollTimeout(job.pollMillis);
    properties.setConsumerRebalanceListener(new Rebalances());
    switch (job.commit) {
      case "batch" -> properties.setAckMode(AckMode.BATCH);
      case "record" -> properties.setAckMode(AckMode.RECORD);
      case "manual" -> properties.setAckMode(AckMode.MANUAL);
      case "manual-immediate" -> properties.setAckMode(AckMode.MANUAL_IMMEDIATE);
      case "transaction" -> properties.setKafkaAwareTransactionManager(transactions());
      case "auto" -> {}
      default -> throw new IllegalArgumentException(job.commit);
    }
    boolean acknowledges = job.commit.startsWith("manual");
    if (inBatches) {
      BatchAcknowledgingMessageListener<byte[], byte[]> listener =
          (records, acknowledgment) -> given(records, acknowledges ? acknowledgment : null);
      properties.setMessageListener(listener);
    } else {
      AcknowledgingMessageListener<byte[], byte[]> listener =
          (record, acknowledgment) -> given(List.of(record), acknowledges ? acknowledgment : null);
      properties.setMessageListener(listener);
    }
    Map<String, Object> config = new HashMap<>();
    job.config.forEach((name, value) -> config.put(name.toString(), value));
    return new ConcurrentMessageListenerContainer<>(
        new DefaultKafkaConsumerFactory<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer()),
        properties);
  }

  private KafkaTransactionManager<byte[], byte[]> transactions() {
    Map<String, Object> config = Map.of("bootstrap.servers", job.config.getProperty("bootstrap.servers"));
    DefaultKafkaProducerFactory<byte[], byte[]> producers =
        new DefaultKafkaProducerFactory<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    producers.setTransactionIdPrefix(job.config.getProperty("group.id") + "-" + job.name + "-");
    return new KafkaTransactionManager<>(producers);
  }

  private void given(List<ConsumerRecord<byte[], byte[]>> records, Acknowledgment acknowledgment) {
    out.records(job.name, Out.now(), records);
    if (job.workMillis > 0) {
      try {
        Thread.sleep(job.workMillis);
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
      }
    }
    if (acknowledgment != null) {
      acknowledgment.acknowledge();
    }
  }

  @Override
  public Object ask(String what, JsonNode command) {
    List<TopicPartition> partitions = Job.partitions(command.path("partitions"));
    switch (what) {
      case "pause" -> {
        partitions.forEach(container::pausePartition);
        if (partitions.isEmpty()) {
          container.pause();
        }
        return null;
      }
      case "resume" -> {
        partitions.forEach(container::resumePartition);
        if (partitions.isEmpty()) {
          container.resume();
        }
        return null;
      }
      case "assignment" -> {
        return Job.rows(container.getAssignedPartitions());
      }
      default -> throw new IllegalArgumentException(what);
    }
  }

  @Override
  public void stop() {
    container.stop();
  }

  private final class Rebalances implements ConsumerAwareRebalanceListener {
    @Override
    public void onPartitionsAssigned(Consumer<?, ?> consumer, Collection<TopicPartition> partitions) {
      out.partitions("assigned", job.name, partitions);
    }

    @Override
    public void onPartitionsRevokedBeforeCommit(Consumer<?, ?> consumer, Collection<TopicPartition> partitions) {
      out.partitions("revoked", job.name, partitions);
    }

    @Override
    public void onPartitionsLost(Consumer<?, ?> consumer, Collection<TopicPartition> partitions) {
      out.partitions("lost", job.name, partitions);
    }
  }
}
