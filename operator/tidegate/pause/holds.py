"""Which partitions a pause stands for, and which holds that takes. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tidegate.control.gates import Gates, Held
from tidegate.control.records import Hold, HoldKey
from tidegate.kafka.model import Group, Offsets, Topic, TopicPartition
from tidegate.kafka.names import is_allowed, is_internal, is_pattern, matches
from tidegate.resources.base import PartitionSelection
from tidegate.resources.partitions import ranges_of
from tidegate.resources.pause import ConsumerGroupPauseSpec

_KIND: Final = "pause"

MOST_BEFOREHAND: Final = 1000
"""How many partitions that do not exist yet are held beforehand: ``0-99999`` is quickly written."""


def holder(connection_uid: str, pause_uid: str) -> str:
    """Whose holds these are. A resource or connection that is made anew under the old name is another holder."""
    return f"{_KIND}/{connection_uid}/{pause_uid}"


def pause_of(of: str, connection_uid: str) -> str | None:
    """The uid of the pause whose holder this is, if it holds through this connection."""
    kind, _, rest = of.partition("/")
    connection, _, pause_uid = rest.partition("/")
    return pause_uid if (kind, connection) == (_KIND, connection_uid) and pause_uid else None


def is_a_pause(of: str) -> bool:
    """Whether a pause is this holder, through whichever connection."""
    return of.startswith(f"{_KIND}/")


def _is_own(of: str, pause_uid: str) -> bool:
    kind, _, rest = of.partition("/")
    return kind == _KIND and rest.partition("/")[2] == pause_uid


def own_holds(gates: Gates, pause_uid: str) -> Mapping[HoldKey, Held]:
    """All holds of a pause, also those it has through another connection, or on what it does not want any more."""
    return {key: held for key, held in gates.held_by(pause_uid).items() if _is_own(key.holder, pause_uid)}


# --- which partitions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """The partitions that shall stand still, sorted.

    ``beforehand``: named one by one and not there yet; they are held already, and so are paused from their first
    record on. ``missing``: topics that were named and do not exist. ``forbidden``: topics that the group reads and the
    connection does not allow, where no topics were named.
    """

    existing: tuple[TopicPartition, ...] = ()
    beforehand: tuple[TopicPartition, ...] = ()
    missing: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    @property
    def to_hold(self) -> frozenset[TopicPartition]:
        return frozenset((*self.existing, *self.beforehand))


def wanted_partitions(
    spec: ConsumerGroupPauseSpec,
    allowed_topics: Collection[str],
    topics: Mapping[str, Topic],
    group: Group,
    committed: Offsets,
    known: Collection[TopicPartition],
) -> Wanted:
    """The partitions of a pause now; those of its topics that are added later are in a later answer.

    ``committed``: all offsets of the group; ``known``: partitions that the pause stood for before. A group that is
    just restarting has no members and perhaps no offsets: its topics are still the ones that they were.
    """
    if spec.partitions is None:
        named = {p.topic for p in group.assigned} | {p.topic for p in (*committed, *known)}
        read = {name for name in named if name in topics and not is_internal(name)}
        forbidden = {name for name in read if not is_allowed(name, allowed_topics)}
        existing = {p for name in read - forbidden for p in topics[name].all_partitions()}
        return Wanted(existing=tuple(sorted(existing)), forbidden=tuple(sorted(forbidden)))
    existing = {p for selection in spec.partitions for p in _existing(selection, allowed_topics, topics)}
    beforehand = (p for p in _named(spec.partitions) if p not in existing)
    return Wanted(
        existing=tuple(sorted(existing)),
        beforehand=tuple(itertools.islice(beforehand, MOST_BEFOREHAND)),
        missing=tuple(s.topic for s in spec.partitions if not is_pattern(s.topic) and s.topic not in topics),
    )


def _existing(
    selection: PartitionSelection, allowed_topics: Collection[str], topics: Mapping[str, Topic]
) -> Iterator[TopicPartition]:
    named = topics.get(selection.topic)
    found = topics.values() if is_pattern(selection.topic) else () if named is None else (named,)
    for topic in found:
        is_meant = matches(topic.name, selection.topic) and not is_internal(topic.name)
        if is_meant and is_allowed(topic.name, allowed_topics):
            yield from (p for p in topic.all_partitions() if _has(selection, p.partition))


def _named(selections: Iterable[PartitionSelection]) -> Iterator[TopicPartition]:
    """Those that are named by topic and number, in order. Each topic is named once."""
    for selection in sorted((s for s in selections if not is_pattern(s.topic)), key=lambda s: s.topic):
        for numbers in ranges_of(selection.partitions or ()):
            yield from (TopicPartition(selection.topic, number) for number in numbers)


def _has(selection: PartitionSelection, number: int) -> bool:
    return selection.partitions is None or any(number in numbers for numbers in ranges_of(selection.partitions))


def covers(spec: ConsumerGroupPauseSpec, allowed_topics: Collection[str], partition: TopicPartition) -> bool:
    """Whether the pause is about this partition, if there is such a one.

    What it holds of that stays held even where the partition is not to be seen: a broker that has not heard of a topic
    yet must not open a gate.
    """
    if is_internal(partition.topic) or not is_allowed(partition.topic, allowed_topics):
        return False
    if spec.partitions is None:
        return True
    return any(
        matches(partition.topic, selection.topic) and _has(selection, partition.partition)
        for selection in spec.partitions
    )


@dataclass(frozen=True, slots=True)
class Covered:
    """:func:`covers`, of one pause."""

    spec: ConsumerGroupPauseSpec
    allowed_topics: tuple[str, ...]

    def __call__(self, partition: TopicPartition) -> bool:
        return covers(self.spec, self.allowed_topics, partition)


# --- which holds ------------------------------------------------------------------------------------------------------


def hold_of(spec: ConsumerGroupPauseSpec, name: str) -> Hold:
    """What a hold of this pause says. ``name``: the resource's namespace and name, for who finds the gate closed."""
    return Hold(spec.reason or f"ConsumerGroupPause {name}", spec.drain_timeout // timedelta(milliseconds=1))


@dataclass(frozen=True, slots=True)
class HoldChanges:
    """What is to be written: holds that are missing or say something else, and those that go."""

    write: Mapping[HoldKey, Hold]
    release: tuple[HoldKey, ...]

    def __bool__(self) -> bool:
        return bool(self.write or self.release)


def hold_changes(
    spec: ConsumerGroupPauseSpec,
    allowed_topics: Collection[str],
    hold: Hold,
    mine: str,
    wanted: frozenset[TopicPartition],
    own: Mapping[HoldKey, Held],
) -> HoldChanges:
    """From the holds that are there to those that have to be. ``mine``: the holder that this pause is now.

    A hold that is right stays untouched: written again it would have to be acked again.
    """
    write = {}
    for partition in sorted(wanted):
        key = HoldKey(spec.group, partition.topic, partition.partition, mine)
        if key not in own or not own[key].says(hold):
            write[key] = hold
    release = [
        key
        for key in own
        if key.holder != mine or key.group != spec.group or not covers(spec, allowed_topics, key.topic_partition)
    ]
    return HoldChanges(write, tuple(sorted(release)))
