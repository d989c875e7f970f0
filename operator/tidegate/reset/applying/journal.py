"""A run's journal: what its writer is about to do, written before it is done, and what earlier ones have written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from tidegate.clock import Clock
from tidegate.kafka.model import Member, TopicPartition
from tidegate.reset.applying.claim import GroupClaim
from tidegate.reset.applying.replay import ENDINGS
from tidegate.reset.applying.rounds import NO_PARTITIONS, Partitions
from tidegate.reset.applying.state import RunState
from tidegate.reset.model.progress import Progress, noted
from tidegate.reset.model.targets import PartitionOffset
from tidegate.reset.store import Run, RunStore
from tidegate.reset.ways import Choice
from tidegate.resources.reset import ResetPhase, Way

REBALANCING: Final = frozenset({Way.BARRIER, Way.LEADING, Way.HANDOVER})
"""The ways by which a run begins a rebalance."""


class Journal:
    """Of one run, for one writer of it. Every write raises ``StaleAttempt`` where somebody has taken the run over."""

    def __init__(
        self, run: Run, attempt: int, store: RunStore, clock: Clock, claim: GroupClaim, state: RunState
    ) -> None:
        self.attempt = attempt
        self._entries = run.journal
        self._store = store
        self._clock = clock
        self._claim = claim
        self._state = state

    @property
    def intents(self) -> list[Progress]:
        """The lines that tell of a round."""
        return [entry for entry in self._entries if entry.round > 0]

    @property
    def replay_began(self) -> bool:
        """Whether the group has its targets, and reads from there to the ends of its replay."""
        return any(entry.phase is ResetPhase.REPLAYING for entry in self.intents)

    @property
    def is_replaying(self) -> bool:
        """Whether that is so still: nobody was about to move it on, or to put it back."""
        return self.replay_began and self.intents[-1].phase is ResetPhase.REPLAYING

    @property
    def ending(self) -> str:
        """How the replay was about to end, once it was; empty before that, and once the run is put back instead."""
        reason = next((entry.putting_back for entry in reversed(self.intents)), "")
        return reason if reason in ENDINGS else ""

    @property
    def is_watched(self) -> bool:
        """Whether all targets were committed and their owners let go, so that only their next commits were awaited."""
        last = self.intents[-1] if self.intents else None
        return last is not None and last.phase is ResetPhase.VERIFYING and not (last.again or last.putting_back)

    @property
    def put_back(self) -> Partitions | None:
        """The partitions that a writer of the run has begun to put back; ``None``: none has."""
        put_back = [e for e in self.intents if e.putting_back and e.putting_back not in ENDINGS]
        # Those of later rounds are among those of the first; any of the lines may have been shortened.
        return frozenset(p for entry in put_back for p in entry.pending) if put_back else None

    def tell_replaying(self) -> None:
        """From here on, and with these offsets from before the run."""
        self._append(
            Progress(
                phase=ResetPhase.REPLAYING,
                at=self._clock.now(),
                attempt=self.attempt,
                way=self._state.way,
                round=self._state.round,
                before=as_tuple(self._state.before),
                redone=self._state.redone,
                claim=self._claim.epoch,
            )
        )

    def offsets_before(self) -> dict[TopicPartition, int]:
        """Where the group stood before the run."""
        return {b.topic_partition: b.offset for entry in self.intents for b in entry.before}

    def began_a_join(self) -> datetime | None:
        """When the last round was to begin by which the run, or a dead writer of it, began a rebalance."""
        return next((e.at for e in reversed(self.intents) if e.way in REBALANCING), None)

    def tell_round(
        self,
        phase: ResetPhase,
        pending: Partitions,
        choice: Choice,
        owners: tuple[Member, ...],
        again: Partitions = NO_PARTITIONS,
    ) -> None:
        """What the present round is about to do, or has come to; ``owners``: who is made to let go."""
        reason, why = self._state.putting_back or ("", choice.because)
        tells_before = not (self._state.told_before or self._state.putting_back)
        self._append(
            Progress(
                phase=phase,
                at=self._clock.now(),
                attempt=self.attempt,
                way=choice.way,
                round=self._state.round,
                before=as_tuple(self._state.before) if tells_before else (),
                releasing=tuple(m.member_id for m in owners),
                pending=tuple(sorted(pending)),
                again=tuple(sorted(again)),
                message=why,
                putting_back=reason,
                redone=self._state.redone,
                claim=self._claim.epoch,
            )
        )
        self._state.told_before = True

    def tell_before(self, before: Mapping[TopicPartition, int]) -> None:
        """Where the group stood before the run, where owners have committed once more since the present round was
        told: the only place that tells it once the targets are committed."""
        if before != self.offsets_before():
            self._append(replace(self.intents[-1], at=self._clock.now(), before=as_tuple(before)))

    def tell_again(self, last: Progress, again: Partitions) -> None:
        """Of the round of ``last``, the partitions that are known to need another one."""
        self._append(
            replace(
                last,
                phase=ResetPhase.VERIFYING,
                at=self._clock.now(),
                attempt=self.attempt,
                before=(),
                again=tuple(sorted(again)),
            )
        )

    def tell_unseen(self) -> None:
        """Of the present round: it may have been committed, and nobody saw that its owners begin there: its join
        lapsed, or its gates are about to be opened. They may go on from before, so all of it is done again."""
        last = self.intents[-1]
        if last.again != last.pending:
            self._append(replace(last, at=self._clock.now(), before=(), again=last.pending))

    def tell_waiting(self, waits_for: str) -> None:
        """Why nothing goes on for now, for a person."""
        last = self._entries[-1] if self._entries else None
        self._append(
            Progress(
                phase=last.phase if last is not None else ResetPhase.APPLYING,
                at=self._clock.now(),
                attempt=self.attempt,
                way=self._state.way,
                waits_for=waits_for,
            )
        )

    def _append(self, entry: Progress) -> None:
        self._store.append(entry, attempt=self.attempt)
        self._entries = noted(self._entries, entry)


def as_tuple(offsets: Mapping[TopicPartition, int]) -> tuple[PartitionOffset, ...]:
    return tuple(PartitionOffset(p.topic, p.partition, offset) for p, offset in sorted(offsets.items()))
