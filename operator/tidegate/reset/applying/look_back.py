"""A last look at the group of a run that has succeeded: who goes on from the targets already, and who is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tidegate.kafka.model import Member, TopicPartition
from tidegate.printable import visible
from tidegate.reset.applying.claim import LEASE_S
from tidegate.reset.applying.context import RunContext
from tidegate.reset.model.result import MAX_UNREAD

_WHOSE_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class LookBack:
    """``waiting``: partitions with records to read of which it is not known that they are read from the target on, and
    their owners. ``absent``: members that were made to leave a join and are not back. ``deleted``: partitions whose log
    begins beyond the target by now."""

    begun: int
    waiting: Mapping[TopicPartition, Member | None]
    absent: tuple[Member, ...]
    deleted: frozenset[TopicPartition] = frozenset()

    @property
    def unread(self) -> tuple[str, ...]:
        """The first of ``waiting`` for people, each on one line of bounded length: client ids are anybody's text."""
        return tuple(visible(_whose(*each))[:_WHOSE_CHARS] for each in islice(self.waiting.items(), MAX_UNREAD))


def look_back(context: RunContext) -> LookBack:
    """Of which partitions it is known by now that they are read from the target on, and who is away.

    Raises ``KafkaFailure``, and ``ClaimLost`` where another run may have committed what was found.
    """
    everything = frozenset(context.state.targets)
    seen = context.view.committed(everything)
    context.claim.confirm(after_s=LEASE_S)
    begun = {p for p, target in context.state.targets.items() if seen.get(p, target) > target}
    begun |= context.sequences.went_on & everything
    ends = context.kafka.log_bounds(everything)
    # Whoever came for the target after retention did begins where it is set up to, perhaps at the end.
    deleted = frozenset(p for p, target in context.state.targets.items() if ends[p].earliest > target)
    begun -= context.state.doubtful | deleted
    left = everything - begun
    waiting: dict[TopicPartition, Member | None] = {}
    if left:
        group = context.view.group(left)
        owned = {p: group.owner(p) for p in sorted(left)}
        hidden = group.hidden(left)
        waiting = {
            p: owner
            for p, owner in owned.items()
            if (owner is not None or p in hidden) and ends[p].latest > context.state.targets[p]
        }
    return LookBack(len(begun), waiting, context.joins.left_behind(), deleted)


def summary(context: RunContext, seen: LookBack | None) -> str:
    """How a run that has succeeded went, in words."""
    redone = context.state.redone
    way = f" (strategy: {context.state.way})" if context.state.way is not None else ""
    said = [f"{len(context.state.targets)} partition(s) of group {context.group_id} reset{way}"]
    if redone:
        said.append(
            f"{redone} had to be reset again, because an owner continued, or may have continued, from its old position"
        )
    if context.joins.were_freed:
        said.append(
            "all members were made to leave, because not all had rejoined within maxStandstill "
            f"({context.joins.standstill_s:g} s)"
        )
    if seen is not None and seen.absent:
        names = ", ".join(f"{m.client_id} at {m.host}" for m in seen.absent[:3])
        said.append(f"{len(seen.absent)} member(s) have not rejoined yet: {names}")
    if seen is not None and seen.deleted:
        said.append(
            f"the log of {len(seen.deleted)} partition(s), e.g. {min(seen.deleted)}, has since been deleted past the "
            "target: a consumer that had not begun at the target begins where auto.offset.reset says"
        )
    if seen is not None and seen.waiting:
        said.append(
            f"{len(seen.waiting)} partition(s) are not known to be read from their targets yet, e.g. {seen.unread[0]}"
        )
    return "; ".join(said)


def _whose(partition: TopicPartition, owner: Member | None) -> str:
    by = f" by {owner.client_id} at {owner.host}" if owner is not None else ", as the group is rebalancing"
    return f"{partition}{by}"
