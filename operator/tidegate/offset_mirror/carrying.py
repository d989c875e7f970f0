"""Groups' committed offsets, carried over as they are (1:1): whose, and how far. Pure.

Beside each group two of the mirror's own have offsets at the target: what it is about to commit for the group, and what
it has committed. A target's offset that is neither was committed by somebody else: the group is used there, and is left
alone from then on, or its consumers would skip records after they have moved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.kafka.model import TopicPartition
from tidegate.kafka.names import is_allowed
from tidegate.mirror.ports import UNDECIDED, GroupOffset, GroupOffsets
from tidegate.resources.offset_mirror import MirroredGroups

OWN: Final = "tidegate."
"""What the ids of Tidegate's own groups begin with: they are not carried."""
_LONGEST_MARK: Final = 9
_LONGEST_ID: Final = 32_767
"""Bytes of a group's id, as brokers read it."""
_NOBODYS: Final = GroupOffset(2**63 - 1)
"""Noted of a group of which nothing else is: no log has this offset, so nothing that is committed is taken for ours."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What the mirror's two groups beside each are called. ``mark``: of a failback, so that it does not go by what was
    noted in that cluster before; empty: none."""

    mark: str = ""

    def carrying_id(self, group_id: str) -> str:
        """The group whose offsets are what is about to be committed for ``group_id``."""
        return f"tidegate.carrying{self.mark}/{group_id}"

    def carried_id(self, group_id: str) -> str:
        """The group whose offsets are what was committed for ``group_id``."""
        return f"tidegate.carried{self.mark}/{group_id}"

    def noted_by(self, carried_id: str) -> str:
        """The group of which this one notes what was committed; empty: it does so of none."""
        return carried_id.removeprefix(self.carried_id("")) if carried_id.startswith(self.carried_id("")) else ""


NOTES: Final = Notes()


def notes_of(uid: str, *, fails_back: bool) -> Notes:
    """Of the mirror with this uid."""
    return Notes(f"-{uid[:8]}") if fails_back else NOTES


@dataclass(frozen=True, slots=True)
class Standing:
    """A group's offsets, in both clusters."""

    source: GroupOffsets
    target: GroupOffsets
    carrying: GroupOffsets
    carried: GroupOffsets
    adopts: frozenset[str] = frozenset()
    """Topics that were taken over from a failover: what the group has committed for them is from before it, and ours,
    as long as nothing was noted of the group. Later offsets of which nothing is noted are somebody else's."""

    @property
    def adopted(self) -> GroupOffsets:
        if self.carrying or self.carried:
            return {}
        return {p: there for p, there in self.target.items() if p.topic in self.adopts and there.offset != UNDECIDED}


@dataclass(frozen=True, slots=True)
class Carry:
    """``unnoted``: what the group has by our hand and is not noted as carried: to be noted before anything else is
    about to be committed, or a process that dies next leaves an offset that is nobody's. ``offsets``: to be committed
    for the group. ``settled``: what it has already. ``in_use``: of somebody else's; where there is one, nothing is
    committed for any partition of the group."""

    unnoted: Mapping[TopicPartition, GroupOffset]
    offsets: Mapping[TopicPartition, GroupOffset]
    settled: Mapping[TopicPartition, GroupOffset]
    in_use: frozenset[TopicPartition]
    kept: Mapping[TopicPartition, GroupOffset] = field(default_factory=dict)


def selected(group_id: str, spec: MirroredGroups, *allowed: tuple[str, ...]) -> bool:
    """Not those whose ids leave no room for what the mirror's own are called: brokers close the connection on a longer
    one, and no other group of that request would be read."""
    return (
        not group_id.startswith(OWN)
        and len(Notes().carrying_id(group_id).encode()) + _LONGEST_MARK <= _LONGEST_ID
        and is_allowed(group_id, spec.include)
        and not is_allowed(group_id, spec.exclude or ())
        and all(is_allowed(group_id, patterns) for patterns in allowed)
    )


def decide(standing: Standing, ends: Mapping[TopicPartition, int], copies: Collection[str] = ()) -> Carry:
    """``ends``: of the copies that agree with the source; what is committed beyond them is carried as far as they are.
    ``copies``: all topics that are mirrored, also where nothing is known of their ends: who commits for one of them at
    the target uses it.

    Backwards only where the source went back: a target's offset that is ours was no further than the source's then.
    """
    unnoted: dict[TopicPartition, GroupOffset] = dict(standing.adopted)
    offsets: dict[TopicPartition, GroupOffset] = {}
    settled: dict[TopicPartition, GroupOffset] = {}
    in_use = frozenset(
        p
        for p, there in standing.target.items()
        if (p in ends or p.topic in copies) and there.offset not in _ours(standing, p)
    )
    if in_use:
        # A group that has moved may have had nothing to commit yet for its other partitions.
        by_us = {**standing.adopted, **standing.carrying, **standing.carried}
        kept = by_us or dict.fromkeys(in_use, _NOBODYS)
        return Carry({}, {}, {}, in_use, kept if standing.adopts else {})
    for partition, committed in standing.source.items():
        end = ends.get(partition)
        if end is None:
            continue
        there = standing.target.get(partition)
        noted = standing.carried.get(partition)
        if there is not None and (noted is None or noted.offset != there.offset):
            unnoted[partition] = there
        is_whole = committed.offset <= end
        want = GroupOffset(min(committed.offset, end), committed.metadata if is_whole else "")
        if there is not None and there.offset == want.offset:
            settled[partition] = want
        else:
            offsets[partition] = want
    return Carry(unnoted, offsets, settled, frozenset())


def refused(standing: Standing, offsets: Collection[TopicPartition]) -> GroupOffsets:
    """What is noted as about to be committed once the group was found to have members: what it has. They may come to
    commit just what was refused, which would be taken for ours from then on."""
    return {p: standing.target.get(p, _NOBODYS) for p in offsets}


def _ours(standing: Standing, partition: TopicPartition) -> set[int]:
    known = (standing.carrying.get(partition), standing.carried.get(partition), standing.adopted.get(partition))
    return {one.offset for one in known if one is not None} - {UNDECIDED}
