package io.tidegate.agent.runtime;

import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.ApiException;

/** Why something failed, in one line for a log. */
final class Reason {
  private static final int DEEPEST = 10;

  private Reason() {}

  /**
   * What Kafka says itself, and of anything else only what kind of thing it is: such a message may
   * have a setting's value in it, and with it a secret.
   */
  static String of(Throwable thrown) {
    Throwable cause = thrown;
    for (int i = 0; i < DEEPEST && !tells(cause) && cause.getCause() != null; i++) {
      cause = cause.getCause();
    }
    String kind = cause.getClass().getSimpleName();
    return tells(cause) ? kind + ": " + Quoted.plain(cause.getMessage()) : kind;
  }

  private static boolean tells(Throwable thrown) {
    boolean isKafkas = thrown instanceof ApiException || thrown.getClass() == KafkaException.class;
    boolean isTheLast = thrown instanceof ApiException || thrown.getCause() == null;
    return isKafkas
        && isTheLast
        && !(thrown instanceof ConfigException)
        && thrown.getMessage() != null;
  }
}
