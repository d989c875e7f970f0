package io.tidegate.agent.runtime;

import io.tidegate.agent.core.ControlReading;
import io.tidegate.agent.core.Effect;
import io.tidegate.agent.core.GateId;
import io.tidegate.agent.core.HoldKey;
import io.tidegate.agent.core.Known;
import io.tidegate.agent.core.LimitKey;
import io.tidegate.agent.core.Partition;
import io.tidegate.agent.core.RecordCodec;
import io.tidegate.agent.core.RecordKey;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.function.Consumer;

/** A link whose control topic is what a test has written, read at once; and which keeps acks. */
final class ScriptedLink implements Link {
  static final String GROUP = "payments";

  /** An ack that was sent. */
  record Acked(String member, Partition partition, long epoch, long offset) {}

  final List<Acked> acks = new ArrayList<>();

  /** Whether questions are answered at once, and acks written. */
  boolean isReachable = true;

  private final ControlReading reading = new ControlReading();
  private final List<Runnable> listeners = new ArrayList<>();
  private long end;
  private long asked;

  ScriptedLink() {
    reading.begin("topic-id");
    reading.readTo(0, 0);
  }

  /** Close this partition's gate; the hold's epoch. */
  long hold(Partition partition) {
    return write(
        new HoldKey(new GateId(GROUP, partition), "test"),
        "{\"drain_timeout_ms\":60000,\"reason\":\"a test\"}");
  }

  long release(Partition partition) {
    return write(new HoldKey(new GateId(GROUP, partition), "test"), null);
  }

  long limit(Partition partition, long offset) {
    return write(
        new LimitKey(new GateId(GROUP, partition), "test"),
        "{\"drain_timeout_ms\":60000,\"offset\":" + offset + ",\"reason\":\"a test\"}");
  }

  private long write(RecordKey key, String value) {
    byte[] bytes = value == null ? null : value.getBytes(StandardCharsets.UTF_8);
    reading.take(RecordCodec.encodeKey(key), bytes, end, OptionalLong.empty(), true, 0);
    end++;
    reading.readTo(end, 0);
    listeners.forEach(Runnable::run);
    return end - 1;
  }

  /** Answer what was asked so far. */
  void answer() {
    reading.answer(asked);
    listeners.forEach(Runnable::run);
  }

  @Override
  public Known known() {
    return reading.known();
  }

  @Override
  public long ask(Collection<String> topics) {
    asked++;
    if (isReachable) {
      reading.answer(asked);
    }
    return asked;
  }

  @Override
  public void listen(Runnable changed) {
    listeners.add(changed);
  }

  @Override
  public void unlisten(Runnable changed) {
    listeners.remove(changed);
  }

  @Override
  public void sendAcks(
      String group,
      String member,
      Map<Partition, Effect.AckWord> words,
      long generation,
      Consumer<Boolean> done) {
    if (isReachable) {
      words.forEach(
          (partition, word) -> acks.add(new Acked(member, partition, word.epoch(), word.offset())));
    }
    done.accept(isReachable);
  }
}
