"""What a mirrored partition needs of its two clusters. All calls block and are bounded in time.

What cannot be told apart from "not done" is ``Interrupted``, never an exception. ``KafkaFailure``s are for what does
not pass: a right that is missing, credentials that are refused.
"""

from __future__ import annotations

from typing import Protocol

from tidegate.mirror.model import Appended, Coordinated, Done, Interrupted, ProducerIds, Refusal, Tail
from tidegate.mirror.source import SourceRead


class Source(Protocol):
    """One partition of the source, read as a consumer of committed records reads it."""

    def read(self, offset: int) -> SourceRead | Interrupted: ...


class Target(Protocol):
    """One partition of the target, at its leader.

    Whatever follows a :meth:`tail` is sent on the connection on which that was read, and is ``Interrupted`` where this
    connection is gone: nothing that was decided before a long pause can arrive after it.
    """

    def tail(self, window: int) -> Tail | Interrupted:
        """``Interrupted`` also while the last records are not replicated."""
        ...

    def append(self, batches: tuple[bytes, ...]) -> Appended | Interrupted: ...

    def write_markers(self, producer_id: int, epoch: int, count: int) -> Done | Refusal | Interrupted: ...

    def delete_records(self, offset: int) -> Done | Refusal | Interrupted: ...


class Coordinator(Protocol):
    """The transaction coordinator of the mirror's transactional id, and the target's leader for what is aborted."""

    def fence_predecessors(self) -> Coordinated | Interrupted:
        """``Interrupted`` while a transaction is under way."""
        ...

    def transact(self, producer: Coordinated, fillers: int) -> Done | Refusal | Interrupted: ...


class ProducerIdStore(Protocol):
    """The producer ids of one partition: kept for as long as the mirror is, the same for all of its writers."""

    def claim(self, after: int | None) -> ProducerIds | Interrupted:
        """All ids, with a new one at the end if ``after`` was the last so far; None: if there was none."""
        ...
