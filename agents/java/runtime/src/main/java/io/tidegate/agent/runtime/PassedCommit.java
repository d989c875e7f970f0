package io.tidegate.agent.runtime;

import io.tidegate.agent.bridge.CommitCall;
import io.tidegate.agent.core.Partition;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.internals.RequestFuture;
import org.apache.kafka.clients.consumer.internals.RequestFutureListener;
import org.apache.kafka.common.TopicPartition;

/** Offsets on their way to the brokers, without those that must not be committed. */
class PassedCommit implements CommitCall {
  private final Map<?, ?> rest;
  private final List<ConsumerGate.Passed> passed;
  private final AtomicBoolean isOver = new AtomicBoolean();

  private PassedCommit(Map<?, ?> rest, List<ConsumerGate.Passed> passed) {
    this.rest = rest;
    this.passed = passed;
  }

  /** One of which nothing is left. */
  static final class OfNothing extends PassedCommit implements CommitCall.Nothing {
    private OfNothing(Map<?, ?> rest, List<ConsumerGate.Passed> passed) {
      super(rest, passed);
    }
  }

  /** Those that the consumers' gates let pass, by their word. */
  static PassedCommit of(
      Map<?, ?> offsets, Set<Partition> dropped, List<ConsumerGate.Passed> passed) {
    if (dropped.isEmpty()) {
      return new PassedCommit(offsets, passed);
    }
    Map<Object, Object> rest = new HashMap<>(offsets);
    Set<Object> out = new HashSet<>();
    dropped.forEach(each -> out.add(ConsumerGate.topicPartition(each)));
    rest.keySet().removeAll(out);
    return rest.isEmpty() ? new OfNothing(rest, passed) : new PassedCommit(rest, passed);
  }

  /** Offsets as the core has them; what is not one, the client refuses by itself. */
  static Map<Partition, Long> named(Map<?, ?> offsets) {
    Map<Partition, Long> named = new HashMap<>();
    offsets.forEach(
        (partition, offset) -> {
          if (partition instanceof TopicPartition && offset instanceof OffsetAndMetadata) {
            named.put(
                ConsumerGate.partition((TopicPartition) partition),
                ((OffsetAndMetadata) offset).offset());
          }
        });
    return named;
  }

  @Override
  public Map<?, ?> offsets() {
    return rest;
  }

  @Override
  public void sent(Object answer) {
    if (answer instanceof RequestFuture) {
      listen((RequestFuture<?>) answer);
    } else if (answer != null) {
      CompletableFuture<?> unused = future(answer).whenComplete((response, trouble) -> ends());
    } else {
      ends();
    }
  }

  private <T> void listen(RequestFuture<T> future) {
    future.addListener(
        new RequestFutureListener<T>() {
          @Override
          public void onSuccess(T value) {
            ends();
          }

          @Override
          public void onFailure(RuntimeException e) {
            ends();
          }
        });
  }

  /** Of the newer client's {@code UnsentRequest}. */
  private static CompletableFuture<?> future(Object unsentRequest) {
    try {
      Method future = unsentRequest.getClass().getDeclaredMethod("future");
      future.setAccessible(true);
      return (CompletableFuture<?>) future.invoke(unsentRequest);
    } catch (ReflectiveOperationException | ClassCastException unknown) {
      throw new IllegalStateException("a commit's end cannot be waited for", unknown);
    }
  }

  private void ends() {
    if (isOver.compareAndSet(false, true)) {
      passed.forEach(ConsumerGate.Passed::ends);
    }
  }
}
