package io.tidegate.agent.instrument;

import static net.bytebuddy.matcher.ElementMatchers.isConstructor;
import static net.bytebuddy.matcher.ElementMatchers.isPublic;
import static net.bytebuddy.matcher.ElementMatchers.nameEndsWith;
import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.takesArgument;
import static net.bytebuddy.matcher.ElementMatchers.takesArguments;

import io.tidegate.agent.instrument.advice.CommitAdvice;
import io.tidegate.agent.instrument.advice.ConsumerAdvice;
import io.tidegate.agent.instrument.advice.SubscriptionAdvice;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import net.bytebuddy.description.method.MethodDescription;
import net.bytebuddy.description.type.TypeDescription;
import net.bytebuddy.matcher.ElementMatcher;

/** Which hooks each of Kafka's classes gets, and what else of it is relied on. */
final class Plan {
  private static final String RESET = "resetInitializingPositions";

  private static final List<Hook> CONSUMER =
      Arrays.asList(
          Hook.one(
              ConsumerAdvice.Created.class,
              "KafkaConsumer(ConsumerConfig, Deserializer, Deserializer)",
              isConstructor()
                  .and(takesArguments(3))
                  .and(takesArgument(0, nameEndsWith(".ConsumerConfig")))),
          taking(ConsumerAdvice.Poll.class, "poll", Duration.class),
          Hook.perhaps(
              ConsumerAdvice.PollMillis.class,
              "poll(long)",
              named("poll").and(takesArguments(long.class)).and(isPublic())),
          Hook.one(
              ConsumerAdvice.Sought.class,
              "seek(TopicPartition, long)",
              named("seek").and(takesArguments(2)).and(takesArgument(1, long.class))),
          Hook.one(
              ConsumerAdvice.Sought.class,
              "seek(TopicPartition, OffsetAndMetadata)",
              named("seek").and(takesArgument(1, nameEndsWith(".OffsetAndMetadata")))),
          taking(ConsumerAdvice.Sought.class, "seekToBeginning", Collection.class),
          taking(ConsumerAdvice.Sought.class, "seekToEnd", Collection.class),
          Hook.some(ConsumerAdvice.Closed.class, "close(…)", named("close").and(isPublic())));

  private static final List<Hook> SUBSCRIPTIONS =
      Arrays.asList(
          ofPartition(SubscriptionAdvice.Paused.class, "isPaused"),
          ofPartition(SubscriptionAdvice.Fetchable.class, "isFetchable"),
          taking(SubscriptionAdvice.FetchableOnes.class, "fetchablePartitions", Predicate.class),
          taking(SubscriptionAdvice.Reassigned.class, "assignFromSubscribed", Collection.class),
          taking(SubscriptionAdvice.Reassigned.class, "unsubscribe"),
          taking(SubscriptionAdvice.AssignedByUser.class, "assignFromUser", Set.class));

  /** The one that decides: without an argument up to 3.9, with one from 4.0 on. */
  private static final Hook RESET_SOME =
      taking(SubscriptionAdvice.ResetSome.class, RESET, Predicate.class);

  private static final Hook RESET_ALL = taking(SubscriptionAdvice.ResetAll.class, RESET);

  private static final List<Hook> COORDINATOR =
      Collections.singletonList(
          taking(CommitAdvice.Classic.class, "sendOffsetCommitRequest", Map.class));

  private static final List<Hook> COMMIT =
      Collections.singletonList(taking(CommitAdvice.Newer.class, "toUnsentRequest"));

  private static final List<Hook> PRODUCER =
      Collections.singletonList(
          Hook.one(
              CommitAdvice.Transactional.class,
              "sendOffsetsToTransaction(Map, ConsumerGroupMetadata)",
              named("sendOffsetsToTransaction")
                  .and(takesArgument(0, Map.class))
                  .and(takesArgument(1, nameEndsWith(".ConsumerGroupMetadata")))));

  private Plan() {}

  /** The hooks of a class. */
  static List<Hook> hooks(KafkaClass kafkaClass, TypeDescription type) {
    switch (kafkaClass) {
      case CONSUMER:
        return CONSUMER;
      case SUBSCRIPTIONS:
        List<Hook> hooks = new ArrayList<>(SUBSCRIPTIONS);
        hooks.add(RESET_SOME.trouble(type) == null ? RESET_SOME : RESET_ALL);
        return Collections.unmodifiableList(hooks);
      case COORDINATOR:
        return COORDINATOR;
      case COMMIT_MANAGER:
        return Collections.emptyList();
      case COMMIT:
        return COMMIT;
      case PRODUCER:
        return PRODUCER;
    }
    throw new IllegalArgumentException(kafkaClass.name());
  }

  /** What keeps the hooks from being put into this class, all of them; null: nothing. */
  static String trouble(KafkaClass kafkaClass, TypeDescription type) {
    for (Hook hook : hooks(kafkaClass, type)) {
      String trouble = hook.trouble(type);
      if (trouble != null) {
        return trouble;
      }
    }
    return missing(type, members(kafkaClass));
  }

  /** What advice or runtime use of it. */
  private static List<String> members(KafkaClass kafkaClass) {
    switch (kafkaClass) {
      case SUBSCRIPTIONS:
        return Arrays.asList(
            "position", "assignedPartitions", "initializingPartitions", "requestOffsetReset");
      case COORDINATOR:
        return Arrays.asList("subscriptions", "pendingCommittedOffsetRequest");
      case COMMIT_MANAGER:
        return Collections.singletonList("subscriptions");
      case COMMIT:
        return Arrays.asList("this$0", "offsets");
      default:
        return Collections.emptyList();
    }
  }

  private static String missing(TypeDescription type, List<String> members) {
    for (String name : members) {
      boolean isField = !type.getDeclaredFields().filter(named(name)).isEmpty();
      if (!isField && type.getDeclaredMethods().filter(named(name)).isEmpty()) {
        return type.getName() + " has no " + name;
      }
      // Kafka 3.7 and 3.8, where the newer protocol was not finished.
      if (name.equals("offsets")
          && type.getDeclaredFields().filter(named(name)).getOnly().isFinal()) {
        return type.getName() + " keeps its offsets";
      }
    }
    return null;
  }

  private static Hook taking(Class<?> advice, String name, Class<?>... arguments) {
    ElementMatcher<MethodDescription> methods = named(name).and(takesArguments(arguments));
    return Hook.one(advice, name + Arrays.toString(arguments), methods);
  }

  private static Hook ofPartition(Class<?> advice, String name) {
    return Hook.one(
        advice,
        name + "(TopicPartition)",
        named(name).and(takesArguments(1)).and(takesArgument(0, nameEndsWith(".TopicPartition"))));
  }
}
