package io.tidegate.agent.bridge;

/** What the agent makes of Kafka's {@code CommitRequestManager}: it tells its subscriptions. */
public interface Subscribed {
  /** Kafka's {@code SubscriptionState}. */
  Object tidegate$subscriptions();
}
