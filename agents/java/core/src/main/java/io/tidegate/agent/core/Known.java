package io.tidegate.agent.core;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** What has been read of the control topic at one moment; never changed afterwards. */
public final class Known {
  /** Nothing has been read. */
  public static final Known NOTHING = new Known(new Parts());

  /** What a {@link Known} is made of. */
  private static final class Parts implements Cloneable {
    private Map<GateId, Gate> gates = Collections.emptyMap();
    private Map<GateId, LimitGate> limits = Collections.emptyMap();
    private Map<GateId, Long> moved = Collections.emptyMap();
    private long taken = Offsets.NONE;
    private long answered;
    private long generation;
    private Map<String, List<Discovered>> discovered = Collections.emptyMap();
    private Map<String, String> topicIds = Collections.emptyMap();
    private Clock clock;

    @Override
    protected Parts clone() {
      try {
        return (Parts) super.clone();
      } catch (CloneNotSupportedException impossible) {
        throw new AssertionError(impossible);
      }
    }
  }

  private final Parts parts;

  private Known(Parts parts) {
    this.parts = parts;
  }

  /** The closed gates. */
  public Map<GateId, Gate> gates() {
    return parts.gates;
  }

  /** Where gates are to close. */
  public Map<GateId, LimitGate> limits() {
    return parts.limits;
  }

  /** The gate if it is closed. */
  public Optional<Gate> gate(GateId id) {
    return Optional.ofNullable(parts.gates.get(id));
  }

  /** Where the gate is to close, if it is to close somewhere. */
  public Optional<LimitGate> limit(GateId id) {
    return Optional.ofNullable(parts.limits.get(id));
  }

  /** Whether the gate was closed or opened by a record beyond this offset; it may be open again. */
  public boolean movedAfter(GateId id, long offset) {
    return parts.moved.getOrDefault(id, Offsets.NONE) > offset;
  }

  /** The epoch that an ack of an open gate carries: the last record's offset, or 0. */
  public long openEpoch() {
    return Math.max(0, parts.taken);
  }

  /** Up to where the control topic was read. */
  public ReadTo readTo() {
    return new ReadTo(parts.generation, parts.taken);
  }

  /** Which of the control topics there have been; 0: none has been read. */
  public long generation() {
    return parts.generation;
  }

  /** The newest question ("read to the end as it is now") that it answers; 0: none. */
  public long answered() {
    return parts.answered;
  }

  /** What discovery says of a topic's partitions: one entry for each topic that had this name. */
  public List<Discovered> discovered(String topic) {
    return parts.discovered.getOrDefault(topic, Collections.emptyList());
  }

  /** The id that the topic of this name has now, where the brokers tell. */
  public Optional<String> topicId(String topic) {
    return Optional.ofNullable(parts.topicIds.get(topic));
  }

  /** The newest clock record; empty where the topic does not tell the broker's time. */
  public Optional<Clock> clock() {
    return Optional.ofNullable(parts.clock);
  }

  /** The same, and the questions up to this one are answered. */
  public Known withAnswered(long ticket) {
    Parts changed = parts.clone();
    changed.answered = Math.max(changed.answered, ticket);
    return new Known(changed);
  }

  /** The same, and these are the ids that topics have now. */
  public Known withTopicIds(Map<String, String> topicIds) {
    Parts changed = parts.clone();
    changed.topicIds = Collections.unmodifiableMap(topicIds);
    return new Known(changed);
  }

  /** The same with these gates and limits. */
  Known withGates(Map<GateId, Gate> gates, Map<GateId, LimitGate> limits) {
    Parts changed = parts.clone();
    changed.gates = gates;
    changed.limits = limits;
    return new Known(changed);
  }

  /** The same, read up to here. */
  Known withReading(ReadTo readTo, Map<GateId, Long> moved) {
    Parts changed = parts.clone();
    changed.generation = readTo.generation();
    changed.taken = readTo.taken();
    changed.moved = moved;
    return new Known(changed);
  }

  /** The same with what is said of partitions' ages. */
  Known withAges(Map<String, List<Discovered>> discovered, Clock clock) {
    Parts changed = parts.clone();
    changed.discovered = discovered;
    changed.clock = clock;
    return new Known(changed);
  }
}
