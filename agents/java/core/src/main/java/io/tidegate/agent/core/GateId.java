package io.tidegate.agent.core;

import java.util.Objects;

/** Which gate: there is one for each partition and group. */
public final class GateId {
  private final String group;
  private final Partition partition;

  /** The gate of this group for this partition. */
  public GateId(String group, Partition partition) {
    this.group = Objects.requireNonNull(group);
    this.partition = Objects.requireNonNull(partition);
  }

  /** The consumer group's id. */
  public String group() {
    return group;
  }

  /** The partition that the gate is in front of. */
  public Partition partition() {
    return partition;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof GateId
        && group.equals(((GateId) other).group)
        && partition.equals(((GateId) other).partition);
  }

  @Override
  public int hashCode() {
    return 31 * group.hashCode() + partition.hashCode();
  }

  @Override
  public String toString() {
    return group + "/" + partition;
  }
}
