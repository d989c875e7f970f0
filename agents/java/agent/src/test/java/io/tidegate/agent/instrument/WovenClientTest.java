package io.tidegate.agent.instrument;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tidegate.agent.bridge.CommitCall;
import io.tidegate.agent.bridge.Governed;
import io.tidegate.agent.bridge.Member;
import io.tidegate.agent.bridge.PollCall;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What the hooks make of each release's {@code SubscriptionState}, which is loaded and used. */
class WovenClientTest {
  private static final String KAFKA = "org.apache.kafka.";

  @ParameterizedTest
  @ValueSource(strings = {"2.8.2", "3.4.1", "3.7.2", "3.9.2", "4.0.2", "4.3.1"})
  void itsMemberIsAskedAndTold(String version) throws Exception {
    ClassLoader loader = new KafkaJars.Woven(version, Collections.emptyMap());
    Object subscriptions = subscriptions(loader);
    Recording member = new Recording();
    ((Governed) subscriptions).tidegate$member(member);
    Object orders = partition(loader, "orders", 0);
    Object others = partition(loader, "others", 3);

    call(subscriptions, "assignFromUser", Set.of(orders, others));
    member.withheld.add(orders);

    assertEquals(List.of("reassigned by the user: true"), member.told);
    assertEquals(true, call(subscriptions, "isPaused", orders));
    assertEquals(false, call(subscriptions, "isPaused", others));
    assertEquals(Set.of(), call(subscriptions, "pausedPartitions"));
    call(subscriptions, "seek", orders, 7L);
    call(subscriptions, "seek", others, 7L);
    assertEquals(false, call(subscriptions, "isFetchable", orders));
    assertEquals(true, call(subscriptions, "isFetchable", others));
    Predicate<Object> any = partition -> true;
    assertEquals(List.of(others), call(subscriptions, "fetchablePartitions", any));
    call(subscriptions, "unsubscribe");
    assertEquals("reassigned by the user: false", member.told.get(1));
  }

  @ParameterizedTest
  @ValueSource(strings = {"2.8.2", "3.4.1", "3.7.2", "3.9.2", "4.0.2", "4.3.1"})
  void partitionsThatAreToWaitGetNoPosition(String version) throws Exception {
    ClassLoader loader = new KafkaJars.Woven(version, Collections.emptyMap());
    Object subscriptions = subscriptions(loader);
    Recording member = new Recording();
    Object waiting = partition(loader, "orders", 0);
    Object other = partition(loader, "orders", 1);
    call(subscriptions, "assignFromUser", Set.of(waiting, other));
    ((Governed) subscriptions).tidegate$member(member);

    member.unplaced.add(waiting);
    call(subscriptions, "resetInitializingPositions");

    boolean isBySome = version.startsWith("4.");
    assertEquals(
        isBySome ? Set.of(waiting) : Set.of(waiting, other),
        call(subscriptions, "initializingPartitions"));
    member.unplaced.clear();
    call(subscriptions, "resetInitializingPositions");
    assertEquals(Set.of(), call(subscriptions, "initializingPartitions"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"2.8.2", "4.3.1"})
  void withoutAMemberItIsAsEver(String version) throws Exception {
    ClassLoader loader = new KafkaJars.Woven(version, Collections.emptyMap());
    Object subscriptions = subscriptions(loader);
    Object orders = partition(loader, "orders", 0);

    call(subscriptions, "assignFromUser", Set.of(orders));
    call(subscriptions, "resetInitializingPositions");

    assertEquals(false, call(subscriptions, "isPaused", orders));
    assertEquals(Set.of(), call(subscriptions, "initializingPartitions"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"2.8.2", "3.4.1", "3.7.2", "3.9.2", "4.0.2", "4.3.1"})
  void allItsClassesAreAcceptedByTheJvm(String version) throws Exception {
    KafkaJars.Woven loader = new KafkaJars.Woven(version, Collections.emptyMap());
    for (KafkaClass each : KafkaClass.values()) {
      if (loader.client().uses(each)) {
        Class<?> loaded = Class.forName(each.name(""), true, loader);
        boolean isGoverned = each == KafkaClass.CONSUMER || each == KafkaClass.SUBSCRIPTIONS;
        assertEquals(isGoverned, Governed.class.isAssignableFrom(loaded));
      }
    }
    assertTrue(loader.client().trouble(false).isEmpty());
    assertFalse(loader.client().prefix().contains("."));
  }

  private static Object subscriptions(ClassLoader loader) throws ReflectiveOperationException {
    Class<?> logContext = loader.loadClass(KAFKA + "common.utils.LogContext");
    Class<?> type = loader.loadClass(KafkaClass.SUBSCRIPTIONS.name(""));
    Constructor<?> constructor = type.getConstructors()[0];
    Class<?> strategy = constructor.getParameterTypes()[1];
    Object latest = strategy.getField("LATEST").get(null);
    return constructor.newInstance(logContext.getConstructor().newInstance(), latest);
  }

  private static Object partition(ClassLoader loader, String topic, int number)
      throws ReflectiveOperationException {
    return loader
        .loadClass(KAFKA + "common.TopicPartition")
        .getConstructor(String.class, int.class)
        .newInstance(topic, number);
  }

  private static Object call(Object of, String name, Object... arguments)
      throws ReflectiveOperationException {
    for (Method method : of.getClass().getDeclaredMethods()) {
      if (method.getName().equals(name) && fits(method, arguments)) {
        method.setAccessible(true);
        return method.invoke(of, arguments);
      }
    }
    throw new NoSuchMethodException(name);
  }

  private static boolean fits(Method method, Object... arguments) {
    Class<?>[] types = method.getParameterTypes();
    boolean fits = types.length == arguments.length;
    for (int i = 0; fits && i < types.length; i++) {
      fits = types[i].isInstance(arguments[i]) || types[i] == long.class;
    }
    return fits;
  }

  /** Withholds what it is told to. */
  private static final class Recording implements Member {
    private final Set<Object> withheld = new HashSet<>();
    private final Set<Object> unplaced = new HashSet<>();
    private final List<String> told = new ArrayList<>();

    @Override
    public boolean isWithheld(Object partition) {
      return withheld.contains(partition);
    }

    @Override
    public void removeWithheld(List<?> partitions) {
      partitions.removeAll(withheld);
    }

    @Override
    public void reassigned(boolean isByUser) {
      told.add("reassigned by the user: " + isByUser);
    }

    @Override
    public Predicate<?> placed(Predicate<?> included) {
      return partition -> !unplaced.contains(partition);
    }

    @Override
    public boolean mustWait() {
      return !unplaced.isEmpty();
    }

    @Override
    public PollCall pollBegins(Duration timeout) {
      return null;
    }

    @Override
    public void sought(Object partitions) {}

    @Override
    public CommitCall commitBegins(Map<?, ?> offsets) {
      return null;
    }

    @Override
    public void closed() {}
  }
}
