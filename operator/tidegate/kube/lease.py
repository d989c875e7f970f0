"""What the election needs of ``coordination.k8s.io/v1 Lease``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The ``spec`` of a Lease. ``holder`` is empty while it is nobody's.

    Two are equal where they say the same: whether a record was renewed is told by its having changed, and its times are
    for people. ``lease`` is the object that it was read from, if any; it is written back with its ``resourceVersion``.
    """

    holder: str
    duration_s: int
    transitions: int
    acquired: datetime | None
    renewed: datetime | None
    lease: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)


class Leases(Protocol):
    """One Lease, by its name. All calls block and are bounded in time; they raise ``KubeFailure``."""

    def read(self) -> LeaseRecord | None:
        """``None``: there is no such Lease."""
        ...

    def create(self, record: LeaseRecord) -> LeaseRecord:
        """As it is now. Raises ``Conflict`` where somebody else has created it."""
        ...

    def update(self, record: LeaseRecord, over: LeaseRecord) -> LeaseRecord:
        """Write ``record`` where the Lease is still as ``over`` was read; as it is now.

        Raises ``Conflict`` where it was changed, or is gone.
        """
        ...

    def tell(self, record: LeaseRecord, message: str) -> None:
        """Record an Event about the Lease."""
        ...
