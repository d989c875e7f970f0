package io.tidegate.agent.instrument;

import java.util.Collections;
import java.util.EnumSet;
import java.util.Set;

/**
 * Kafka's classes that get hooks. Known by the end of their names, for an application may have
 * moved kafka-clients to a package of its own.
 */
enum KafkaClass {
  CONSUMER("consumer/KafkaConsumer"),
  SUBSCRIPTIONS("consumer/internals/SubscriptionState"),
  /** Of the classic protocol: all commits pass through it. */
  COORDINATOR("consumer/internals/ConsumerCoordinator"),
  /** Of the newer protocol: what all commits are of. */
  COMMIT_MANAGER("consumer/internals/CommitRequestManager"),
  /** Of the newer protocol: one commit. */
  COMMIT("consumer/internals/CommitRequestManager$OffsetCommitRequestState"),
  PRODUCER("producer/KafkaProducer");

  /** What every consumer needs. */
  static final Set<KafkaClass> CLASSIC =
      Collections.unmodifiableSet(EnumSet.of(CONSUMER, SUBSCRIPTIONS, COORDINATOR, PRODUCER));

  /** What those of the newer protocol need besides. */
  static final Set<KafkaClass> NEWER =
      Collections.unmodifiableSet(EnumSet.of(COMMIT_MANAGER, COMMIT));

  private static final KafkaClass[] ALL = values();
  private static final String CLIENTS = "org/apache/kafka/clients/";

  private final String path;

  KafkaClass(String path) {
    this.path = CLIENTS + path;
  }

  /**
   * The class of this name; null: it is none of them, as is nearly every class that is loaded.
   *
   * @param internalName with slashes
   */
  static KafkaClass of(String internalName) {
    for (KafkaClass each : ALL) {
      if (internalName.endsWith(each.path)) {
        int before = internalName.length() - each.path.length() - 1;
        return before < 0 || internalName.charAt(before) == '/' ? each : null;
      }
    }
    return null;
  }

  /** What the application has put before Kafka's own package, with a dot at its end; or nothing. */
  String prefix(String internalName) {
    return internalName.substring(0, internalName.length() - path.length()).replace('/', '.');
  }

  /** Its name in the copy of kafka-clients that has this prefix. */
  String name(String prefix) {
    return prefix + path.replace('/', '.');
  }
}
