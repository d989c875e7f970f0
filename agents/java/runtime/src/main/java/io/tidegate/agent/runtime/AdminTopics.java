package io.tidegate.agent.runtime;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** What the brokers say of topics to an admin client. */
final class AdminTopics implements Topics {
  /** {@code topicNameValues} from kafka-clients 3.1 on; {@code values} is gone in 4.0. */
  private static final Method BY_NAME = byName();

  private final Admin admin;

  AdminTopics(Admin admin) {
    this.admin = admin;
  }

  @Override
  public Optional<String> id(String topic) {
    KafkaFuture<TopicDescription> described = describe(Collections.singleton(topic)).get(topic);
    try {
      return Optional.of(idOf(answer(described)));
    } catch (UnknownTopicOrPartitionException absent) {
      return Optional.empty();
    }
  }

  @Override
  public long end(String topic) {
    TopicPartition partition = new TopicPartition(topic, 0);
    ListOffsetsOptions options = new ListOffsetsOptions();
    options.timeoutMs(REQUEST_MS);
    return answer(
            admin
                .listOffsets(Collections.singletonMap(partition, OffsetSpec.latest()), options)
                .partitionResult(partition))
        .offset();
  }

  @Override
  public Map<String, String> ids(Collection<String> topics) {
    Map<String, String> found = new HashMap<>();
    describe(topics)
        .forEach(
            (topic, described) -> {
              try {
                String id = idOf(answer(described));
                if (!id.equals(UNTOLD)) {
                  found.put(topic, id);
                }
              } catch (InterruptException interrupted) {
                throw interrupted;
              } catch (KafkaException untold) {
                // Without its id, what discovery said of it last counts.
                return;
              }
            });
    return found;
  }

  @Override
  public void close() {
    admin.close(Duration.ZERO);
  }

  private Map<String, KafkaFuture<TopicDescription>> describe(Collection<String> topics) {
    DescribeTopicsOptions options = new DescribeTopicsOptions();
    options.timeoutMs(REQUEST_MS);
    DescribeTopicsResult result = admin.describeTopics(new ArrayList<>(topics), options);
    try {
      @SuppressWarnings("unchecked")
      Map<String, KafkaFuture<TopicDescription>> byName =
          (Map<String, KafkaFuture<TopicDescription>>) BY_NAME.invoke(result);
      return byName;
    } catch (IllegalAccessException | InvocationTargetException unexpected) {
      throw new KafkaException(
          "this version of kafka-clients does not describe topics", unexpected);
    }
  }

  private static String idOf(TopicDescription topic) {
    Uuid id = topic.topicId();
    return id == null || id.equals(Uuid.ZERO_UUID) ? UNTOLD : id.toString();
  }

  private static <T> T answer(KafkaFuture<T> future) {
    try {
      return future.get(REQUEST_MS + 1_000, TimeUnit.MILLISECONDS);
    } catch (InterruptedException interrupted) {
      throw new InterruptException(interrupted);
    } catch (java.util.concurrent.TimeoutException late) {
      throw new TimeoutException("no answer", late);
    } catch (ExecutionException failed) {
      if (failed.getCause() instanceof KafkaException) {
        throw (KafkaException) failed.getCause();
      }
      throw new KafkaException(failed.getCause());
    }
  }

  private static Method byName() {
    try {
      return DescribeTopicsResult.class.getMethod("topicNameValues");
    } catch (NoSuchMethodException before) {
      try {
        return DescribeTopicsResult.class.getMethod("values");
      } catch (NoSuchMethodException unexpected) {
        throw new IllegalStateException(unexpected);
      }
    }
  }
}
