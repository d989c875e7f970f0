package io.tidegate.agent.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** What the traces cannot say, since it is about a client, or about what fails. */
class CoreTest {
  private static final Partition P0 = new Partition("orders", 0);
  private static final GateId GATE = new GateId("g", P0);

  /** A group of one member on one partition. */
  private static final class Group {
    final GateTable table = new GateTable();
    final Map<Partition, Long> committed = new HashMap<>();
    final List<String> notices = new ArrayList<>();
    final SimulatedMember member;
    long taken;
    long now;

    Group(CoreSettings.Builder settings) {
      Notices told =
          new Notices() {
            @Override
            public void info(String message) {}

            @Override
            public void warn(String message) {
              notices.add(message);
            }
          };
      member =
          new SimulatedMember(
              settings.notices(told).build(), new SimulatedClient(committed, Map.of()), now);
      tell();
    }

    static Group owning(CoreSettings.Builder settings) {
      Group group = new Group(settings);
      group.member.assign(List.of(P0));
      group.advance(0);
      return group;
    }

    void hold(String holder, long drainTimeoutMs) {
      table.take(
          new DecodedRecord(new HoldKey(GATE, holder), new Hold("", drainTimeoutMs)), ++taken);
      tell();
    }

    void release(String holder) {
      table.take(new DecodedRecord(new HoldKey(GATE, holder), null), ++taken);
      tell();
    }

    private void tell() {
      member.core.know(
          Known.NOTHING
              .withGates(table.gates(), table.limits())
              .withReading(new ReadTo(1, taken), table.moved())
              .withAnswered(1));
    }

    void deliver(int count) {
      for (int number = 0; number < count; number++) {
        member.poll(P0, List.of(member.client.next.get(P0)));
      }
    }

    void advance(double seconds) {
      now += (long) (seconds * TimeUnit.SECONDS.toNanos(1));
      member.run(now);
    }

    Stage stage() {
      return member.core.stage(P0).orElseThrow();
    }

    List<Long> lastAck() {
      SimulatedMember.Acked ack = member.acks.get(member.acks.size() - 1);
      return List.of(ack.epoch(), ack.offset());
    }

    long count(Class<? extends Effect> kind) {
      return member.effects.stream().filter(kind::isInstance).count();
    }
  }

  private static CoreSettings.Builder settings() {
    return CoreSettings.of("g");
  }

  @Test
  void nothingWaitsForAnAckThatIsOutOfDate() {
    Group group = Group.owning(settings());
    group.member.failing.add(Effect.Forget.class);
    group.hold("a", 0);
    group.advance(1);
    group.member.failing.clear();
    Core core = group.member.core;
    Effect effect = core.work(group.now += TimeUnit.SECONDS.toNanos(2)).orElseThrow();
    while (!(effect instanceof Effect.SendAcks)) {
      effect.by(group.member);
      effect = core.work(group.now).orElseThrow();
    }
    Effect.SendAcks first = (Effect.SendAcks) effect;
    assertEquals(1, first.acks().get(P0).epoch());
    assertTrue(core.work(group.now).isEmpty(), "it is under way");
    group.hold("b", 0);
    Effect.SendAcks second =
        assertInstanceOf(Effect.SendAcks.class, core.work(group.now).orElseThrow());
    assertEquals(2, second.acks().get(P0).epoch());
    core.done(first, group.now);
    assertFalse(core.isQuiet(), "the first one's outcome is of no matter any more");
    core.done(second, group.now);
    assertTrue(core.isQuiet());
  }

  @Test
  void aRecordThatShowsOnlyWhenCommitsAreDroppedIsWaitedFor() {
    Group group = Group.owning(settings());
    group.deliver(1);
    group.committed.put(P0, 1L);
    List<Integer> asked = new ArrayList<>();
    group.member.afterPositions =
        () -> {
          asked.add(1);
          if (asked.size() == 1) {
            group.member.takeOff(P0, 1);
          }
        };
    group.hold("a", 30_000);
    group.advance(1);
    assertEquals(Stage.DRAINING, group.stage());
    assertTrue(group.member.commit(P0, 2));
    group.advance(1);
    assertEquals(List.of(1L, 2L), group.lastAck());
  }

  @Test
  void whereTheCommittedOffsetIsNotToldTheAckWaitsForItAMinuteAndNoEarlierOneIsTold() {
    Group group = Group.owning(settings());
    group.deliver(5);
    group.committed.put(P0, 5L);
    group.hold("a", 0);
    group.advance(1);
    assertEquals(List.of(1L, 5L), group.lastAck());
    group.release("a");
    group.advance(1);
    group.deliver(3);
    group.member.unstable.add(P0);
    group.hold("a", 0);
    group.advance(59);
    assertEquals(Stage.DRAINING, group.stage());
    group.advance(5);
    assertEquals(Stage.CLOSED, group.stage());
    assertEquals(List.of(3L, 8L), group.lastAck());
  }

