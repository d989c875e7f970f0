package io.tidegate.agent.core;

import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;

/** What a consumer is like, and what its process's settings ask for. */
public final class CoreSettings {
  private final Builder chosen;

  private CoreSettings(Builder chosen) {
    this.chosen = chosen;
  }

  /** For a consumer of this group that commits by hand; all else as it is by default. */
  public static Builder of(String group) {
    return new Builder(group);
  }

  /** The consumer group's id. */
  public String group() {
    return chosen.group;
  }

  /** Whether the client commits by itself what is stored, so that draining asks it to do so now. */
  public boolean clientCommits() {
    return chosen.clientCommits;
  }

  /** Whether the client stores by itself what it has delivered. */
  public boolean clientStores() {
    return chosen.clientStores;
  }

  /**
   * After how long (nanoseconds) partitions are delivered whose gate cannot be read; empty: they
   * wait ({@code TIDEGATE_ON_UNREACHABLE}).
   */
  public OptionalLong openUnreadAfter() {
    return chosen.openUnreadAfter;
  }

  /** Where new partitions begin; empty: where the client begins. */
  public Optional<StartRule> rule() {
    return Optional.ofNullable(chosen.rule);
  }

  /** Whether the client may drop a pause or a resume without a word: it is told each twice then. */
  public boolean mayDrop() {
    return chosen.mayDrop;
  }

  /** Who is told what belongs into a log. */
  public Notices notices() {
    return chosen.notices;
  }

  /** Chooses what is not as by default. */
  public static final class Builder {
    private final String group;
    private boolean clientCommits;
    private boolean clientStores;
    private OptionalLong openUnreadAfter = OptionalLong.empty();
    private StartRule rule;
    private boolean mayDrop;
    private Notices notices = Notices.NONE;

    private Builder(String group) {
      this.group = Objects.requireNonNull(group);
    }

    private Builder(Builder other) {
      this.group = other.group;
      this.clientCommits = other.clientCommits;
      this.clientStores = other.clientStores;
      this.openUnreadAfter = other.openUnreadAfter;
      this.rule = other.rule;
      this.mayDrop = other.mayDrop;
      this.notices = other.notices;
    }

    /** The client commits by itself what is stored. */
    public Builder clientCommits(boolean value) {
      clientCommits = value;
      return this;
    }

    /** The client stores by itself what it has delivered. */
    public Builder clientStores(boolean value) {
      clientStores = value;
      return this;
    }

    /** Deliver partitions whose gate cannot be read for so long (nanoseconds). */
    public Builder openUnreadAfter(long nanos) {
      openUnreadAfter = OptionalLong.of(nanos);
      return this;
    }

    /** New partitions begin by this rule. */
    public Builder rule(StartRule value) {
      rule = Objects.requireNonNull(value);
      return this;
    }

    /** The client may drop a pause or a resume without a word. */
    public Builder mayDrop(boolean value) {
      mayDrop = value;
      return this;
    }

    /** Tell these. */
    public Builder notices(Notices value) {
      notices = Objects.requireNonNull(value);
      return this;
    }

    /** The settings as chosen so far. */
    public CoreSettings build() {
      return new CoreSettings(new Builder(this));
    }
  }
}
