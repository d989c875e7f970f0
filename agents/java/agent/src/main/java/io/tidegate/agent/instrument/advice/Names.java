package io.tidegate.agent.instrument.advice;

/** Members that the agent adds to Kafka's classes. */
public final class Names {
  /** The field that holds the consumer's member, and the methods of {@code Governed}. */
  public static final String MEMBER = "tidegate$member";

  /** The method of {@code Subscribed}. */
  public static final String SUBSCRIPTIONS = "tidegate$subscriptions";

  private Names() {}
}
