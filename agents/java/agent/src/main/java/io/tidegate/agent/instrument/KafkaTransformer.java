package io.tidegate.agent.instrument;

import io.tidegate.agent.bridge.Member;
import io.tidegate.agent.bridge.Troubles;
import java.lang.instrument.ClassFileTransformer;
import java.security.ProtectionDomain;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import net.bytebuddy.dynamic.ClassFileLocator;

/**
 * Gives Kafka's classes their hooks as they are loaded. For all others it looks at the end of the
 * name and does nothing; ByteBuddy is loaded with the first of Kafka's.
 */
final class KafkaTransformer implements ClassFileTransformer {
  private final Map<ClassLoader, Map<String, Client>> clients = new WeakHashMap<>();

  /** In a class of its own, for it needs ByteBuddy. */
  private static final class OnDemand {
    static final Weaver WEAVER = new Weaver();

    private OnDemand() {}
  }

  @Override
  public byte[] transform(
      ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
    KafkaClass kafkaClass = name == null ? null : KafkaClass.of(name);
    if (kafkaClass == null || loader == null || redefined != null) {
      return null;
    }
    Client client = null;
    try {
      client = client(loader, kafkaClass.prefix(name));
      return weave(client, kafkaClass, name.replace('/', '.'), bytes, loader);
    } catch (Throwable trouble) {
      // Nothing may be thrown here: the class would be loaded as it is, and nobody told.
      Troubles.tell("transform " + name, trouble);
      if (client != null) {
        client.breakFor(name.replace('/', '.') + " could not be instrumented: " + trouble);
      }
      return null;
    }
  }

  private static byte[] weave(
      Client client, KafkaClass kafkaClass, String name, byte[] bytes, ClassLoader loader) {
    ClassFileLocator others = ClassFileLocator.ForClassLoader.of(loader);
    if (client.uses(kafkaClass)) {
      return OnDemand.WEAVER.weave(kafkaClass, name, bytes, others);
    }
    return kafkaClass == KafkaClass.CONSUMER
        ? OnDemand.WEAVER.weaveConstructorOnly(name, bytes, others)
        : null;
  }

  /** The copy of kafka-clients that this loader has; looked at once. */
  Client client(ClassLoader loader, String prefix) {
    Map<String, Client> ofLoader;
    synchronized (clients) {
      ofLoader = clients.computeIfAbsent(loader, any -> new ConcurrentHashMap<>());
    }
    Client known = ofLoader.get(prefix);
    if (known != null) {
      return known;
    }
    // Not under a lock: it reads the loader's resources, which may take locks of its own.
    Client seen = look(loader, prefix);
    Client other = ofLoader.putIfAbsent(prefix, seen);
    return other == null ? seen : other;
  }

  private static Client look(ClassLoader loader, String prefix) {
    String blind = seesBridge(loader);
    if (blind != null) {
      return new Client(prefix, blind, blind);
    }
    ClassFileLocator classes = ClassFileLocator.ForClassLoader.of(loader);
    return new Client(
        prefix,
        OnDemand.WEAVER.trouble(classes, prefix, KafkaClass.CLASSIC),
        OnDemand.WEAVER.trouble(classes, prefix, KafkaClass.NEWER));
  }

  /** Some class loaders (OSGi's) show little of the boot class path; null: this one sees it. */
  private static String seesBridge(ClassLoader loader) {
    try {
      Class<?> seen = Class.forName(Member.class.getName(), false, loader);
      return seen == Member.class ? null : "its class loader has another agent's classes";
    } catch (ClassNotFoundException | LinkageError blind) {
      return "its class loader does not see the boot class path";
    }
  }
}
