package io.tidegate.agent.core;

import java.util.Objects;

/** An owner's word about a gate. */
public final class Ack extends RecordValue {
  private final long epoch;
  private final long offset;
  private final String member;

  /**
   * @param epoch up to which offset of the control topic it obeys
   * @param offset of the next record that it would deliver; {@link Offsets#NONE} when not known yet
   * @param member its member id; empty for a consumer that assigned the partition itself
   */
  public Ack(long epoch, long offset, String member) {
    this.epoch = epoch;
    this.offset = offset;
    this.member = Objects.requireNonNull(member);
  }

  /** Up to which offset of the control topic the owner obeys. */
  public long epoch() {
    return epoch;
  }

  /** The offset of the next record that the owner would deliver, or {@link Offsets#NONE}. */
  public long offset() {
    return offset;
  }

  /** The owner's member id; empty for a consumer that assigned the partition itself. */
  public String member() {
    return member;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Ack
        && epoch == ((Ack) other).epoch
        && offset == ((Ack) other).offset
        && member.equals(((Ack) other).member);
  }

  @Override
  public int hashCode() {
    return Objects.hash(epoch, offset, member);
  }

  @Override
  public String toString() {
    return "Ack(" + epoch + ", " + offset + ", " + member + ")";
  }
}
