package io.tidegate.agent.runtime;

import java.lang.reflect.Constructor;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A thread of the agent: a daemon that has nothing of the thread that starts it but the context
 * class loader, by which Kafka's clients find the application's classes.
 */
final class AgentThread {
  private static final String NAME = "tidegate-agent-";

  private static final Set<Thread> RUNNING = ConcurrentHashMap.newKeySet();

  /** From Java 9 on: a thread without the starting one's inheritable values. */
  private static final Constructor<Thread> BARE = bare();

  private AgentThread() {}

  /**
   * @param what in its name, for those who read thread dumps
   * @param loader its context class loader
   */
  static Thread of(String what, ClassLoader loader, Runnable work) {
    Thread thread = thread(NAME + what, () -> run(work));
    thread.setDaemon(true);
    thread.setContextClassLoader(loader);
    return thread;
  }

  /** Whether this code runs on one of them. */
  static boolean isCurrent() {
    return RUNNING.contains(Thread.currentThread());
  }

  private static void run(Runnable work) {
    RUNNING.add(Thread.currentThread());
    try {
      work.run();
    } finally {
      RUNNING.remove(Thread.currentThread());
    }
  }

  private static Thread thread(String name, Runnable work) {
    if (BARE != null) {
      try {
        return BARE.newInstance(null, work, name, 0L, false);
      } catch (ReflectiveOperationException unexpected) {
        return new Thread(work, name);
      }
    }
    return new Thread(work, name);
  }

  private static Constructor<Thread> bare() {
    try {
      return Thread.class.getConstructor(
          ThreadGroup.class, Runnable.class, String.class, long.class, boolean.class);
    } catch (NoSuchMethodException java8) {
      return null;
    }
  }
}
