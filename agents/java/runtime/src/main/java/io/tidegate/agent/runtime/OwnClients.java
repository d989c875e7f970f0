package io.tidegate.agent.runtime;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The agent's own clients, which come as the application's client does. They are made on the
 * agent's threads only.
 */
final class OwnClients implements Clients {
  private static final AtomicInteger MADE = new AtomicInteger();

  private final Connection connection;
  private final String clientId;

  OwnClients(Connection connection) {
    this.connection = connection;
    // Clients of one name would quarrel about their metrics' names. Quotas go by the name as well.
    this.clientId = connection.clientId() + "-tidegate-" + MADE.incrementAndGet();
  }

  /**
   * Whether a client of Kafka that is being made by this thread, or used by it, is the agent's own:
   * it is not governed.
   */
  static boolean isCreating() {
    return AgentThread.isCurrent();
  }

  @Override
  public Consumer<byte[], byte[]> reader() {
    Map<String, Object> settings = settings(ConsumerConfig.configNames());
    settings.put("key.deserializer", ByteArrayDeserializer.class);
    settings.put("value.deserializer", ByteArrayDeserializer.class);
    settings.put("enable.auto.commit", false);
    // What an operator could not commit, because another one had taken over, is not there.
    settings.put("isolation.level", "read_committed");
    settings.put("allow.auto.create.topics", false);
    // A position that is not there any more means that something was missed.
    settings.put("auto.offset.reset", "none");
    settings.put("metadata.max.age.ms", 10_000L);
    return new KafkaConsumer<>(settings);
  }

  @Override
  public Producer<byte[], byte[]> writer() {
    Map<String, Object> settings = settings(ProducerConfig.configNames());
    settings.put("key.serializer", ByteArraySerializer.class);
    settings.put("value.serializer", ByteArraySerializer.class);
    settings.put("acks", "all");
    // The order of a partition's acks is what they mean; with one request at a time it is kept
    // without the rights that idempotence may need.
    settings.put("enable.idempotence", false);
    settings.put("max.in.flight.requests.per.connection", 1);
    // Who writes tries again, after a look whether the topic is still there: this client's own
    // attempts would have brokers make it.
    settings.put("retries", 0);
    settings.put("linger.ms", 0L);
    settings.put("max.block.ms", (long) AckWriter.ATTEMPT_MS);
    settings.put("request.timeout.ms", AckWriter.ATTEMPT_MS);
    settings.put("delivery.timeout.ms", AckWriter.ATTEMPT_MS);
    return new KafkaProducer<>(settings);
  }

  @Override
  public Topics topics() {
    return new AdminTopics(Admin.create(settings(AdminClientConfig.configNames())));
  }

  /** What every client comes with; without metrics, which would be among the application's. */
  private Map<String, Object> settings(Collection<String> known) {
    Map<String, Object> settings = new HashMap<>(connection.settings());
    settings.put("client.id", clientId);
    settings.put("metric.reporters", "");
    if (known.contains("auto.include.jmx.reporter")) {
      settings.put("auto.include.jmx.reporter", false);
    }
    if (known.contains("enable.metrics.push")) {
      settings.put("enable.metrics.push", false);
    }
    return settings;
  }
}
