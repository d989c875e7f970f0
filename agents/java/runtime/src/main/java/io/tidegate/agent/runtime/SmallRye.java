package io.tidegate.agent.runtime;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.consumer.internals.SubscriptionState;
import org.apache.kafka.common.TopicPartition;

/**
 * What SmallRye Reactive Messaging (Quarkus) keeps of a partition beside the client: records that
 * it has polled and not yet handed on, and up to where it has committed. It lets go of both where a
 * partition is revoked, but knows nothing of a seek (its issue 3455): after one to an earlier
 * offset it commits nothing before it has come again to where it was.
 *
 * <p>So a partition that is moved is revoked for its commit handler, and assigned again. The
 * application's own rebalance listener is told of neither, since it may seek. Handlers of an
 * application, and {@code checkpoint}, which keeps positions of its own, are left alone.
 */
final class SmallRye {
  private static final String LISTENER =
      "smallrye.reactive.messaging.kafka.impl.RebalanceListeners$WrappedConsumerRebalanceListener";

  private static final String THROTTLED = "KafkaThrottledLatestProcessedCommit";
  private static final String LATEST = "KafkaLatestCommit";
  private static final Set<String> HANDLERS = new HashSet<>(Arrays.asList(THROTTLED, LATEST));

  private SmallRye() {}

  /** What the consumer with these subscriptions belongs to; null: nothing of SmallRye's. */
  static Object of(SubscriptionState subscriptions) throws ReflectiveOperationException {
    Object listener = Fields.value(subscriptions, "rebalanceListener");
    if (listener instanceof Optional) { // from kafka-clients 3.7 on
      listener = ((Optional<?>) listener).orElse(null);
    }
    return listener != null && listener.getClass().getName().endsWith(LISTENER) ? listener : null;
  }

  /**
   * To be called on the thread that polls, before these are moved. Waits for the channel's event
   * loop, as SmallRye does where partitions are revoked.
   *
   * @param listener of {@link #of}
   */
  static void forget(Object listener, Set<TopicPartition> partitions)
      throws ReflectiveOperationException {
    Object consumer = Fields.value(listener, "reactiveKafkaConsumer");
    Object handler = Fields.value(listener, "commitHandler");
    call(consumer, "removeFromQueueRecordsFromTopicPartitions", Collection.class, partitions);
    if (!HANDLERS.contains(handler.getClass().getSimpleName())) {
      return;
    }
    call(handler, "partitionsRevoked", Collection.class, partitions);
    if (handler.getClass().getSimpleName().equals(LATEST)) {
      // Which ignores that it was revoked.
      Map<?, ?> offsets = (Map<?, ?>) Fields.value(handler, "offsets");
      Callable<Boolean> forgetting = () -> offsets.keySet().removeAll(partitions);
      call(handler, "runOnContextAndAwait", Callable.class, forgetting);
    }
    call(handler, "partitionsAssigned", Collection.class, partitions);
  }

  private static void call(Object on, String name, Class<?> parameter, Object argument)
      throws ReflectiveOperationException {
    try {
      method(on.getClass(), name, parameter).invoke(on, argument);
    } catch (InvocationTargetException thrown) {
      if (thrown.getCause() instanceof RuntimeException) {
        throw (RuntimeException) thrown.getCause();
      }
      throw thrown;
    }
  }

  private static Method method(Class<?> of, String name, Class<?> parameter)
      throws NoSuchMethodException {
    for (Class<?> type = of; type != null; type = type.getSuperclass()) {
      for (Method method : type.getDeclaredMethods()) {
        if (method.getName().equals(name)
            && Arrays.equals(method.getParameterTypes(), new Class<?>[] {parameter})) {
          method.setAccessible(true);
          return method;
        }
      }
    }
    return of.getMethod(name, parameter); // an interface's own
  }
}
