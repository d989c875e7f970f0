package io.tidegate.agent.runtime;

import io.tidegate.agent.core.Start;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.internals.SubscriptionState;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own consumer. From 3.7 on {@code KafkaConsumer} has it done by a delegate, which is
 * called here: what an application's subclass or another agent adds to the consumer's methods is
 * not about the agent's calls.
 */
final class KafkaClient implements GovernedClient {
  private static final String NEWER = "AsyncKafkaConsumer";

  private final Consumer<?, ?> consumer;
  private final SubscriptionState subscriptions;
  private final boolean isNewer;
  private final boolean hasResetRule;
  private final Method requestReset;

  /** Of the classic protocol: the coordinator, and its field of the question that is kept. */
  private final Object coordinator;

  private final Field keptQuestion;
  private boolean isSeeking;
  private volatile boolean isAssignedByUser;

  /**
   * @param type the class of Kafka's that has the fields; the consumer's may be derived from it
   */
  private KafkaClient(Consumer<?, ?> consumer, Class<?> type, String autoOffsetReset)
      throws ReflectiveOperationException {
    this.consumer = consumer;
    this.subscriptions = (SubscriptionState) Fields.field(type, "subscriptions").get(consumer);
    this.isNewer = type.getSimpleName().equals(NEWER);
    this.hasResetRule = !autoOffsetReset.equals("none");
    this.requestReset = requestReset();
    this.coordinator = isNewer ? null : Fields.field(type, "coordinator").get(consumer);
    this.keptQuestion =
        isNewer ? null : Fields.field(coordinator.getClass(), "pendingCommittedOffsetRequest");
  }

  /**
   * Of a {@code KafkaConsumer}.
   *
   * @throws ReflectiveOperationException where it is made of other parts than it has been so far
   */
  static KafkaClient of(Object kafkaConsumer, String autoOffsetReset)
      throws ReflectiveOperationException {
    Consumer<?, ?> consumer = (Consumer<?, ?>) kafkaConsumer;
    // Not the application's class, which may be derived from it, and have fields of any name.
    for (Field field : KafkaConsumer.class.getDeclaredFields()) {
      if (field.getName().equals("delegate") && Consumer.class.isAssignableFrom(field.getType())) {
        field.setAccessible(true);
        Consumer<?, ?> delegate = (Consumer<?, ?>) field.get(consumer);
        return new KafkaClient(delegate, delegate.getClass(), autoOffsetReset);
      }
    }
    return new KafkaClient(consumer, KafkaConsumer.class, autoOffsetReset);
  }

  /** Whether it is of the protocol {@code consumer}; otherwise of the classic one. */
  boolean isNewer() {
    return isNewer;
  }

  /** What its partitions' state is kept in. */
  SubscriptionState subscriptions() {
    return subscriptions;
  }

  /** With a strategy whose type is {@code OffsetResetStrategy} up to 3.9, and another one since. */
  private static Method requestReset() throws NoSuchMethodException {
    for (Method method : SubscriptionState.class.getMethods()) {
      if (method.getName().equals("requestOffsetReset")
          && method.getParameterCount() == 2
          && method.getParameterTypes()[0] == TopicPartition.class) {
        return method;
      }
    }
    throw new NoSuchMethodException("SubscriptionState.requestOffsetReset");
  }

  @Override
  public Set<TopicPartition> assigned() {
    return subscriptions.assignedPartitions();
  }

  @Override
  public void assignedByUser(boolean isByUser) {
    isAssignedByUser = isByUser;
  }

  @Override
  public Set<TopicPartition> initializing() {
    return subscriptions.initializingPartitions();
  }

  @Override
  public boolean hasResetRule() {
    return hasResetRule;
  }

  @Override
  public void begin(TopicPartition partition, Start start) {
    try {
      String strategy = start.name().toUpperCase(Locale.ROOT);
      Object value = requestReset.getParameterTypes()[1].getField(strategy).get(null);
      requestReset.invoke(subscriptions, partition, value);
    } catch (InvocationTargetException thrown) {
      throw new IllegalStateException(thrown.getCause());
    } catch (ReflectiveOperationException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  @Override
  public OptionalLong position(TopicPartition partition) {
    if (!subscriptions.isAssigned(partition)) {
      return OptionalLong.empty();
    }
    SubscriptionState.FetchPosition position = subscriptions.position(partition);
    return position == null ? OptionalLong.empty() : OptionalLong.of(position.offset);
  }

  @Override
  public Map<TopicPartition, Long> committed(Set<TopicPartition> partitions, Duration timeout) {
    Map<TopicPartition, Long> found = new HashMap<>();
    Map<TopicPartition, OffsetAndMetadata> answer = consumer.committed(partitions, timeout);
    answer.forEach(
        (partition, committed) ->
            found.put(partition, committed == null ? null : committed.offset()));
    return found;
  }

  /**
   * The classic protocol's client keeps a question that was given up, and its answer, for the next
   * one about the same partitions, for as long as the group's generation lasts.
   */
  @Override
  public void forgetAnswers() {
    if (isNewer) {
      return;
    }
    try {
      keptQuestion.set(coordinator, null);
    } catch (IllegalAccessException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  @Override
  public void outdated(Set<TopicPartition> partitions) {
    try {
      Object listener = SmallRye.of(subscriptions);
      if (listener != null) {
        SmallRye.forget(listener, partitions);
      }
    } catch (ReflectiveOperationException | ClassCastException unknown) {
      throw new IllegalStateException("SmallRye is built otherwise: " + unknown, unknown);
    }
  }

  @Override
  public void seek(TopicPartition partition, long offset) {
    isSeeking = true;
    try {
      consumer.seek(partition, offset);
    } finally {
      isSeeking = false;
    }
  }

  @Override
  public boolean isSeeking() {
    return isSeeking;
  }

  @Override
  public void commit(Map<TopicPartition, Long> offsets, java.util.function.Consumer<Boolean> done) {
    Map<TopicPartition, OffsetAndMetadata> named = new HashMap<>();
    offsets.forEach((partition, offset) -> named.put(partition, new OffsetAndMetadata(offset)));
    consumer.commitAsync(named, (committed, trouble) -> done.accept(trouble == null));
  }

  @Override
  public Optional<String> memberId() {
    if (isAssignedByUser) {
      return Optional.of("");
    }
    ConsumerGroupMetadata metadata = consumer.groupMetadata();
    boolean isMember = metadata.generationId() > 0 && !metadata.memberId().isEmpty();
    return isMember ? Optional.of(metadata.memberId()) : Optional.empty();
  }

  @Override
  public void wakeup() {
    consumer.wakeup();
  }
}
