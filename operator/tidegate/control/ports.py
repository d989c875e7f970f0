"""What Tidegate needs of the control and ack topics. One contract suite runs against each implementation.

Calls block, are bounded in time and thread-safe; they raise subclasses of ``tidegate.kafka.errors.KafkaFailure`` only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from tidegate.control.gates import Gates
from tidegate.control.records import (
    Claim,
    ClaimKey,
    Hold,
    HoldKey,
    Limit,
    LimitKey,
    PartitionKey,
    PartitionSeen,
    Run,
    RunKey,
)


class ControlTopics(Protocol):
    """The control topic and its ack topic on one cluster.

    A client may be of a process of an operator. Of an operator's processes only the newest writes: ``ensure`` takes
    over from earlier ones, as does the first write where that was not called. From then on their writes, ``ensure`` and
    ``confirm`` change nothing and raise ``Fenced``, for good, also in clients that they open later; reading goes on.
    Clients of nobody's process, such as those of runs and commands, fence nobody and are never fenced.
    """

    @property
    def exist(self) -> bool:
        """Whether the last ``read`` found both topics; ``False`` before the first one."""
        ...

    @property
    def unreadable(self) -> int:
        """How many records of the topics, as last read, were skipped because they are not of the contract."""
        ...

    def ensure(self) -> tuple[str, ...]:
        """Create the topics where they are missing; what is wrong with those that are there (``topics.complaints``).

        Takes back acks of epochs that the control topic has not reached, such as those that were made for an earlier
        one. Raises ``NotAuthorized`` where topics are missing and may not be created.
        """
        ...

    def confirm(self) -> None:
        """Raise ``Fenced`` where another process of this operator has taken over from this client's.

        Without it a process that has nothing to write never hears of that. Does nothing for a client of nobody's, and
        where nothing was taken over yet.
        """
        ...

    def read(self, groups: Collection[str] = (), *, wait_s: float = 0.0) -> Gates:
        """What both topics say now: everything that was written before this call is in it; acks of ``groups`` only.

        ``wait_s``: where nothing new has been written since the last call, wait that long for something. Without
        topics: nothing is held. The result belongs to the caller: later calls do not change it. Acks of epochs that
        the control topic has not reached are left out, then and for ever: they were made for an earlier one, or made
        up. Of a group that is asked about for the first time, the ack topic is read from its start. What acks take of
        memory is bounded (``control.acks``): of a group with very many, the oldest may be missing.
        """
        ...

    def hold(self, holds: Mapping[HoldKey, Hold]) -> Mapping[HoldKey, int]:
        """Write holds; their epochs, never 0. Each stays in force until it is released.

        Raises ``Refused``, with nothing written, where one is not of the contract (``control.records``), and
        ``Unavailable`` also when the answer is missing: writing again is harmless.
        """
        ...

    def limit(self, limits: Mapping[LimitKey, Limit]) -> Mapping[LimitKey, int]:
        """Write limits; their epochs, never 0. Each stays in force until it is released. Raises as ``hold``."""
        ...

    def release(self, keys: Iterable[HoldKey | LimitKey]) -> None:
        """Write tombstones, in this order. Releasing what is not held does nothing, nor does releasing without a
        control topic."""
        ...

    def write_partitions(self, records: Mapping[PartitionKey, PartitionSeen | None]) -> None:
        """Write when partitions were made; ``None`` takes back what was said of one. May be tens of thousands.

        Raises ``Refused``, with nothing written, where one is not of the contract: no agent would read it. Raises
        ``Unavailable`` also when answers are missing: some may be written then, and writing all again is harmless.
        """
        ...

    def write_clock(self) -> int:
        """Write a clock record; the broker's time as it was appended, epoch milliseconds.

        Raises ``Refused`` where the topic's timestamps are not the broker's (``topics.complaints`` says what mends it),
        and ``Unavailable`` also when the answer is missing.
        """
        ...

    def claim(self, key: ClaimKey, claim: Claim) -> None:
        """Write a claim, or renew one; the next ``read`` tells what came of it.

        Raises ``Refused`` where the topic's records have no one order, or timestamps that are not the broker's
        (``topics.complaints`` says what mends it), and ``Unavailable`` also when the answer is missing.
        """
        ...

    def withdraw(self, keys: Iterable[ClaimKey]) -> None:
        """Write tombstones. Withdrawing what was not claimed does nothing, nor does it without a control topic."""
        ...

    def note_runs(self, records: Mapping[RunKey, Run | None]) -> None:
        """Write that resets were executed; ``None`` takes back what was said of one. See also ``control.run_records``.

        A run without an outcome says nothing of a key that another run (``uid``) has: whoever came first keeps it.
        Raises ``Refused``, with nothing written, where one is not of the contract, and ``Unavailable`` also when the
        answer is missing: writing again is harmless.
        """
        ...

    def close(self) -> None: ...
