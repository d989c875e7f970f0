package io.tidegate.agent.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.util.Collections;
import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.junit.jupiter.api.Test;

/** What is found of Kafka's own consumer, whatever an application has made of its class. */
class KafkaClientTest {
  /** An application's, with fields that are called as Kafka's are, and by Kafka's name. */
  private static final class KafkaConsumer
      extends org.apache.kafka.clients.consumer.KafkaConsumer<byte[], byte[]> {
    @SuppressWarnings("unused") // As by frameworks, by its name.
    private Consumer<byte[], byte[]> delegate;

    @SuppressWarnings("unused")
    private String subscriptions;

    @SuppressWarnings("unused")
    private String coordinator;

    private KafkaConsumer() {
      super(
          Map.of("bootstrap.servers", "127.0.0.1:9", "group.id", "g"),
          new ByteArrayDeserializer(),
          new ByteArrayDeserializer());
    }
  }

  @Test
  void aClassOfTheApplicationMayHaveFieldsOfAnyName() throws ReflectiveOperationException {
    TopicPartition orders = new TopicPartition("orders", 0);
    try (KafkaConsumer consumer = new KafkaConsumer()) {
      KafkaClient client = KafkaClient.of(consumer, "latest");
      assertNotNull(client.subscriptions());
      consumer.assign(Collections.singleton(orders));
      consumer.seek(orders, 7);

      client.forgetAnswers();
      assertEquals(7, client.position(orders).orElse(-1));
      client.seek(orders, 3);
      assertEquals(3, client.position(orders).orElse(-1));
    }
  }
}
