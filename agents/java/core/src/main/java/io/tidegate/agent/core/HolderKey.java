package io.tidegate.agent.core;

import java.util.Objects;

/** What one holder says of one gate: whether it is a {@link HoldKey} or a {@link LimitKey}. */
public abstract class HolderKey extends RecordKey {
  private final GateId gate;
  private final String holder;

  HolderKey(GateId gate, String holder) {
    this.gate = Objects.requireNonNull(gate);
    this.holder = Objects.requireNonNull(holder);
  }

  /** The gate that it is about. */
  public GateId gate() {
    return gate;
  }

  /** Who says it; opaque to agents. */
  public String holder() {
    return holder;
  }

  boolean isOf(HolderKey other) {
    return gate.equals(other.gate) && holder.equals(other.holder);
  }

  int hash() {
    return 31 * gate.hashCode() + holder.hashCode();
  }

  @Override
  public String toString() {
    return getClass().getSimpleName() + "(" + gate + ", " + holder + ")";
  }
}
