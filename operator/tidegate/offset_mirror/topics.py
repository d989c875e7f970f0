"""What the copy of a topic needs before, and while, its records are copied. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate.kafka.model import Topic
from tidegate.kafka.names import is_allowed, is_internal
from tidegate.mirror.records import FILLER_KEY
from tidegate.resources.offset_mirror import CopyState, MirroredTopics, MirroredTopicStatus

Settings = Mapping[str, str]

CARRIED: Final = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
)
"""What the copy has as the source has it, whether it was set there for the topic or holds for all."""
FIXED: Final[Settings] = {"compression.type": "producer", "message.timestamp.type": "CreateTime"}
"""Else the brokers would write batches anew, or give records times of their own."""
_ANY_TIME: Final = ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms")
"""By these brokers refuse records (Kafka 3.6 and later): those of the source were taken once."""
_FOR_EVER: Final = str(2**63 - 1)
_KEPT: Final[Settings] = {"retention.bytes": "-1", "retention.ms": "-1"}
"""Of a topic without ``delete`` in its policy whose records up to an offset are gone: only with ``delete`` brokers let
go of what filled the offsets before. One with no policy at all (KIP-1161) is not compacted for that."""


@dataclass(frozen=True, slots=True)
class Create:
    name: str
    partitions: int
    settings: Settings


@dataclass(frozen=True, slots=True)
class AddPartitions:
    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Configure:
    name: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class Copied:
    """There is nothing to do but to copy. ``compacts``: records may vanish one by one, from either log."""

    source: Topic
    target: Topic
    compacts: bool
    filler_key: bytes | None
    adopted: tuple[int, ...] = ()
    """By partition, up to where the target's records are the beginning of the copy, whoever wrote them."""


@dataclass(frozen=True, slots=True)
class Halted:
    """Nothing may be copied until somebody does something. ``unless_ours``: it is so only if the mirror did not write
    what the target has."""

    message: str
    drifted: bool
    unless_ours: bool = False


Step = Create | AddPartitions | Configure | Copied | Halted


@dataclass(frozen=True, slots=True)
class Sides:
    """A topic as it is in both clusters. ``begins_later``: some log of the source does not begin at 0;
    ``target_is_empty``: no log of the target has had a record; ``was_emptied``: one has had some and has none, where
    the source has records before its end; ``not_adopted``: why what the target has can't be taken over."""

    source: Topic
    source_settings: Settings
    begins_later: bool
    target: Topic | None
    target_settings: Settings
    target_is_empty: bool = True
    was_emptied: bool = False
    not_adopted: str = ""
    is_ours: bool = False


def wanted(topics: Iterable[str], spec: MirroredTopics, *allowed: Collection[str]) -> list[str]:
    """Names of the source's topics that are to be copied. ``allowed``: by each of the connections."""
    return sorted(
        name
        for name in topics
        if not is_internal(name)
        and is_allowed(name, spec.include)
        and not is_allowed(name, spec.exclude or ())
        and all(is_allowed(name, patterns) for patterns in allowed)
    )


def next_step(sides: Sides, known: MirroredTopicStatus | None) -> Step:
    """``known``: what the status says of the topic; ``None``: it was not copied before."""
    source, target, name = sides.source, sides.target, sides.source.name
    settings = _settings(sides)
    if target is None:
        return Create(name, source.partitions, settings)
    if sides.not_adopted:
        return Halted(sides.not_adopted, drifted=True)
    if known is not None and known.source_id != source.topic_id and known.target_id == target.topic_id:
        return Halted(
            f"topic {name} was deleted and created again at the source: its records do not belong to the copy",
            drifted=True,
        )
    if target.partitions > source.partitions:
        return Halted(
            f"topic {name} has {target.partitions} partitions at the target, and {source.partitions} at the source: "
            "delete it at the target to have it copied again from its start",
            drifted=False,
        )
    different = {key: value for key, value in settings.items() if sides.target_settings.get(key) != value}
    grows = target.partitions < source.partitions
    if (different or grows) and not (sides.target_is_empty or sides.is_ours or is_copy(target, known)):
        # Other settings could delete records, which are somebody's.
        return Halted(
            f"topic {name} has records at the target that this mirror did not copy, and its settings or partitions "
            "differ from the source's: exclude the topic if you want to keep it",
            drifted=True,
            unless_ours=not (known is not None and known.target_id),
        )
    if sides.was_emptied and not is_copy(target, known):
        return Halted(
            f"topic {name} was emptied at the target, and the source has records from before its end there",
            drifted=True,
        )
    if grows:
        return AddPartitions(name, source.partitions)
    adopted = known.adopted if known is not None else ()
    if different and (sides.target_is_empty or is_verified(known) or adopted):
        return Configure(name, different)
    compacts = "compact" in settings["cleanup.policy"]
    return Copied(source, target, compacts, FILLER_KEY if compacts else None, adopted)


def is_copy(target: Topic, known: MirroredTopicStatus | None) -> bool:
    """Whether the topic at the target is one that this mirror copies, and has found nobody else's records in."""
    return known is not None and known.target_id == target.topic_id and known.state is not CopyState.DRIFTED


def is_verified(known: MirroredTopicStatus | None) -> bool:
    """Whether the copy's records have been looked at. Until they have, they may be somebody else's."""
    return known is not None and (known.seeded or known.state is not CopyState.WAITING)


def _settings(sides: Sides) -> dict[str, str]:
    """What the copy has to have."""
    carried = {key: sides.source_settings[key] for key in CARRIED if key in sides.source_settings}
    carried.setdefault("cleanup.policy", "delete")
    if sides.begins_later and "delete" not in carried["cleanup.policy"]:
        policy = "compact,delete" if "compact" in carried["cleanup.policy"] else "delete"
        carried.update({**_KEPT, "cleanup.policy": policy})
    any_time = {key: _FOR_EVER for key in _ANY_TIME if key in sides.target_settings}
    return {**carried, **FIXED, **any_time}
