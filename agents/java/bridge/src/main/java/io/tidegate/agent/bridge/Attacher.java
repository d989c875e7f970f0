package io.tidegate.agent.bridge;

import java.util.Map;

/** What governs the consumers of one copy of kafka-clients. */
public interface Attacher {
  /**
   * A consumer was made. It becomes governed, or it is said once why it is not.
   *
   * @param consumer Kafka's {@code KafkaConsumer}
   * @param config its {@code ConsumerConfig}
   * @return what its constructor throws to the application, which has said something in the
   *     consumer's configuration that means nothing; null: nothing
   */
  RuntimeException attach(Object consumer, Object config);

  /**
   * A producer adds offsets to its transaction.
   *
   * @param groupMetadata whose they are
   * @return null: as they are
   */
  CommitCall transactionBegins(Map<?, ?> offsets, Object groupMetadata);
}
