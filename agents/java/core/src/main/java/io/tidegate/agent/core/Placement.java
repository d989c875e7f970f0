package io.tidegate.agent.core;

/** Where a partition begins that the group has committed nothing of, by the rule for new ones. */
final class Placement {
  private final Ownership owned;

  Placement(Ownership owned) {
    this.owned = owned;
  }

  /** At the group's offset where it has one, as the client does by itself. */
  void place(Partition partition, PartitionState state, long committed, long now) {
    if (committed == Offsets.NONE && state.unplaced && owned.settings.rule().isPresent()) {
      state.judgeBy = now + StartJudge.PATIENCE_NANOS;
      judge(partition, state, now);
    } else {
      state.unplaced = false;
      state.need(Step.RESUME);
    }
  }

  /** Whether what decides has arrived. */
  void judge(Partition partition, PartitionState state, long now) {
    if (!owned.settings.rule().isPresent()) {
      return;
    }
    StartVerdict verdict =
        StartJudge.judge(
            owned.settings.rule().get(), owned.known, partition, state.since, now, state.judgeBy);
    if (verdict.waits()) {
      state.need(Step.JUDGE, verdict.until());
      return;
    }
    state.unplaced = verdict.start().isPresent();
    state.need(state.unplaced ? Step.BEGIN : Step.RESUME);
    String message =
        String.format(
            "group %s: %s has no committed offset and begins %s: %s",
            owned.settings.group(),
            partition,
            verdict.start().map(start -> "at " + start).orElse("where its client does"),
            verdict.why());
    if (verdict.isKnown()) {
      owned.settings.notices().info(message);
    } else {
      owned.settings.notices().warn(message);
    }
  }
}
