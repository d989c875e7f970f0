package io.tidegate.agent.runtime;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tidegate.agent.bridge.CommitCall;
import io.tidegate.agent.bridge.PollCall;
import io.tidegate.agent.core.CoreSettings;
import io.tidegate.agent.core.Partition;
import io.tidegate.agent.core.Start;
import io.tidegate.agent.core.StartRule;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupAuthorizationException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.WakeupException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A member with a client that does as it is told, and a control topic that a test writes. */
class ConsumerMemberTest {
  private static final TopicPartition ORDERS_0 = new TopicPartition("orders", 0);
  private static final TopicPartition ORDERS_1 = new TopicPartition("orders", 1);
  private static final Partition GATE_0 = new Partition("orders", 0);
  private static final Partition GATE_1 = new Partition("orders", 1);

  private final ScriptedLink link = new ScriptedLink();
  private final ScriptedClient client = new ScriptedClient();
  private final ByteArrayOutputStream log = new ByteArrayOutputStream();
  private final Groups groups = new Groups();
  private boolean isBroken;
  private boolean isLetGo;
  private Gatekeeper gatekeeper;
  private ConsumerGate gate;
  private final ConsumerMember member = member(CoreSettings.of(ScriptedLink.GROUP).build());

  private ConsumerMember member(CoreSettings settings) {
    gate = new ConsumerGate(settings, link, () -> client.now, () -> gatekeeper.hasNews());
    AgentLog agentLog = AgentLog.to(new PrintStream(log, true, UTF_8), AgentLog.Level.DEBUG);
    gatekeeper = new Gatekeeper(gate, client, link, () -> client.now, agentLog, () -> isBroken);
    link.listen(gatekeeper::hasNews);
    groups.add(gate);
    return new ConsumerMember(gate, gatekeeper, client, () -> client.now, () -> isLetGo = true);
  }

  private void assign(ConsumerMember to, TopicPartition... partitions) {
    client.assigned.clear();
    client.assigned.addAll(Set.of(partitions));
    to.reassigned(false);
  }

  /** Polls until the clock has gone on by so much. */
  private void turns(ConsumerMember of, long millis) {
    for (long left = millis; left > 0; left -= 10) {
      of.pollBegins(Duration.ZERO);
      client.now += TimeUnit.MILLISECONDS.toNanos(10);
    }
    of.pollBegins(Duration.ZERO);
  }

  private void deliver(ConsumerMember to, TopicPartition of, long... offsets) {
    PollCall call = to.pollBegins(Duration.ofSeconds(1));
    call.slice();
    call.returned(ScriptedClient.records(of, offsets));
    assertFalse(call.goesOn());
  }

  private static Map<TopicPartition, OffsetAndMetadata> offsets(TopicPartition of, long offset) {
    return Map.of(of, new OffsetAndMetadata(offset));
  }

  @Test
  void aNewPartitionIsWithheldUntilItsGateIsRead() {
    link.isReachable = false;
    assign(member, ORDERS_0, ORDERS_1);
    List<TopicPartition> fetchable = new ArrayList<>(List.of(ORDERS_0, ORDERS_1));
    member.removeWithheld(fetchable);

    assertTrue(member.isWithheld(ORDERS_0));
    assertEquals(List.of(), fetchable);
    turns(member, 500);
    assertTrue(member.isWithheld(ORDERS_0));
    link.isReachable = true;
    link.answer();
    turns(member, 500);
    assertFalse(member.isWithheld(ORDERS_0));
    assertEquals(2, link.acks.size());
    assertEquals("member-1", link.acks.get(0).member());
  }

  @Test
  void aPartitionThatIsLostAndGotBackWithinOnePollIsReadAgain() {
    assign(member, ORDERS_0);
    turns(member, 100);
    deliver(member, ORDERS_0, 5);
    link.isReachable = false;

    assign(member);
    assign(member, ORDERS_0);

    assertTrue(member.isWithheld(ORDERS_0));
    assertEquals(-1L, gate.delivered(List.of(GATE_0)).get(GATE_0));
  }

