package io.tidegate.agent.core;

import java.util.Objects;

/** One gate, as its owner acks it. */
public final class AckKey extends RecordKey {
  private final GateId gate;

  /** The acks of this gate. */
  public AckKey(GateId gate) {
    this.gate = Objects.requireNonNull(gate);
  }

  /** The gate that is acked. */
  public GateId gate() {
    return gate;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof AckKey && gate.equals(((AckKey) other).gate);
  }

  @Override
  public int hashCode() {
    return gate.hashCode();
  }

  @Override
  public String toString() {
    return "AckKey(" + gate + ")";
  }
}
