package io.tidegate.agent.core;

import java.util.Objects;

/** A topic's partition. */
public final class Partition {
  private final String topic;
  private final int number;

  /**
   * @param number from 0 on
   */
  public Partition(String topic, int number) {
    this.topic = Objects.requireNonNull(topic);
    this.number = number;
  }

  /** The topic's name. */
  public String topic() {
    return topic;
  }

  /** Its number in the topic, from 0 on. */
  public int number() {
    return number;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Partition
        && number == ((Partition) other).number
        && topic.equals(((Partition) other).topic);
  }

  @Override
  public int hashCode() {
    return 31 * topic.hashCode() + number;
  }

  /** As Kafka writes it: {@code orders-0}. */
  @Override
  public String toString() {
    return topic + "-" + number;
  }
}
