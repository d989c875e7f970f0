package io.tidegate.agent.core;

/** One holder's limit on one gate. */
public final class LimitKey extends HolderKey {
  /** The limit of this holder. */
  public LimitKey(GateId gate, String holder) {
    super(gate, holder);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof LimitKey && isOf((LimitKey) other);
  }

  @Override
  public int hashCode() {
    return hash();
  }
}
