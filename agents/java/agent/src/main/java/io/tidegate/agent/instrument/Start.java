package io.tidegate.agent.instrument;

import io.tidegate.agent.bridge.Attacher;
import io.tidegate.agent.bridge.Runtimes;
import java.io.File;
import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.lang.ref.SoftReference;
import java.lang.reflect.InvocationTargetException;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;

/** Begins the agent, once the boot class path has it. */
public final class Start {
  private static final String ATTACHMENTS = "io.tidegate.agent.runtime.Attachments";
  private static final String STARTUP = "io.tidegate.agent.runtime.Startup";

  private static final String REFUSAL = "io.tidegate.agent.runtime.SettingsException";

  private static final AtomicBoolean HAS_BEGUN = new AtomicBoolean();

  private Start() {}

  /**
   * Kafka's classes get hooks from now on, if the environment wants that. A JVM may be given the
   * agent twice, by its command line and by its environment: once is enough.
   *
   * @throws IllegalArgumentException where it says something that means nothing, and that the
   *     application must not start then
   */
  public static void start(Instrumentation instrumentation, File agentJar) {
    if (!HAS_BEGUN.compareAndSet(false, true)) {
      return;
    }
    RuntimeClasses runtime = new RuntimeClasses(agentJar);
    if (!isWanted(runtime)) {
      return;
    }
    KafkaTransformer transformer = new KafkaTransformer();
    Runtimes.makeBy(type -> attacher(type, transformer, runtime));
    instrumentation.addTransformer(transformer);
  }

  /** Asked in a loader of its own: what is decided now needs none of the application's classes. */
  private static boolean isWanted(RuntimeClasses runtime) {
    try {
      ClassLoader loader =
          new RuntimeLoader(ClassLoader.getSystemClassLoader(), "", runtime.classes());
      return (Boolean) loader.loadClass(STARTUP).getMethod("isWanted").invoke(null);
    } catch (InvocationTargetException thrown) {
      Throwable cause = thrown.getCause();
      if (cause.getClass().getName().equals(REFUSAL)) {
        throw new IllegalArgumentException(cause.getMessage(), cause);
      }
      System.err.println("[tidegate] the agent cannot be started: " + cause);
      return false;
    } catch (Exception | LinkageError trouble) {
      System.err.println("[tidegate] the agent cannot be started: " + trouble);
      return false;
    }
  }

  /** Those of one copy of kafka-clients; null: it has no consumers. */
  private static Attacher attacher(
      Class<?> type, KafkaTransformer transformer, RuntimeClasses runtime) {
    String name = type.getName().replace('.', '/');
    KafkaClass kafkaClass = KafkaClass.of(name);
    if (kafkaClass == null) {
      return null;
    }
    String prefix = kafkaClass.prefix(name);
    try {
      if (kafkaClass != KafkaClass.CONSUMER) {
        String consumer = KafkaClass.CONSUMER.name(prefix);
        return Runtimes.of(Class.forName(consumer, false, type.getClassLoader()));
      }
      Client client = transformer.client(type.getClassLoader(), prefix);
      ClassLoader loader = new RuntimeLoader(type.getClassLoader(), prefix, runtime.classes());
      Function<Boolean, Optional<String>> trouble = client::trouble;
      return (Attacher)
          loader.loadClass(ATTACHMENTS).getConstructor(Function.class).newInstance(trouble);
    } catch (Exception trouble) {
      throw new IllegalStateException("the runtime cannot be loaded beside " + type, trouble);
    }
  }

  /** The runtime's byte code, kept as long as there is memory for it. */
  private static final class RuntimeClasses {
    private final File agentJar;
    private SoftReference<Map<String, byte[]>> read = new SoftReference<>(null);

    RuntimeClasses(File agentJar) {
      this.agentJar = agentJar;
    }

    synchronized Map<String, byte[]> classes() throws IOException {
      Map<String, byte[]> classes = read.get();
      if (classes == null) {
        classes = RuntimeLoader.read(agentJar);
        read = new SoftReference<>(classes);
      }
      return classes;
    }
  }
}
