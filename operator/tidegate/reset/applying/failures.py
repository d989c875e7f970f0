"""Why a plan could not be applied: what ends a run, and the reason that the condition gives for it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tidegate.kafka.errors import KafkaFailure, NotAuthorized, OutcomeUnknown, Unavailable, UnknownPartitions
from tidegate.kafka.model import TopicPartition
from tidegate.reset.applying.rounds import MAX_ROUNDS, NO_PARTITIONS, Partitions
from tidegate.reset.applying.timing import DeadlinePassed, NotReady


class DidNotHold(Exception):
    """Owners went on overwriting the targets. ``what`` they do, for a person; ``unsure``: of which partitions it is not
    known whether they did."""

    def __init__(
        self, partitions: Collection[TopicPartition], what: str = "", unsure: Partitions = NO_PARTITIONS
    ) -> None:
        self.partitions = frozenset(partitions)
        self.unsure = unsure
        what = what or f"after {MAX_ROUNDS} rounds owners still continue from their old positions, not from the targets"
        names = ", ".join(map(str, sorted(self.partitions)[:10]))
        super().__init__(f"{what}. Partitions: {names}")


class PlanOutdated(Exception):
    """The cluster has changed since the plan was made, so its targets no longer mean what was approved."""


class NotRecorded(Exception):
    """What the run was about to change can't be recorded in the audit log, and the connection requires that."""

    def __init__(self, topic: str, failure: KafkaFailure) -> None:
        super().__init__(
            f"the KafkaConnection requires a record of each change in audit topic {topic}, but the record can't be "
            f"written: {failure}"
        )


class NotCopied(Exception):
    """What would be skipped can't be copied to the dead-letter topic, so it is not skipped."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f"the records to skip can't be copied to dead-letter topic {topic}: {why}")


class NeedsAgents(Exception):
    """A replay is to end, and an owner runs no agent by now, so that nothing would end it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the replay would not end, because only the agent ends it: {why}")


FAILURES: Final = (
    KafkaFailure,
    DeadlinePassed,
    DidNotHold,
    NotReady,
    PlanOutdated,
    NotRecorded,
    NotCopied,
    NeedsAgents,
)

_REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (DeadlinePassed, "DeadlineExceeded"),
    (DidNotHold, "Overwritten"),
    (PlanOutdated, "PlanOutdated"),
    (NotRecorded, "NotRecorded"),
    (NotCopied, "NotCopied"),
    (NotReady, "GroupNotReady"),
    (NeedsAgents, "NeedsAgents"),
    (NotAuthorized, "NotAuthorized"),
    (UnknownPartitions, "UnknownPartitions"),
    (Unavailable, "KafkaUnavailable"),
    (OutcomeUnknown, "OutcomeUnknown"),
)

_ANY_OTHER: Final = "RefusedByKafka"

APPLY_REASONS: Final = (*(reason for _, reason in _REASONS), _ANY_OTHER)
"""Why a plan could not be applied."""


def reason_of(error: Exception) -> str:
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), _ANY_OTHER)


def overwritten_by(error: Exception) -> Partitions:
    return error.partitions - error.unsure if isinstance(error, DidNotHold) else NO_PARTITIONS
