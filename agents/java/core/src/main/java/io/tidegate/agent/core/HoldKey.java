package io.tidegate.agent.core;

/** One holder's hold on one gate. */
public final class HoldKey extends HolderKey {
  /** The hold of this holder. */
  public HoldKey(GateId gate, String holder) {
    super(gate, holder);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof HoldKey && isOf((HoldKey) other);
  }

  @Override
  public int hashCode() {
    return hash();
  }
}
