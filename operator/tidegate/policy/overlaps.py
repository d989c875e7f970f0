"""What a policy's status says of other policies that ask for the same, of the same groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tidegate.policy.draft import Draft
from tidegate.resources.many_groups import MAX_WORST, Overlap

MORE_SPECIFIC_POLICY: Final = "MoreSpecificPolicy"

_AGAIN_S: Final = 60.0
"""Nobody tells a policy that another one has gone, or asks for something else."""


@dataclass(slots=True)
class Found:
    """By other policy and part, the groups of which this policy holds, and of which the other one does."""

    held: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    lost: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def holds(self, others: Iterable[str], part: str, group: str) -> None:
        for other in others:
            self.held.setdefault((other, part), []).append(group)

    def yields(self, other: str, part: str, group: str) -> None:
        self.lost.setdefault((other, part), []).append(group)

    @property
    def overridden(self) -> frozenset[str]:
        """Groups of which something is kept by another policy."""
        return frozenset(group for groups in self.lost.values() for group in groups)


def say(found: Found, draft: Draft) -> None:
    """Write it into the status, and into the condition of a policy that yields."""
    overrides, overridden_by = _overlaps(found.held), _overlaps(found.lost)
    draft.status = draft.status.model_copy(
        update={"overrides": overrides or None, "overridden_by": overridden_by or None}
    )
    draft.overridden_is(MORE_SPECIFIC_POLICY, "; ".join(map(_told, overridden_by)))
    if overrides or overridden_by:
        draft.look_in(_AGAIN_S)


def _overlaps(found: dict[tuple[str, str], list[str]]) -> tuple[Overlap, ...]:
    """The policies with the most groups first."""
    rows = [
        Overlap(policy=policy, part=part, groups=len(groups), example=min(groups))
        for (policy, part), groups in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.groups, row.policy, row.part))[:MAX_WORST])


def _told(row: Overlap) -> str:
    which = f"group {row.example}" if row.groups == 1 else f"{row.groups} groups, such as {row.example}"
    return f"for {row.part} of {which}, OffsetResetPolicy {row.policy} is more specific"
