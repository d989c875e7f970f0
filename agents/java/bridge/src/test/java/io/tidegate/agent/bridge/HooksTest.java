package io.tidegate.agent.bridge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.net.URL;
import java.net.URLClassLoader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What instrumented classes call: whatever is wrong with the agent stays away from them. */
class HooksTest {
  private final List<String> told = new ArrayList<>();

  @BeforeEach
  void listen() {
    Troubles.tellBy((where, trouble) -> told.add(where + ": " + trouble.getMessage()));
  }

  @AfterEach
  void forget() {
    Runtimes.makeBy(null);
  }

  /** A member of which every call fails. */
  private static Member failing(String why) {
    InvocationHandler fails =
        (proxy, method, arguments) -> {
          throw new IllegalStateException(why);
        };
    return (Member)
        Proxy.newProxyInstance(
            HooksTest.class.getClassLoader(), new Class<?>[] {Member.class}, fails);
  }

  @Test
  void aFailingMemberIsToldOnceForEachPlaceAndHandsOutNothing() {
    Member member = failing("broken");
    List<Object> partitions = new ArrayList<>(List.of("orders-0"));

    for (int twice = 0; twice < 2; twice++) {
      assertTrue(Hooks.isWithheld(member, "orders-0"));
      Hooks.removeWithheld(member, partitions);
      Hooks.reassigned(member, true);
      assertNull(Hooks.pollBegins(member, Duration.ofSeconds(1)));
      Hooks.sought(member, "orders-0");
      Hooks.closed(member, null);
    }

    assertEquals(List.of("orders-0"), partitions);
    assertEquals(
        List.of(
            "isWithheld: broken",
            "removeWithheld: broken",
            "reassigned: broken",
            "pollBegins: broken",
            "sought: broken",
            "closed: broken"),
        told);
  }

  @Test
  void offsetsOfSubscriptionsWithoutAMemberGoOutAsTheyAre() {
    assertNull(Hooks.commitBegins(new Object(), Map.of()));
    assertNull(Hooks.commitBeginsBy(new Object(), Map.of()));
    assertNull(Hooks.transactionBegins(HooksTest.class, Map.of(), "group"));
  }

  @Test
  void aConsumerThatCouldNotBeClosedIsStillThere() {
    Member member = failing("closed after all");

    Hooks.closed(member, new ConcurrentModificationException());
    Hooks.closed(member, new IllegalArgumentException());

    assertEquals(List.of(), told);
  }

  @Test
  void whatTheApplicationSaidWrongIsThrown() {
    IllegalArgumentException refusal = new IllegalArgumentException("not so");
    Runtimes.makeBy(type -> attacher(refusal));

    assertEquals(
        refusal,
        assertThrows(
            IllegalArgumentException.class,
            () -> Hooks.created(WhatIsRefused.class, new Object(), new Object())));
  }

  private static final class WhatIsRefused {}

  private static Attacher attacher(RuntimeException refusal) {
    return new Attacher() {
      @Override
      public RuntimeException attach(Object consumer, Object config) {
        return refusal;
      }

      @Override
      public CommitCall transactionBegins(Map<?, ?> offsets, Object groupMetadata) {
        return null;
      }
    };
  }

  /** Loads this test's classes again, as a web application that is deployed again. */
  private static final class Redeployed extends URLClassLoader {
    Redeployed() {
      super(new URL[] {HooksTest.class.getProtectionDomain().getCodeSource().getLocation()}, null);
    }
  }

  @Test
  void anApplicationThatIsGoneIsForgotten() throws Exception {
    WeakReference<ClassLoader> gone = deployAndDrop();

    for (int tries = 0; gone.get() != null && tries < 50; tries++) {
      System.gc();
      Thread.sleep(20);
    }
    assertNull(gone.get());
  }

  private static WeakReference<ClassLoader> deployAndDrop() throws Exception {
    ClassLoader loader = new Redeployed();
    Class<?> type = Class.forName(Plain.class.getName(), true, loader);
    assertEquals(loader, type.getClassLoader());
    // As the agent's: a class below the application's loader, which has the consumer's class.
    Runtimes.makeBy(of -> new Holding(of, attacher(null)));
    assertTrue(Runtimes.of(type) instanceof Holding);
    return new WeakReference<>(loader);
  }

  /** Needs nothing that its loader has not. */
  public static final class Plain {}

  private record Holding(Class<?> type, Attacher rest) implements Attacher {
    @Override
    public RuntimeException attach(Object consumer, Object config) {
      return rest.attach(consumer, config);
    }

    @Override
    public CommitCall transactionBegins(Map<?, ?> offsets, Object groupMetadata) {
      return rest.transactionBegins(offsets, groupMetadata);
    }
  }
}
