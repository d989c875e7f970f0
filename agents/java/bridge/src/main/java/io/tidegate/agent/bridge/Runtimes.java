package io.tidegate.agent.bridge;

import java.util.function.Function;

/**
 * By which {@link Attacher} the consumers of a copy of kafka-clients are governed. It is kept with
 * the copy's own {@code KafkaConsumer} class, so that it goes when that class goes: an application
 * that is deployed again in one JVM leaves nothing here.
 */
public final class Runtimes {
  private static volatile Function<Class<?>, Attacher> maker;

  private static final ClassValue<Attacher> OF_CLASS =
      new ClassValue<Attacher>() {
        @Override
        protected Attacher computeValue(Class<?> type) {
          Function<Class<?>, Attacher> made = maker;
          return made == null ? null : made.apply(type);
        }
      };

  private Runtimes() {}

  /** Called by the agent when it starts: how an attacher is made for a copy's class. */
  public static void makeBy(Function<Class<?>, Attacher> newMaker) {
    maker = newMaker;
  }

  /**
   * The attacher of this class's copy of kafka-clients; null: there is none.
   *
   * @param type the copy's {@code KafkaConsumer}, or {@code KafkaProducer} whose attacher is that
   *     of the consumers
   */
  public static Attacher of(Class<?> type) {
    return OF_CLASS.get(type);
  }
}
