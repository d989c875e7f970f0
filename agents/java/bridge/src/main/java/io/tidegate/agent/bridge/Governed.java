package io.tidegate.agent.bridge;

/**
 * What the agent makes of Kafka's {@code KafkaConsumer} and {@code SubscriptionState}: each knows
 * its member. The names are such that no class of Kafka has them.
 */
public interface Governed {
  /** Null: this consumer is not governed. */
  Member tidegate$member();

  /** Set once, right after the consumer was made. */
  void tidegate$member(Member member);
}