  @Test
  void theAckWaitsForACommitCallThatWasUnderWay() {
    Group group = Group.owning(settings());
    group.deliver(2);
    long call = group.member.core.withholding().commitBegins();
    group.hold("a", 0);
    group.advance(300);
    assertEquals(Stage.DRAINING, group.stage());
    group.committed.put(P0, 2L);
    group.member.core.withholding().commitEnds(call);
    group.advance(0);
    assertEquals(List.of(1L, 2L), group.lastAck());
  }

  @Test
  void aClientThatCommitsByItselfIsAskedToCommitNow() {
    Group group = Group.owning(settings().clientCommits(true));
    group.deliver(3);
    group.hold("a", 30_000);
    group.advance(1);
    assertEquals(List.of(1L, 3L), group.lastAck());
    assertEquals(1, group.count(Effect.Commit.class));
  }

  @Test
  void whereTheClientStoresAsWellItIsWaitedForBeyondTheDrainTimeout() {
    for (boolean stores : new boolean[] {true, false}) {
      Group group = Group.owning(settings().clientCommits(true).clientStores(stores));
      group.deliver(3);
      group.member.failing.add(Effect.Commit.class);
      group.hold("a", 1_000);
      group.advance(0.5);
      group.member.failing.clear();
      group.member.unstable.add(P0);
      group.advance(30);
      assertEquals(Stage.DRAINING, group.stage());
      assertEquals(stores ? 0 : 1, group.count(Effect.Forget.class));
    }
  }

  @Test
  void whatTheApplicationPausedItselfStaysPausedAfterTheRelease() {
    Group group = Group.owning(settings());
    group.member.core.appPaused(Set.of(P0));
    group.hold("a", 0);
    group.advance(1);
    assertTrue(group.member.core.appResumed(Set.of(P0)).isEmpty(), "its gate is closed");
    group.member.core.appPaused(Set.of(P0));
    group.release("a");
    group.advance(1);
    assertEquals(Stage.OPEN, group.stage());
    assertEquals(Set.of(P0), group.member.client.paused);
    assertEquals(List.of(P0), group.member.core.withholding().stopped());
    assertEquals(List.of(P0), group.member.core.appResumed(Set.of(P0)));
    assertTrue(group.member.core.withholding().stopped().isEmpty());
  }

  @Test
  void anApplicationThatSoughtKeepsItsPositionUnlessTheGroupWasReset() {
    for (boolean isReset : new boolean[] {false, true}) {
      Group group = Group.owning(settings());
      group.deliver(5);
      group.committed.put(P0, 5L);
      group.hold("a", 0);
      group.advance(1);
      group.member.client.seek(P0, 2);
      group.member.core.appSought(P0);
      if (isReset) {
        group.committed.put(P0, 1L);
      }
      group.release("a");
      group.advance(1);
      assertEquals(isReset ? 1L : 2L, group.member.client.next.get(P0));
    }
  }

  @Test
  void aClientThatMayNotListenIsToldTwiceAndNotForEver() {
    for (boolean mayDrop : new boolean[] {true, false}) {
      Group group = Group.owning(settings().mayDrop(mayDrop));
      group.advance(3_600);
      assertEquals(mayDrop ? 2 : 1, group.count(Effect.Resume.class));
    }
  }

  @Test
  void whatFailsIsTriedAgainAtGrowingIntervals() {
    Group group = Group.owning(settings());
    group.member.failing.add(Effect.Pause.class);
    group.hold("a", 0);
    group.advance(60);
    long tried = group.count(Effect.Pause.class);
    assertTrue(tried > 55 && tried < 70, tried + " times in a minute");
    assertEquals(Stage.DRAINING, group.stage());
    group.member.failing.clear();
    group.advance(2);
    assertEquals(Stage.CLOSED, group.stage());
  }

  @Test
  void whatIsDroppedIsToldOfOnceAClosing() {
    Group group = Group.owning(settings());
    group.deliver(2);
    for (int closing = 1; closing <= 2; closing++) {
      group.hold("a", 0);
      group.advance(1);
      assertFalse(group.member.commit(P0, 1));
      assertFalse(group.member.commit(P0, 2));
      assertEquals(closing, group.notices.size());
      group.release("a");
      group.advance(1);
    }
    assertTrue(group.notices.get(0).contains("dropping commits of orders-0 (offset 1)"));
  }
}
