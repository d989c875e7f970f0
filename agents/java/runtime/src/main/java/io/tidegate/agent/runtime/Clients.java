package io.tidegate.agent.runtime;

import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.producer.Producer;

/** Makes the agent's own clients of one cluster. Each of these calls makes a new one. */
interface Clients {
  /** Reads a topic from its start, and commits nothing. */
  Consumer<byte[], byte[]> reader();

  /** Writes acks. */
  Producer<byte[], byte[]> writer();

  /** Asks about topics. */
  Topics topics();
}
