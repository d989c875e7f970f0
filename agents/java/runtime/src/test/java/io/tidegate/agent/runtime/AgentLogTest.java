package io.tidegate.agent.runtime;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.slf4j.Logger;

/** What reaches a log of what others have written, such as a pause's reason. */
class AgentLogTest {
  private static final String FORGED = "paused: audit\nERROR the shop: no money\u001b[31m\u2028";
  private static final String SHOWN = "paused: audit ERROR the shop: no money [31m ";

  @Test
  void aMessageIsOneLineOnStandardError() {
    ByteArrayOutputStream written = new ByteArrayOutputStream();
    AgentLog.to(new PrintStream(written, true, UTF_8), AgentLog.Level.INFO).info(FORGED);

    assertTrue(written.toString(UTF_8).endsWith(SHOWN + System.lineSeparator()), written::toString);
    assertEquals(1, written.toString(UTF_8).lines().count());
  }

  @Test
  void aMessageIsOneLineInTheApplicationsLog() {
    List<Object> logged = new ArrayList<>();
    Logger logger =
        (Logger)
            Proxy.newProxyInstance(
                getClass().getClassLoader(),
                new Class<?>[] {Logger.class},
                (proxy, method, arguments) -> {
                  logged.add(arguments[0]);
                  return null;
                });
    AgentLog.to(logger).info(FORGED);

    assertEquals(List.of(SHOWN), logged);
  }
}