  @Test
  void aPartitionThatIsKeptGoesOn() {
    assign(member, ORDERS_0);
    turns(member, 100);
    link.isReachable = false;

    assign(member, ORDERS_0, ORDERS_1);

    assertFalse(member.isWithheld(ORDERS_0));
    assertTrue(member.isWithheld(ORDERS_1));
  }

  @Test
  void aGateClosesOnceWhatWasDeliveredIsCommittedAndOpensAtTheCommittedOffset() {
    assign(member, ORDERS_0);
    turns(member, 100);
    deliver(member, ORDERS_0, 7, 8, 9);
    link.acks.clear();

    long epoch = link.hold(GATE_0);
    turns(member, 1000);
    assertTrue(member.isWithheld(ORDERS_0));
    assertEquals(List.of(), link.acks, "10 is not committed yet");
    client.committed.put(ORDERS_0, 10L);
    turns(member, 1000);

    assertEquals(List.of(new ScriptedLink.Acked("member-1", GATE_0, epoch, 10)), link.acks);
    CommitCall late = member.commitBegins(offsets(ORDERS_0, 10));
    assertEquals(Map.of(), late.offsets());
    client.committed.put(ORDERS_0, 3L);
    link.release(GATE_0);
    turns(member, 100);
    assertFalse(member.isWithheld(ORDERS_0));
    assertTrue(client.done.contains("seek orders-0 to 3"), client.done::toString);
  }

  @Test
  void whatAFrameworkKeepsOfAPartitionIsOutdatedBeforeItIsMovedAndOnlyThen() {
    client.positions.putAll(Map.of(ORDERS_0, 10L, ORDERS_1, 20L));
    closeReset(3);
    List<String> seeks = seeks();
    assertEquals(3, seeks.size(), seeks::toString);
    assertTrue(seeks.contains("seek orders-1 to 20"), seeks::toString);
    assertTrue(
        seeks.indexOf("seek orders-0 to 3") > seeks.indexOf("outdated [orders-0]"),
        seeks::toString);
    assertTrue(seeks.contains("outdated [orders-0]"), seeks::toString);
  }

  @Test
  void aFrameworkThatIsBuiltOtherwiseKeepsNothingClosedAndThatIsSaidOnce() {
    client.positions.putAll(Map.of(ORDERS_0, 10L, ORDERS_1, 20L));
    client.isOfAnotherBuild = true;
    closeReset(3);
    assertFalse(member.isWithheld(ORDERS_0));
    assertTrue(seeks().contains("seek orders-0 to 3"), client.done::toString);
    assertEquals(2, log.toString(UTF_8).split("built otherwise").length);
  }

  /** Both are closed at 10 and 20; then the first one is reset, and both are opened. */
  private void closeReset(long target) {
    assign(member, ORDERS_0, ORDERS_1);
    turns(member, 100);
    client.committed.putAll(Map.of(ORDERS_0, 10L, ORDERS_1, 20L));
    link.hold(GATE_0);
    link.hold(new Partition("orders", 1));
    turns(member, 1000);
    client.committed.put(ORDERS_0, target);
    client.done.clear();
    link.release(GATE_0);
    link.release(new Partition("orders", 1));
    turns(member, 1000);
  }

  private List<String> seeks() {
    return client.done.stream().filter(each -> each.matches("(outdated|seek) .*")).toList();
  }

  @Test
  void whereTheClientCommitsByItselfItIsHadToDoSoWhileAGateCloses() {
    ConsumerMember its =
        member(CoreSettings.of(ScriptedLink.GROUP).clientCommits(true).clientStores(true).build());
    assign(its, ORDERS_0);
    turns(its, 100);
    deliver(its, ORDERS_0, 7);
    client.positions.put(ORDERS_0, 9L);

    link.hold(GATE_0);
    turns(its, 200);

    assertTrue(client.done.contains("commit {orders-0=9}"), client.done::toString);
    assertEquals(9, link.acks.get(link.acks.size() - 1).offset());
  }

