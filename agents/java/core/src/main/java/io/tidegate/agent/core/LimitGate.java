package io.tidegate.agent.core;

import java.util.Objects;

/** Where a gate is to close. */
public final class LimitGate {
  private final long offset;
  private final Gate closing;

  LimitGate(long offset, Gate closing) {
    this.offset = offset;
    this.closing = Objects.requireNonNull(closing);
  }

  /** The lowest of its limits: the offset of the first record that is not delivered. */
  public long offset() {
    return offset;
  }

  /** The gate as it closes there; its epoch is that of the newest limit. */
  public Gate closing() {
    return closing;
  }

  LimitGate withEpoch(long other) {
    return new LimitGate(offset, closing.withEpoch(other));
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof LimitGate
        && offset == ((LimitGate) other).offset
        && closing.equals(((LimitGate) other).closing);
  }

  @Override
  public int hashCode() {
    return Objects.hash(offset, closing);
  }

  @Override
  public String toString() {
    return "LimitGate(" + offset + ", " + closing + ")";
  }
}
