package io.tidegate.agent.instrument;

import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;

/**
 * One copy of kafka-clients, as its classes show before the first of them is loaded: whether its
 * consumers can be governed. All the hooks are put into it that a consumer needs, or none.
 */
final class Client {
  private final String prefix;
  private final String classicTrouble;
  private final String newerTrouble;
  private final AtomicReference<String> broken = new AtomicReference<>();

  /** Troubles: null where there is none. */
  Client(String prefix, String classicTrouble, String newerTrouble) {
    this.prefix = prefix;
    this.classicTrouble = classicTrouble;
    this.newerTrouble = newerTrouble;
  }

  /** What the application has put before Kafka's own package. */
  String prefix() {
    return prefix;
  }

  /** Whether this class of it gets its hooks. */
  boolean uses(KafkaClass kafkaClass) {
    if (KafkaClass.NEWER.contains(kafkaClass)) {
      return classicTrouble == null && newerTrouble == null;
    }
    return classicTrouble == null;
  }

  /** A class did not get its hooks after all. */
  void breakFor(String reason) {
    broken.compareAndSet(null, reason);
  }

  /**
   * Why consumers of a protocol are not governed, or, those that are, ack nothing any more.
   *
   * @param isNewer of the protocol {@code consumer}; otherwise of the classic one
   * @return empty: they are governed
   */
  Optional<String> trouble(boolean isNewer) {
    String seen = classicTrouble != null || !isNewer ? classicTrouble : newerTrouble;
    return Optional.ofNullable(seen != null ? seen : broken.get());
  }
}
