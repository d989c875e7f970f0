"""Which partitions a run covers: what was selected, or else all that the group reads. Pure.

Nothing is refused here: what was asked for and cannot be is in the answer (``Scope``), for the checks of
``tidegate.reset.planning.plan`` to name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidegate.kafka.model import Group, Offsets, Topic, TopicPartition
from tidegate.kafka.names import TOPIC_NAME, is_allowed, is_internal, is_pattern, matches
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import FromCluster, FromFile, FromGroup, ShiftBy, Undo


@dataclass(frozen=True, slots=True)
class Scope:
    """``partitions``: those that exist and may be touched, sorted.

    The sets name what was asked for and cannot be: ``internal`` topics, ``unknown`` ones, ``unknown_partitions`` of
    topics that exist, topics ``not_allowed`` by the connection. ``notes``: what a pattern or the group's own list
    brought up and was left out, as sentences for a person.
    """

    partitions: tuple[TopicPartition, ...]
    internal: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    unknown_partitions: frozenset[TopicPartition] = frozenset()
    not_allowed: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def is_undecided(request: RunRequest, group: Group) -> bool:
    """The scope is what the group subscribes to, and just now a rebalance hides that: look again later."""
    named = bool(request.selections) or isinstance(request.target, FromFile | Undo)
    return not named and group.state.is_rebalancing and any(not m.assignment for m in group.members)


def topics_to_know(
    request: RunRequest, group: Group, committed: Offsets, other: Offsets | None = None
) -> frozenset[str] | None:
    """The topics of which ``scope_of`` has to know what there is; ``None``: all, since a pattern selects among them.

    A cluster may have very many that no plan is about.
    """
    if any(is_pattern(selection.topic) for selection in request.selections):
        return None
    target, names = request.target, {selection.topic for selection in request.selections}
    if isinstance(target, FromFile):
        names.update(offset.topic for offset in target.offsets)
    if isinstance(target, Undo):
        names.update(offset.topic for offset in target.before)
        names.update(p.topic for p in target.absent)
    names.update(p.topic for p in (*committed, *group.assigned, *(other or ())))
    # Of what a file calls a topic, and no broker could, there is nothing to know.
    return frozenset(filter(TOPIC_NAME.fullmatch, names))


def scope_of(
    request: RunRequest,
    topics: Mapping[str, Topic],
    group: Group,
    committed: Offsets,
    other: Offsets | None = None,
) -> Scope:
    """The partitions of a run.

    With selections: those, whether or not the group reads them. Without: what a file or an undone run names, else what
    the group reads; for ``group`` and ``cluster`` as target, what the other group has offsets for if this one reads
    nothing yet. ``committed``: all offsets of the group; ``other``: those of the other one.
    """
    target = request.target
    if request.selections:
        return _selected(request.selections, topics, request.allowed_topics)
    if isinstance(target, FromFile):
        return _named((o.topic_partition for o in target.offsets), topics, request.allowed_topics)
    if isinstance(target, Undo):
        return _named(
            [*(o.topic_partition for o in target.before), *target.absent],
            topics,
            request.allowed_topics,
        )
    read = set(committed)
    if not isinstance(target, ShiftBy):  # there is nothing to shift where nothing was committed
        subscribed = {p.topic for p in group.assigned}
        read.update(p for name in subscribed if name in topics for p in topics[name].all_partitions())
    if not read and isinstance(target, FromGroup | FromCluster) and other:
        read = set(other)
    return _read_by_group(read, topics, request.allowed_topics)


def _selected(selections: Collection[Selection], topics: Mapping[str, Topic], allowed: Collection[str]) -> Scope:
    partitions: set[TopicPartition] = set()
    internal: set[str] = set()
    unknown: set[str] = set()
    unknown_partitions: set[TopicPartition] = set()
    not_allowed: set[str] = set()
    notes: list[str] = []
    for selection in selections:
        wanted = selection.partitions
        if is_pattern(selection.topic):
            matching = [t for name, t in topics.items() if not is_internal(name) and matches(name, selection.topic)]
            refused = sorted(t.name for t in matching if not is_allowed(t.name, allowed))
            if refused:
                notes.append(f"{selection.topic} also matches {listed(refused)}, which the connection does not allow")
            if not matching:
                notes.append(f"No topic matches {selection.topic}")
            partitions.update(
                p
                for t in matching
                if is_allowed(t.name, allowed)
                for p in t.all_partitions()
                if wanted is None or p.partition in wanted
            )
        elif is_internal(selection.topic):
            internal.add(selection.topic)
        elif selection.topic not in topics:
            unknown.add(selection.topic)
        elif not is_allowed(selection.topic, allowed):
            not_allowed.add(selection.topic)
        else:
            there = topics[selection.topic].all_partitions()
            partitions.update(p for p in there if wanted is None or p.partition in wanted)
            missing = (wanted or frozenset()) - frozenset(range(len(there)))
            unknown_partitions.update(TopicPartition(selection.topic, number) for number in missing)
    return Scope(
        partitions=tuple(sorted(partitions)),
        internal=frozenset(internal),
        unknown=frozenset(unknown),
        unknown_partitions=frozenset(unknown_partitions),
        not_allowed=frozenset(not_allowed),
        notes=tuple(notes),
    )


def _named(named: Iterable[TopicPartition], topics: Mapping[str, Topic], allowed: Collection[str]) -> Scope:
    """Each partition was named one by one, so each has to be there."""
    wanted = set(named)
    known = {p for p in wanted if p.topic in topics}
    there = {p for p in known if 0 <= p.partition < topics[p.topic].partitions}
    may = {name for name in {p.topic for p in known} if is_allowed(name, allowed)}
    internal = {p.topic for p in wanted if is_internal(p.topic)}
    return Scope(
        partitions=tuple(sorted(p for p in there if p.topic in may and p.topic not in internal)),
        internal=frozenset(internal),
        unknown=frozenset(p.topic for p in wanted - known if p.topic not in internal),
        unknown_partitions=frozenset(known - there),
        not_allowed=frozenset(p.topic for p in known if p.topic not in may),
    )


def _read_by_group(read: Collection[TopicPartition], topics: Mapping[str, Topic], allowed: Collection[str]) -> Scope:
    """What a group has left behind of topics that are gone is no reason to refuse; a forbidden topic is.

    Whoever names no topic means the whole group: half of it would be a surprise.
    """
    outside = [p for p in read if not is_internal(p.topic)]
    there = [p for p in outside if p.topic in topics and 0 <= p.partition < topics[p.topic].partitions]
    may = {name for name in {p.topic for p in there} if is_allowed(name, allowed)}
    notes = []
    if len(outside) < len(read):
        notes.append(f"Left out, internal topics: {listed(sorted({p.topic for p in read if is_internal(p.topic)}))}")
    if len(there) < len(outside):
        gone = sorted(map(str, set(outside) - set(there)))
        notes.append(
            f"Left out, because these partitions no longer exist, although the group has offsets there: {listed(gone)}"
        )
    return Scope(
        partitions=tuple(sorted(p for p in there if p.topic in may)),
        not_allowed=frozenset(p.topic for p in there if p.topic not in may),
        notes=tuple(notes),
    )


def listed(names: Collection[object], most: int = 10) -> str:
    """The first names in the order given, and how many more there are."""
    text = ", ".join(str(name) for _, name in zip(range(most), names, strict=False))
    return f"{text} and {len(names) - most:,} more" if len(names) > most else text
