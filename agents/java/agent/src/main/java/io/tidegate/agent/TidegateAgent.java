package io.tidegate.agent;

import io.tidegate.agent.instrument.Start;
import java.io.File;
import java.lang.instrument.Instrumentation;
import java.util.jar.JarFile;

/**
 * Where the JVM enters the agent: {@code -javaagent:tidegate-agent.jar}.
 *
 * <p>It does nothing but put the agent's jar on the boot class path, where what instrumented
 * classes call has to be, and hand over to {@link Start}, which is found there from then on. So
 * nothing is written to a file system, which may be read-only.
 */
public final class TidegateAgent {
  private TidegateAgent() {}

  /**
   * Called before the application's {@code main}. Ends the process with exit code 1 where the
   * environment says something that means nothing, and {@code TIDEGATE_STRICT} that the application
   * must not start then.
   */
  public static void premain(String arguments, Instrumentation instrumentation) {
    File jar;
    try {
      jar =
          new File(TidegateAgent.class.getProtectionDomain().getCodeSource().getLocation().toURI());
      instrumentation.appendToBootstrapClassLoaderSearch(new JarFile(jar));
    } catch (Exception | LinkageError trouble) {
      System.err.println("[tidegate] the agent cannot be loaded: " + trouble);
      return;
    }
    try {
      Start.start(instrumentation, jar);
    } catch (IllegalArgumentException refused) {
      // Thrown from here it would have the JVM abort, as if the JVM had failed.
      System.err.println("[tidegate] " + refused.getMessage());
      Runtime.getRuntime().halt(1);
    }
  }
}