  @Test
  void whereTheApplicationWorksForLongTheClientsWordOfThatCommitIsWaitedFor() {
    ConsumerMember its =
        member(CoreSettings.of(ScriptedLink.GROUP).clientCommits(true).clientStores(true).build());
    assign(its, ORDERS_0, ORDERS_1);
    turns(its, 100);
    deliver(its, ORDERS_0, 7);
    client.tellsOfCommitsLater = true;

    link.hold(GATE_0);
    for (int i = 0; i < 10; i++) {
      its.pollBegins(Duration.ZERO);
      client.polled();
      client.now += TimeUnit.SECONDS.toNanos(15);
    }

    assertEquals(8, link.acks.get(link.acks.size() - 1).offset());
    assertEquals(1, client.done.stream().filter(each -> each.startsWith("commit")).count());
  }

  @Test
  void aWakeUpThatTheAgentTookIsHandedBack() {
    assign(member, ORDERS_0);
    turns(member, 100);
    client.trouble = new WakeupException();

    link.hold(GATE_0);
    turns(member, 200);

    assertEquals(1, client.done.stream().filter("wake up"::equals).count());
    assertEquals(0, link.acks.get(link.acks.size() - 1).epoch());
    assertEquals(2, link.acks.size(), "it was asked again, and acked");
  }

  @Test
  void nothingIsDoneOnAThreadThatIsInterrupted() {
    assign(member, ORDERS_0);
    Thread.currentThread().interrupt();
    turns(member, 200);

    assertTrue(Thread.interrupted(), "it still is");
    assertTrue(member.isWithheld(ORDERS_0));
    client.trouble = new InterruptException(new InterruptedException());
    assertTrue(Thread.interrupted());
    turns(member, 200);
    assertFalse(member.isWithheld(ORDERS_0));
  }

  @Test
  void onePartitionWithAnOpenTransactionDoesNotHoldUpTheOthers() {
    assign(member, ORDERS_0, ORDERS_1);
    turns(member, 100);
    link.acks.clear();
    client.unstable.add(ORDERS_1);
    client.committed.put(ORDERS_0, 4L);

    link.hold(GATE_0);
    link.hold(new Partition("orders", 1));
    turns(member, 700);

    assertEquals(List.of(GATE_0), link.acks.stream().map(ScriptedLink.Acked::partition).toList());
  }

  @Test
  void oneTopicThatMayNotBeDescribedAnyMoreDoesNotHoldUpTheOthers() {
    assign(member, ORDERS_0, ORDERS_1);
    turns(member, 100);
    link.acks.clear();
    client.committed.put(ORDERS_0, 4L);
    client.forbidden.add(ORDERS_1);

    link.hold(GATE_0);
    link.hold(GATE_1);
    turns(member, 1000);

    assertEquals(List.of(GATE_0), link.acks.stream().map(ScriptedLink.Acked::partition).toList());
    assertEquals(2, log.toString(UTF_8).split("cannot carry out", -1).length);
  }

  /** Of 100 ms, to an application that works for a second on each batch of other partitions. */
  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void aCoordinatorFarAwayClosesAndOpensGatesWithinAFewPolls(boolean keepsAnswers) {
    assign(member, ORDERS_0, ORDERS_1);
    turns(member, 100);
    deliver(member, ORDERS_0, 7);
    deliver(member, ORDERS_1, 8);
    client.committed.putAll(Map.of(ORDERS_0, 8L, ORDERS_1, 9L));
    client.keepsAnswers = keepsAnswers;
    client.answersAfter = TimeUnit.MILLISECONDS.toNanos(100);
    link.acks.clear();

    link.hold(GATE_0);
    link.hold(GATE_1);
    works(10);
    assertEquals(
        List.of(8L, 9L), link.acks.stream().map(ScriptedLink.Acked::offset).sorted().toList());
    client.committed.putAll(Map.of(ORDERS_0, 3L, ORDERS_1, 4L));
    link.release(GATE_0);
    link.release(GATE_1);
    works(10);

    assertEquals(List.of(), List.copyOf(gate.withheld()));
    assertTrue(seeks().containsAll(List.of("seek orders-0 to 3", "seek orders-1 to 4")));
  }

