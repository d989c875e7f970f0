package io.tidegate.agent.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tidegate.agent.bridge.PollCall;
import io.tidegate.agent.core.CoreSettings;
import io.tidegate.agent.core.Partition;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;
import org.junit.jupiter.api.Test;

/** How a poll of the application is divided. */
class PollSlicesTest {
  private static final TopicPartition ORDERS_0 = new TopicPartition("orders", 0);

  private final ScriptedLink link = new ScriptedLink();
  private final ScriptedClient client = new ScriptedClient();
  private final ConsumerGate gate =
      new ConsumerGate(
          CoreSettings.of(ScriptedLink.GROUP).build(), link, () -> client.now, this::news);
  private final Gatekeeper gatekeeper =
      new Gatekeeper(
          gate,
          client,
          link,
          () -> client.now,
          AgentLog.to(System.err, AgentLog.Level.ERROR),
          () -> false);
  private final ConsumerMember member =
      new ConsumerMember(gate, gatekeeper, client, () -> client.now, () -> {});

  private void news() {
    gatekeeper.hasNews();
  }

  /** What the client does: it waits for as long as it may, and has nothing. */
  private boolean waits(PollCall call, Duration slice) {
    client.now += slice.toNanos();
    call.returned(ConsumerRecords.empty());
    return call.goesOn();
  }

  private void settle() {
    for (int i = 0; i < 5; i++) {
      member.pollBegins(Duration.ZERO);
      client.now += TimeUnit.MILLISECONDS.toNanos(10);
    }
  }

  @Test
  void aLongPollLooksAtTheGatesEveryTenthOfASecondAndEndsInTime() {
    settle();
    long began = client.now;
    PollCall call = member.pollBegins(Duration.ofMillis(950));
    int slices = 1;
    Duration slice = call.slice();
    assertEquals(Duration.ofMillis(100), slice);
    while (waits(call, slice)) {
      slice = call.slice();
      slices++;
    }

    assertEquals(10, slices);
    assertEquals(Duration.ofMillis(50), slice);
    assertEquals(950, TimeUnit.NANOSECONDS.toMillis(client.now - began));
  }

  @Test
  void whileAGateClosesItLooksMoreOften() {
    client.assigned.add(ORDERS_0);
    member.reassigned(false);
    link.listen(gatekeeper::hasNews);
    settle();
    PollCall call = member.pollBegins(Duration.ofSeconds(60));
    Duration slice = call.slice();

    link.hold(new Partition("orders", 0));
    int slices = 0;
    while (link.acks.size() < 2 && waits(call, slice)) {
      slice = call.slice();
      slices++;
    }

    assertTrue(slices < 10, "closed within " + slices + " slices");
    assertEquals(0, link.acks.get(1).epoch());
  }

  @Test
  void recordsEndIt() {
    PollCall call = member.pollBegins(Duration.ofSeconds(1));
    call.slice();
    ConsumerRecords<?, ?> records = ScriptedClient.records(ORDERS_0, 1);

    assertSame(records, call.returned(records));
    assertFalse(call.goesOn());
  }

  @Test
  void whereTheClientReturnsEarlyTheApplicationGetsThat() {
    settle();
    PollCall call = member.pollBegins(Duration.ofSeconds(1));
    Duration slice = call.slice();

    assertFalse(waits(call, slice.dividedBy(2)));
  }

  @Test
  void timeOutsThatAreNoneAreLeftToTheClient() {
    assertNull(member.pollBegins(null));
    assertNull(member.pollBegins(Duration.ofMillis(-1)));
    PollCall endless = member.pollBegins(Duration.ofSeconds(Long.MAX_VALUE));
    assertTrue(endless.slice().toMillis() <= 100);
    Duration nothing = Duration.ZERO;
    PollCall atOnce = member.pollBegins(nothing);
    assertSame(nothing, atOnce.slice());
    assertFalse(waits(atOnce, nothing));
  }
}
