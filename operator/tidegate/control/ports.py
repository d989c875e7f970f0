"""What Tidegate needs of the control and ack topics. One contract suite runs against each implementation.

Calls block, are bounded in time and thread-safe; they raise subclasses of ``tidegate.kafka.errors.KafkaFailure`` only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from tidegate.control.gates import Gates
from tidegate.control.records import Hold, HoldKey


class ControlTopics(Protocol):
    """The control topic and its ack topic on one cluster."""

    def ensure(self) -> tuple[str, ...]:
        """Create the topics where they are missing; what is wrong with those that are there (``topics.complaints``).

        Raises ``NotAuthorized`` where they are missing and may not be created.
        """
        ...

    def read(self, *, wait_s: float = 0.0) -> Gates:
        """What both topics say now: everything that was written before this call is in it.

        ``wait_s``: where nothing new has been written since the last call, wait that long for something. Without
        topics: nothing is held. The result belongs to the caller: later calls do not change it.
        """
        ...

    def hold(self, holds: Mapping[HoldKey, Hold]) -> Mapping[HoldKey, int]:
        """Write holds; their epochs. Each stays in force until it is released."""
        ...

    def release(self, keys: Iterable[HoldKey]) -> None:
        """Write tombstones. Releasing what is not held does nothing."""
        ...

    def close(self) -> None: ...