  /** Turns of 40 ms, 10 ms apart: the client drops an answer that comes in between. */
  @Test
  void anAnswerThatAlwaysComesBetweenTwoTurnsIsWaitedForInTheEnd() {
    assign(member, ORDERS_0);
    turns(member, 100);
    client.committed.put(ORDERS_0, 8L);
    client.keepsAnswers = false;
    client.answersAfter = TimeUnit.MILLISECONDS.toNanos(45);
    link.acks.clear();
    link.hold(GATE_0);
    turns(member, 1000);
    assertEquals(List.of(8L), link.acks.stream().map(ScriptedLink.Acked::offset).toList());
    link.release(GATE_0);
    turns(member, 1000);

    assertEquals(List.of(), List.copyOf(gate.withheld()));
  }

  /** Polls so often, and works for a second after each. */
  private void works(int polls) {
    for (int i = 0; i < polls; i++) {
      member.pollBegins(Duration.ZERO);
      client.now += TimeUnit.SECONDS.toNanos(1);
    }
    member.pollBegins(Duration.ZERO);
  }

  @Test
  void anAnswerThatTheClientHasKeptFromBeforeTheResetIsNotWhereItGoesOn() {
    assign(member, ORDERS_0);
    turns(member, 100);
    client.committed.put(ORDERS_0, 10L);
    link.hold(GATE_0);
    turns(member, 200);
    client.answersAfter = TimeUnit.MILLISECONDS.toNanos(5);
    // The client's own question, where to begin, or the application's, that did not wait for it.
    assertThrows(
        TimeoutException.class, () -> client.committed(Set.of(ORDERS_0), Duration.ofMillis(1)));
    client.now += TimeUnit.SECONDS.toNanos(1);

    client.committed.put(ORDERS_0, 3L);
    link.release(GATE_0);
    turns(member, 200);

    assertEquals(List.of("seek orders-0 to 3"), seeks());
  }

  @Test
  void whatTheBrokerRefusesIsToldOnceAndTriedAgain() {
    assign(member, ORDERS_0);
    turns(member, 100);
    link.acks.clear();
    client.trouble = GroupAuthorizationException.forGroupId(ScriptedLink.GROUP);

    link.hold(GATE_0);
    turns(member, 2000);

    assertEquals(1, link.acks.size());
    assertTrue(log.toString(UTF_8).contains("the agent cannot carry out Committed"));
  }

  @Test
  void nothingIsAckedAsLongAsTheMemberIsNotKnown() {
    client.member = Optional.empty();
    assign(member, ORDERS_0);
    turns(member, 1000);
    assertEquals(List.of(), link.acks);
    client.member = Optional.of("member-2");
    turns(member, 2000);

    assertEquals("member-2", link.acks.get(0).member());
  }

  @Test
  void nothingIsAckedOnceAHookIsMissing() {
    isBroken = true;
    assign(member, ORDERS_0);
    turns(member, 1000);

    assertEquals(List.of(), link.acks);
    assertFalse(member.isWithheld(ORDERS_0));
  }

  @Test
  void aConsumerThatAssignsByItselfAcksWithoutAMember() {
    client.assigned.add(ORDERS_0);
    member.reassigned(true);
    turns(member, 100);

    assertEquals("", link.acks.get(0).member());
  }

  @Test
  void recordsFromTheLimitOnAreFetchedAgainAndTheGateCloses() {
    assign(member, ORDERS_0);
    turns(member, 100);
    link.acks.clear();
    long epoch = link.limit(GATE_0, 8);
    PollCall call = member.pollBegins(Duration.ofSeconds(1));
    call.slice();

    ConsumerRecords<?, ?> given =
        (ConsumerRecords<?, ?>) call.returned(ScriptedClient.records(ORDERS_0, 6, 7, 8, 9));

    assertEquals(2, given.count());
    assertEquals(8L, client.positions.get(ORDERS_0));
    assertEquals(8L, gate.delivered(List.of(GATE_0)).get(GATE_0));
    client.committed.put(ORDERS_0, 8L);
    turns(member, 1000);
    assertTrue(member.isWithheld(ORDERS_0));
    assertEquals(new ScriptedLink.Acked("member-1", GATE_0, epoch, 8), link.acks.get(0));
  }

