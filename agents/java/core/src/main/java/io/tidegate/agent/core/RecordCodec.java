package io.tidegate.agent.core;

import java.util.Arrays;
import java.util.OptionalLong;

/** The records of the control and ack topics as bytes, as {@code agents/contract} has them. */
public final class RecordCodec {
  /** The most bytes of a key, and of a value. */
  public static final int MOST_BYTES = JsonObject.MOST_BYTES;

  /** Of a topic, beyond which a partition record is taken for a mistake. */
  public static final int MOST_PARTITIONS = 1_000_000;

  /** The longest duration that a custom resource can name (ten years), in milliseconds. */
  private static final long LONGEST_DRAIN_MS = 87_600L * 3_600_000L;

  private RecordCodec() {}

  /**
   * Read one record. A value's members that are not known are ignored: a later version may add
   * some.
   *
   * @param key its bytes, or null
   * @param value its bytes; null: a tombstone
   * @throws Unreadable whatever is wrong with it, and where agents skip its kind
   */
  public static DecodedRecord decode(byte[] key, byte[] value) throws Unreadable {
    if (key == null) {
      throw new Unreadable("it has no key");
    }
    RecordKey read = key(JsonObject.read(key, "key"));
    if (!Arrays.equals(encodeKey(read), key)) {
      throw new Unreadable(
          "its key is not in the one form: sorted members, no white space, nothing escaped"
              + " needlessly");
    }
    return new DecodedRecord(
        read, value == null ? null : value(read, JsonObject.read(value, "value")));
  }

  /** The one form of a key. */
  public static byte[] encodeKey(RecordKey key) {
    if (key instanceof HolderKey) {
      HolderKey held = (HolderKey) key;
      String kind = key instanceof HoldKey ? "hold" : "limit";
      return JsonObject.write(
          to -> {
            to.writeStringField("group", held.gate().group());
            to.writeStringField("holder", held.holder());
            to.writeStringField("kind", kind);
            to.writeNumberField("partition", held.gate().partition().number());
            to.writeStringField("topic", held.gate().partition().topic());
          });
    }
    if (key instanceof AckKey) {
      GateId gate = ((AckKey) key).gate();
      return JsonObject.write(
          to -> {
            to.writeStringField("group", gate.group());
            to.writeStringField("kind", "ack");
            to.writeNumberField("partition", gate.partition().number());
            to.writeStringField("topic", gate.partition().topic());
          });
    }
    if (key instanceof PartitionKey) {
      PartitionKey seen = (PartitionKey) key;
      return JsonObject.write(
          to -> {
            to.writeStringField("kind", "partition");
            to.writeNumberField("partition", seen.partition().number());
            to.writeStringField("topic", seen.partition().topic());
            to.writeStringField("topic_id", seen.topicId());
          });
    }
    return JsonObject.write(to -> to.writeStringField("kind", "clock"));
  }

  /** An ack's value, the only one that agents write. */
  public static byte[] encodeAck(Ack ack) {
    return JsonObject.write(
        to -> {
          to.writeNumberField("epoch", ack.epoch());
          to.writeStringField("member", ack.member());
          to.writeNumberField("offset", ack.offset());
        });
  }

  private static RecordKey key(JsonObject body) throws Unreadable {
    switch (body.word("kind")) {
      case "hold":
        return new HoldKey(gate(body), body.text(TextForm.HOLDER));
      case "limit":
        return new LimitKey(gate(body), body.text(TextForm.HOLDER));
      case "ack":
        return new AckKey(gate(body));
      case "partition":
        return new PartitionKey(
            partition(body, MOST_PARTITIONS - 1L), body.text(TextForm.TOPIC_ID));
      case "clock":
        return ClockKey.INSTANCE;
      default:
        throw new Unreadable("its key is of a kind that this version does not know");
    }
  }

  private static GateId gate(JsonObject body) throws Unreadable {
    return new GateId(body.text(TextForm.GROUP), partition(body, Integer.MAX_VALUE));
  }

  private static Partition partition(JsonObject body, long highest) throws Unreadable {
    return new Partition(body.text(TextForm.TOPIC), (int) body.number("partition", 0, highest));
  }

  private static RecordValue value(RecordKey key, JsonObject body) throws Unreadable {
    if (key instanceof HoldKey) {
      return new Hold(body.text(TextForm.REASON), drainTimeoutMs(body));
    }
    if (key instanceof LimitKey) {
      long offset = body.number("offset", 0, Long.MAX_VALUE);
      return new Limit(offset, body.text(TextForm.REASON), drainTimeoutMs(body));
    }
    if (key instanceof PartitionKey) {
      return seen(body);
    }
    if (key instanceof AckKey) {
      long epoch = body.number("epoch", 0, Long.MAX_VALUE);
      long offset = body.number("offset", Offsets.NONE, Long.MAX_VALUE);
      return new Ack(epoch, offset, body.text(TextForm.MEMBER));
    }
    return ClockReading.INSTANCE;
  }

  private static long drainTimeoutMs(JsonObject body) throws Unreadable {
    return body.number("drain_timeout_ms", 0, LONGEST_DRAIN_MS);
  }

  private static PartitionSeen seen(JsonObject body) throws Unreadable {
    if (body.isTrue("initial")) {
      return PartitionSeen.INITIAL;
    }
    OptionalLong absentMs =
        body.isMissing("seen_absent_ms")
            ? OptionalLong.empty()
            : OptionalLong.of(body.number("seen_absent_ms", 0, Long.MAX_VALUE));
    return PartitionSeen.between(absentMs, body.number("seen_ms", 0, Long.MAX_VALUE));
  }
}
