package io.tidegate.agent.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tidegate.agent.core.Effect;
import io.tidegate.agent.core.Partition;
import java.net.URL;
import java.net.URLClassLoader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** Who shares a link, and that nothing is left of one that nobody has. */
class LinksTest {
  private static final Map<String, Object> NOWHERE = Map.of("bootstrap.servers", "localhost:1");

  private static Settings settings(String controlTopic) throws SettingsException {
    Map<String, String> variables =
        Map.of("TIDEGATE_CONTROL_TOPIC", controlTopic, "TIDEGATE_LOG", "ERROR");
    return Settings.read(new Environment(variables::get, name -> null));
  }

  private static Set<Thread> kafkaThreads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(
            thread ->
                thread.getName().contains("tidegate") || thread.getName().startsWith("kafka-"))
        .collect(Collectors.toSet());
  }

  @Test
  void whoReachesOneClusterInOneWaySharesALink() throws SettingsException {
    Settings settings = settings("__tidegate");
    try (Links.Lease one = Links.lease(NOWHERE, settings);
        Links.Lease same =
            Links.lease(Map.of("bootstrap.servers", "localhost:1", "group.id", "other"), settings);
        Links.Lease elsewhere = Links.lease(Map.of("bootstrap.servers", "localhost:2"), settings);
        Links.Lease another = Links.lease(NOWHERE, settings("ops.gates"))) {
      assertSame(one.link(), same.link());
      assertNotSame(one.link(), elsewhere.link());
      assertNotSame(one.link(), another.link());
    }
  }

  @Test
  void aContextClassLoaderHasItsOwn() throws Exception {
    Settings settings = settings("__tidegate");
    Thread thread = Thread.currentThread();
    ClassLoader before = thread.getContextClassLoader();
    try (Links.Lease one = Links.lease(NOWHERE, settings);
        URLClassLoader web = new URLClassLoader(new URL[0], before)) {
      thread.setContextClassLoader(web);
      try (Links.Lease other = Links.lease(NOWHERE, settings)) {
        assertNotSame(one.link(), other.link());
      }
    } finally {
      thread.setContextClassLoader(before);
    }
  }

  @Test
  void theLastOneThatLetsGoEndsItsThreads() throws Exception {
    InheritableThreadLocal<String> ofTheApplication = new InheritableThreadLocal<>();
    ofTheApplication.set("theirs");
    Settings settings = settings("__tidegate");
    Links.Lease one = Links.lease(NOWHERE, settings);
    Links.Lease two = Links.lease(NOWHERE, settings);
    final ControlLink link = (ControlLink) one.link();
    assertEquals(List.of(), link.threads(), "nobody has asked anything");
    one.link().ask(List.of());
    List<Thread> threads = link.threads();
    assertEquals(3, threads.size());
    for (Thread thread : threads) {
      assertTrue(thread.isDaemon());
      assertSame(Thread.currentThread().getContextClassLoader(), thread.getContextClassLoader());
    }
    List<String> inherited = new CopyOnWriteArrayList<>();
    Thread bare =
        AgentThread.of("test", null, () -> inherited.add(String.valueOf(ofTheApplication.get())));
    bare.start();
    bare.join();

    one.close();
    one.close();
    assertEquals(3, threads.stream().filter(Thread::isAlive).count(), "another one has it");
    two.close();
    long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
    while (!kafkaThreads().isEmpty()) {
      assertTrue(System.nanoTime() < deadline, () -> "they live: " + kafkaThreads());
      Thread.onSpinWait();
    }
    assertEquals(List.of("null"), inherited);
    List<Boolean> told = new ArrayList<>();
    link.sendAcks("g", "", Map.of(new Partition("t", 0), new Effect.AckWord(1, 2)), 0, told::add);
    link.ask(List.of());
    assertEquals(List.of(false), told);
    assertTrue(link.threads().stream().noneMatch(Thread::isAlive));
    try (Links.Lease again = Links.lease(NOWHERE, settings)) {
      assertNotSame(link, again.link());
    }
  }

  @Test
  void onlyTheAgentsThreadsMakeClientsThatAreNotGoverned() throws InterruptedException {
    List<Boolean> found = new CopyOnWriteArrayList<>();
    Thread agents = AgentThread.of("test", null, () -> found.add(OwnClients.isCreating()));
    agents.start();
    agents.join();

    assertEquals(List.of(true), found);
    assertFalse(OwnClients.isCreating());
  }
}
