package io.tidegate.agent.core;

import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;

/**
 * Gates and limits of an earlier control topic of which the present one has not spoken yet: they
 * stay, for a while.
 */
final class KeptGates {
  private final Map<GateId, Gate> gates = new HashMap<>();
  private final Map<GateId, LimitGate> limits = new HashMap<>();
  private long until;

  /** Until when they stay (nanoseconds); empty where there are none. */
  OptionalLong until() {
    boolean none = gates.isEmpty() && limits.isEmpty();
    return none ? OptionalLong.empty() : OptionalLong.of(until);
  }

  /** Those of the earlier topic, {@code known}, of which the new one's {@code table} has none. */
  void keep(Known known, GateTable table, long untilNanos) {
    release();
    // Their epochs are of the earlier topic; 0 is nobody's.
    known.gates().forEach((id, gate) -> gates.put(id, gate.withEpoch(0)));
    known.limits().forEach((id, limit) -> limits.put(id, limit.withEpoch(0)));
    gates.keySet().removeAll(table.gates().keySet());
    limits.keySet().removeAll(table.limits().keySet());
    until = untilNanos;
  }

  /** A record of the present topic: it speaks of this gate or limit now. */
  void take(RecordKey key) {
    if (key instanceof HoldKey) {
      gates.remove(((HoldKey) key).gate());
    } else if (key instanceof LimitKey) {
      limits.remove(((LimitKey) key).gate());
    }
  }

  /** Keep none any longer. */
  void release() {
    gates.clear();
    limits.clear();
  }

  /** These, and those that are kept. */
  Map<GateId, Gate> withGates(Map<GateId, Gate> present) {
    return over(gates, present);
  }

  /** These, and those that are kept. */
  Map<GateId, LimitGate> withLimits(Map<GateId, LimitGate> present) {
    return over(limits, present);
  }

  private static <T> Map<GateId, T> over(Map<GateId, T> kept, Map<GateId, T> present) {
    Map<GateId, T> both = new HashMap<>(kept);
    both.putAll(present);
    return Collections.unmodifiableMap(both);
  }
}
