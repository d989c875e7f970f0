package io.tidegate.agent.runtime;

import java.util.Collection;
import java.util.Map;
import java.util.Optional;

/**
 * What the brokers say of topics. For several threads at once. What cannot be said for another
 * reason than that there is no such topic is a {@link org.apache.kafka.common.KafkaException}.
 */
interface Topics extends AutoCloseable {
  /** In the place of an id where the brokers, or the client library, do not tell it. */
  String UNTOLD = "";

  /** How long each of these questions may take. */
  int REQUEST_MS = 5_000;

  /**
   * The topic's id, as Kafka's tools write it, or {@link #UNTOLD}; empty: there is no such topic.
   */
  Optional<String> id(String topic);

  /** The offset after the last record of the topic's partition 0. */
  long end(String topic);

  /** By name the ids of those of these topics that have one and of which it is told. */
  Map<String, String> ids(Collection<String> topics);

  @Override
  void close();
}
