package io.tidegate.agent.runtime;

import static io.tidegate.agent.runtime.ControlLog.GATE;
import static io.tidegate.agent.runtime.ControlLog.OTHER;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tidegate.agent.core.Gate;
import io.tidegate.agent.core.Known;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.slf4j.Logger;

/** A link on a control topic in memory: read from its start again, lost, or another one. */
class ControlLinkTest {
  private static final Duration HOUR = Duration.ofHours(1);

  private final ByteArrayOutputStream written = new ByteArrayOutputStream();
  private final ControlLog topic = new ControlLog();
  private final ControlLink link =
      new ControlLink(
          topic,
          null,
          ControlLog.NAME,
          ControlLog.ACKS,
          AgentLog.to(new PrintStream(written, true, StandardCharsets.UTF_8), AgentLog.Level.INFO),
          topic);

  @BeforeEach
  void something() {
    topic.release(GATE);
  }

  @AfterEach
  void close() throws InterruptedException {
    List<Thread> threads = link.threads();
    topic.readable(true);
    link.close();
    for (Thread thread : threads) {
      thread.join(10_000);
      assertFalse(thread.isAlive(), thread.getName());
    }
    assertEquals(0, topic.readers());
  }

  private void until(BooleanSupplier reached, String what, Runnable meanwhile) {
    long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
    while (!reached.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, () -> "not within 20 s: " + what + "\n" + written);
      meanwhile.run();
      Thread.onSpinWait();
    }
  }

  private void until(BooleanSupplier reached, String what) {
    until(reached, what, () -> pause());
  }

  private void untilAsking(BooleanSupplier reached, String what) {
    until(
        reached,
        what,
        () -> {
          link.ask(List.of());
          pause();
        });
  }

  private static void pause() {
    try {
      Thread.sleep(2);
    } catch (InterruptedException interrupted) {
      throw new AssertionError(interrupted);
    }
  }

  /** Until the link has read the topic to its end as it is now. */
  private void read() {
    long ticket = link.ask(List.of());
    untilAsking(() -> link.known().answered() >= ticket, "the topic is read to its end");
  }

  private boolean isClosed() {
    return link.known().gate(GATE).isPresent();
  }

  private String said() {
    return written.toString(StandardCharsets.UTF_8);
  }

  /** The reader stands; meanwhile the hold is released, and the topic compacted. */
  private void goAwayWhileItIsReleased(Duration time) {
    topic.hold(GATE);
    read();
    assertTrue(isClosed());
    topic.readable(false);
    topic.release(GATE);
    topic.compact();
    topic.setForward(time);
  }

  @Test
  void aHoldIsTold() {
    AtomicBoolean told = new AtomicBoolean();
    link.listen(() -> told.set(isClosed()));
    read();
    assertEquals(1, link.known().generation());
    assertEquals(0, link.known().openEpoch());

    long epoch = topic.hold(GATE);

    until(told::get, "it is told");
    assertEquals(epoch, link.known().gate(GATE).map(Gate::epoch).orElse(-1L));
  }

  /** As one does whose disk is full, and that an application has set to tell. */
  @Test
  void aLogThatFailsEndsNoThread() throws InterruptedException {
    Logger failing =
        (Logger)
            Proxy.newProxyInstance(
                getClass().getClassLoader(),
                new Class<?>[] {Logger.class},
                (proxy, method, arguments) -> {
                  throw new IllegalStateException("the disk is full");
                });
    ControlLink its =
        new ControlLink(topic, null, ControlLog.NAME, ControlLog.ACKS, AgentLog.to(failing), topic);
    topic.fail(new IllegalStateException("the topic cannot be read"));
    long ticket = its.ask(List.of());

    until(() -> its.known().answered() >= ticket, "the topic is read all the same");
    its.close();
    for (Thread thread : its.threads()) {
      thread.join(10_000);
    }
  }

  @Test
  void aListenerThatFailsKeepsNobodyElseFromBeingTold() {
    link.listen(
        () -> {
          throw new IllegalStateException("not told");
        });
    AtomicBoolean told = new AtomicBoolean();
    link.listen(() -> told.set(isClosed()));
    read();
    topic.hold(GATE);

    until(told::get, "the other is told");
    assertEquals(1, said().lines().count(), said());
  }

  @Test
  void theEndOfATransactionIsNoRecordThatAnAnswerWaitsFor() {
    topic.hold(GATE);
    topic.mark();
    read();

    assertTrue(isClosed());
    assertEquals(2, link.known().openEpoch());
  }

  @Test
  void aGateWhoseReleaseIsGoneFromTheTopicOpensAfterALongAbsence() {
    goAwayWhileItIsReleased(HOUR.multipliedBy(25));
    topic.readable(true);
    read();

    assertFalse(isClosed());
    assertEquals(1, link.known().generation(), "it is the same topic: epochs can be compared");
    assertTrue(link.known().movedAfter(GATE, 1), "it was opened by what was not read");
  }

  @Test
  void gatesStayAsTheyWereUntilTheTopicIsReadToItsEnd() {
    goAwayWhileItIsReleased(HOUR.multipliedBy(25));
    int begun = topic.begun();
    untilAsking(() -> topic.begun() > begun, "it is read from its start");

    assertTrue(isClosed());
    topic.readable(true);
    read();
    assertFalse(isClosed());
  }

  @Test
  void aGateThatIsStillHeldStaysClosedWithItsEpoch() {
    final long epoch = topic.hold(GATE);
    read();
    final Known before = link.known();
    final int begun = topic.begun();
    topic.setForward(HOUR.multipliedBy(25));
    read();

    assertEquals(begun + 1, topic.begun());
    assertEquals(epoch, link.known().gate(GATE).map(Gate::epoch).orElse(-1L));
    assertFalse(link.known().movedAfter(GATE, before.readTo().taken()));
  }

  @Test
  void aShortAbsenceCostsNothing() {
    read();
    int begun = topic.begun();
    topic.setForward(Duration.ofMinutes(54));
    read();
    topic.setForward(Duration.ofMinutes(54));
    topic.hold(GATE);
    read();

    assertTrue(isClosed());
    assertEquals(begun, topic.begun());
  }

  @Test
  void aReadingThatTakesLongIsNotBegunAgainAndAgain() {
    read();
    int begun = topic.begun();
    topic.readable(false);
    topic.setForward(HOUR.multipliedBy(25));
    untilAsking(() -> topic.begun() > begun, "it is read from its start");
    topic.setForward(Duration.ofMinutes(30));
    long asked = topic.looks();
    link.threads().stream()
        .filter(thread -> thread.getName().endsWith("keeper"))
        .forEach(Thread::interrupt);
    untilAsking(() -> topic.looks() > asked, "it does not wait any longer, and looks again");
    topic.readable(true);
    read();

    assertEquals(begun + 1, topic.begun());
  }

  @Test
  void aReaderThatFailedAndIsBegunAgainOpensNoGate() {
    final long epoch = topic.hold(GATE);
    read();
    AtomicBoolean wasOpen = new AtomicBoolean();
    link.listen(() -> wasOpen.compareAndSet(false, !isClosed()));
    int begun = topic.begun();
    topic.fail(new IllegalStateException("secret-4711"));
    untilAsking(() -> topic.begun() > begun, "it is read from its start");
    read();

    assertEquals(epoch, link.known().gate(GATE).map(Gate::epoch).orElse(-1L));
    assertFalse(wasOpen.get());
    assertTrue(said().contains("the control topic cannot be read: IllegalStateException"), said());
    assertFalse(said().contains("4711"), said());
  }

  @Test
  void whatWasMissedIsReadFromTheStart() {
    topic.hold(GATE);
    read();
    int begun = topic.begun();
    topic.fail(new OffsetOutOfRangeException(Map.of(ControlLog.PARTITION, 2L)));
    until(() -> topic.begun() > begun, "it is read from its start");
    read();

    assertTrue(isClosed());
    assertEquals(1, link.known().generation());
    assertEquals("", said());
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void aTopicThatMayNotBeReadIsSaidOnceAsLongAsItLasts(boolean isEmpty) {
    if (isEmpty) {
      topic.replace("another");
    }
    topic.refuse(true);
    link.ask(List.of());
    until(() -> said().contains("cannot read control topic __tidegate"), "it is said");
    long ticket = link.ask(List.of());
    long until = System.nanoTime() + Duration.ofMillis(1_200).toNanos();
    until(() -> System.nanoTime() > until, "it has been asked for some more times");
    assertEquals(1, said().lines().count(), said());
    assertTrue(link.known().answered() < ticket);

    topic.refuse(false);
    read();
    until(() -> said().contains("control topic __tidegate is read again"), "it is over");
    assertEquals(2, said().lines().count(), said());
  }

  @Test
  void gatesOfALostTopicAreKeptUntilItsHoldersHadTheirTime() {
    topic.hold(GATE);
    topic.hold(OTHER);
    read();
    topic.replace(null);
    untilAsking(() -> said().contains("is gone: the gates stay"), "it is found lost");
    assertTrue(isClosed());
    until(() -> topic.readers() == 0, "nobody asks for a topic that is not there");
    topic.replace("another");
    final long epoch = topic.hold(GATE);
    untilAsking(() -> link.known().generation() == 2, "the new topic is read");
    assertEquals(epoch, link.known().gate(GATE).map(Gate::epoch).orElse(-1L));
    assertEquals(0, link.known().gate(OTHER).map(Gate::epoch).orElse(-1L));

    topic.setForward(Duration.ofSeconds(9));
    read();
    assertTrue(link.known().gate(OTHER).isPresent());
    topic.setForward(Duration.ofSeconds(1));
    untilAsking(() -> link.known().gate(OTHER).isEmpty(), "what nobody holds any more opens");
    assertTrue(isClosed());
  }

  @Test
  void whatIsKeptOfALostTopicEndsOnlyOnceTheNewOneIsRead() {
    topic.hold(GATE);
    topic.hold(OTHER);
    read();
    topic.replace("another");
    topic.hold(GATE);
    untilAsking(() -> link.known().generation() == 2, "the new topic is read");
    AtomicBoolean wasOpen = new AtomicBoolean();
    link.listen(() -> wasOpen.compareAndSet(false, !isClosed()));
    topic.readable(false);
    int begun = topic.begun();
    topic.fail(new IllegalStateException());
    untilAsking(() -> topic.begun() > begun, "it is read from its start");
    topic.setForward(Duration.ofSeconds(11));
    for (int i = 0; i < 50; i++) {
      link.ask(List.of());
      pause();
    }
    assertTrue(link.known().gate(OTHER).isPresent());

    topic.readable(true);
    untilAsking(() -> link.known().gate(OTHER).isEmpty(), "the gate that no record closes opens");
    assertTrue(isClosed());
    assertFalse(wasOpen.get());
  }

  @Test
  void whereNoIdsAreToldATopicThatIsShorterIsAnotherOne() {
    topic.replace(Topics.UNTOLD);
    topic.hold(OTHER);
    topic.hold(GATE);
    read();
    topic.replace(Topics.UNTOLD);
    topic.hold(GATE);
    untilAsking(() -> link.known().generation() == 2, "it is found to be another one");

    assertEquals(0, link.known().gate(OTHER).map(Gate::epoch).orElse(-1L));
  }

  @ParameterizedTest
  @ValueSource(strings = {"id", Topics.UNTOLD})
  void aTopicThatHasLostItsEndIsAnotherOne(String topicId) {
    topic.replace(topicId);
    topic.release(GATE);
    topic.hold(OTHER);
    topic.hold(GATE);
    topic.release(GATE);
    read();
    topic.cut(1);
    final long epoch = topic.hold(GATE);
    untilAsking(() -> link.known().generation() == 2, "it is found to be another one");
    untilAsking(this::isClosed, "the hold is read");

    assertEquals(epoch, link.known().gate(GATE).map(Gate::epoch).orElse(-1L));
    assertEquals(0, link.known().gate(OTHER).map(Gate::epoch).orElse(-1L));
    assertEquals(epoch, link.known().openEpoch());
    read();
    assertEquals(2, link.known().generation());
  }

  @ParameterizedTest
  @ValueSource(strings = {"id", Topics.UNTOLD})
  void whatCameSinceItsEndWasLookedAtMakesItNoOtherOne(String topicId) {
    topic.replace(topicId);
    read();
    topic.afterLook.set(
        () -> {
          topic.hold(GATE);
          until(this::isClosed, "what came meanwhile is read");
        });
    read();

    assertTrue(isClosed());
    assertEquals(1, link.known().generation());
  }

  @Test
  void withoutAControlTopicNothingIsPausedAndItIsNotWaitedFor() {
    topic.replace(null);
    topic.hasAckTopic = false;
    read();

    assertEquals(0, link.known().generation());
    assertEquals(1, said().lines().count(), said());
    assertTrue(said().contains("there is no control topic __tidegate"), said());
  }

  @Test
  void anAckTopicWithoutAControlTopicTellsThatThatWasLost() {
    topic.replace(null);
    long ticket = link.ask(List.of());
    until(() -> said().contains("is gone"), "it is found lost");
    assertNotEquals(ticket, link.known().answered());
    topic.setForward(Duration.ofSeconds(10));

    until(() -> link.known().answered() == ticket, "it is not waited for any longer");
  }

  @Test
  void whoeverInterruptsTheAgentsThreadsEndsNothing() {
    read();
    link.threads().forEach(Thread::interrupt);
    topic.hold(GATE);
    read();

    assertTrue(isClosed());
    assertEquals(3, link.threads().stream().filter(Thread::isAlive).count());
  }
}
