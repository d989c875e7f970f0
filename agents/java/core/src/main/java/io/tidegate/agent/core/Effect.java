package io.tidegate.agent.core;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What a {@link Core} asks of whoever drives it, to be carried out with the client library. */
public abstract class Effect {
  private final List<Partition> partitions;

  private Effect(Collection<Partition> partitions) {
    this.partitions = Collections.unmodifiableList(new ArrayList<>(partitions));
  }

  /** The partitions that it is about. */
  public List<Partition> partitions() {
    return partitions;
  }

  /** What a driver does with each kind of effect. */
  public interface Driver {
    /**
     * Deliver nothing more of these; what the client has buffered of them is kept from the
     * application.
     */
    void pause(Pause effect);

    /** Deliver these again, from the client's position. */
    void resume(Resume effect);

    /**
     * For each the offset after the last record delivered; {@link Offsets#NONE} where none was
     * since the assignment or a seek. Answered by {@link Core#done(Effect, long, Map)}.
     */
    void position(Position effect);

    /**
     * Commit what was delivered, as the client would do by itself sooner or later (auto-commit).
     */
    void commit(Commit effect);

    /**
     * The group's committed offsets by the broker's word, {@link Offsets#NONE} where there is none.
     * A partition that is left out is asked for again. Commits sent before are to be in it.
     * Answered by {@link Core#done(Effect, long, Map)}.
     */
    void committed(Committed effect);

    /** Make sure that the client commits nothing for these by itself. */
    void forget(Forget effect);

    /**
     * Go on from these offsets once resumed. Answered by {@link Core#done(Effect, long,
     * Collection)} with the partitions where it was done; others are tried again.
     */
    void seek(Seek effect);

    /** Go on from the first record there is, or after the last one, once resumed. As a seek. */
    void begin(Begin effect);

    /** Send these acks. */
    void sendAcks(SendAcks effect);
  }

  /** Have it carried out. */
  public abstract void by(Driver driver);

  /** See {@link Driver#pause}. */
  public static final class Pause extends Effect {
    Pause(Collection<Partition> partitions) {
      super(partitions);
    }

    @Override
    public void by(Driver driver) {
      driver.pause(this);
    }
  }

  /** See {@link Driver#resume}. */
  public static final class Resume extends Effect {
    Resume(Collection<Partition> partitions) {
      super(partitions);
    }

    @Override
    public void by(Driver driver) {
      driver.resume(this);
    }
  }

  /** See {@link Driver#position}. */
  public static final class Position extends Effect {
    Position(Collection<Partition> partitions) {
      super(partitions);
    }

    @Override
    public void by(Driver driver) {
      driver.position(this);
    }
  }

  /** See {@link Driver#commit}. */
  public static final class Commit extends Effect {
    Commit(Collection<Partition> partitions) {
      super(partitions);
    }

    @Override
    public void by(Driver driver) {
      driver.commit(this);
    }
  }

  /** See {@link Driver#committed}. */
  public static final class Committed extends Effect {
    Committed(Collection<Partition> partitions) {
      super(partitions);
    }

    @Override
    public void by(Driver driver) {
      driver.committed(this);
    }
  }

  /** See {@link Driver#forget}. */
  public static final class Forget extends Effect {
    Forget(Collection<Partition> partitions) {
      super(partitions);
    }

    @Override
    public void by(Driver driver) {
      driver.forget(this);
    }
  }

  /** See {@link Driver#seek}. */
  public static final class Seek extends Effect {
    private final Map<Partition, Long> offsets;

    Seek(Map<Partition, Long> offsets) {
      super(offsets.keySet());
      this.offsets = Collections.unmodifiableMap(new LinkedHashMap<>(offsets));
    }

    /** Where each is to go on. */
    public Map<Partition, Long> offsets() {
      return offsets;
    }

    @Override
    public void by(Driver driver) {
      driver.seek(this);
    }
  }

  /** See {@link Driver#begin}. */
  public static final class Begin extends Effect {
    private final Start start;

    Begin(Start start, Collection<Partition> partitions) {
      super(partitions);
      this.start = start;
    }

    /** Where they begin. */
    public Start start() {
      return start;
    }

    @Override
    public void by(Driver driver) {
      driver.begin(this);
    }
  }

  /** See {@link Driver#sendAcks}. */
  public static final class SendAcks extends Effect {
    private final Map<Partition, AckWord> acks;
    private final long generation;

    SendAcks(Map<Partition, AckWord> acks, long generation) {
      super(acks.keySet());
      this.acks = Collections.unmodifiableMap(new LinkedHashMap<>(acks));
      this.generation = generation;
    }

    /** What to ack of each. */
    public Map<Partition, AckWord> acks() {
      return acks;
    }

    /** Of the control topic that the epochs are of: an ack of an earlier one is not sent. */
    public long generation() {
      return generation;
    }

    @Override
    public void by(Driver driver) {
      driver.sendAcks(this);
    }
  }

  /** An ack without its member. */
  public static final class AckWord {
    private final long epoch;
    private final long offset;

    /**
     * @param epoch up to which offset of the control topic the owner obeys
     * @param offset of the next record that it would deliver; {@link Offsets#NONE} when not known
     *     yet
     */
    public AckWord(long epoch, long offset) {
      this.epoch = epoch;
      this.offset = offset;
    }

    /** Up to which offset of the control topic the owner obeys. */
    public long epoch() {
      return epoch;
    }

    /** The offset of the next record that it would deliver, or {@link Offsets#NONE}. */
    public long offset() {
      return offset;
    }
  }
}