  /** By the thread of the newer protocol's client, which does not wait for a poll to end. */
  @Test
  void recordsFromTheLimitOnOfAPartitionThatWasJustTakenAwayAreWithheld() {
    assign(member, ORDERS_0, ORDERS_1);
    turns(member, 100);
    link.limit(GATE_0, 8);
    PollCall call = member.pollBegins(Duration.ofSeconds(1));
    call.slice();
    assign(member, ORDERS_1);

    ConsumerRecords<?, ?> given =
        (ConsumerRecords<?, ?>) call.returned(ScriptedClient.records(ORDERS_0, 6, 7, 8, 9));

    assertEquals(2, given.count());
  }

  @Test
  void whereTheApplicationSoughtItStays() {
    assign(member, ORDERS_0);
    turns(member, 100);
    link.hold(GATE_0);
    turns(member, 200);
    client.done.clear();

    member.sought(ORDERS_0);
    link.release(GATE_0);
    turns(member, 200);

    assertFalse(member.isWithheld(ORDERS_0));
    assertFalse(client.done.stream().anyMatch(each -> each.startsWith("seek")));
  }

  @Test
  void whereTheClientWouldThrowForANewPartitionItWaitsForTheRule() {
    ConsumerMember its = member(withRule());
    client.hasResetRule = false;
    link.isReachable = false;
    assign(its, ORDERS_0);
    client.initializing.add(ORDERS_0);
    Predicate<Object> all = partition -> true;

    assertTrue(its.mustWait());
    assertFalse(test(its.placed(all), ORDERS_0));
    assertTrue(test(its.placed(all), ORDERS_1));
    client.initializing.add(ORDERS_1);
    assertFalse(its.mustWait(), "of the other one the application has to be told");
    link.isReachable = true;
    link.answer();
    turns(its, 200);
    assertFalse(its.mustWait(), "its age is not known: as the client is configured");
    assertSame(all, its.placed(all));
  }

  @Test
  void whereTheClientHasARuleItsPositionIsNotWaitedForNorCommitted() {
    ConsumerMember its = member(withRule());
    link.isReachable = false;
    assign(its, ORDERS_0);
    client.initializing.add(ORDERS_0);
    Predicate<Object> all = partition -> true;

    assertFalse(its.mustWait());
    assertSame(all, its.placed(all));
    assertEquals(Map.of(), its.commitBegins(offsets(ORDERS_0, 77)).offsets());
  }

  private static CoreSettings withRule() {
    return CoreSettings.of(ScriptedLink.GROUP)
        .rule(new StartRule(Start.EARLIEST, OptionalLong.empty()))
        .build();
  }

  @SuppressWarnings("unchecked")
  private static boolean test(Predicate<?> predicate, Object value) {
    return ((Predicate<Object>) predicate).test(value);
  }

  @Test
  void aTransactionOfAnyProducerHereLosesWhatIsPaused() {
    assign(member, ORDERS_0);
    turns(member, 100);
    link.hold(GATE_0);
    turns(member, 200);

    CommitCall nothing = groups.transactionBegins(ScriptedLink.GROUP, offsets(ORDERS_0, 4));
    assertInstanceOf(CommitCall.Nothing.class, nothing);
    Map<TopicPartition, OffsetAndMetadata> both =
        Map.of(ORDERS_0, new OffsetAndMetadata(4), ORDERS_1, new OffsetAndMetadata(5));
    assertEquals(
        Set.of(ORDERS_1), groups.transactionBegins(ScriptedLink.GROUP, both).offsets().keySet());
    assertNull(groups.transactionBegins("others", both));
  }

  @Test
  void anAckWaitsForCommitsThatWereSentBefore() {
    assign(member, ORDERS_0);
    turns(member, 100);
    link.acks.clear();
    CommitCall sent = member.commitBegins(offsets(ORDERS_0, 2));

    link.hold(GATE_0);
    turns(member, 500);
    assertEquals(List.of(), link.acks);
    sent.sent(null);
    turns(member, 100);

    assertEquals(1, link.acks.size());
  }

  @Test
  void aClosedConsumerIsLetGoAndWhatIsPausedStaysSo() {
    assign(member, ORDERS_0);
    turns(member, 100);
    link.hold(GATE_0);
    turns(member, 200);

    member.closed();

    assertTrue(isLetGo);
    assertNull(member.pollBegins(Duration.ofSeconds(1)));
    assertEquals(Map.of(), member.commitBegins(offsets(ORDERS_0, 4)).offsets());
  }
}
