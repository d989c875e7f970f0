"""What copies need at the target: topics, partitions, settings. Looks at both clusters, and does what is missing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from tidegate.kafka.errors import NotAuthorized, Refused, Unavailable
from tidegate.kafka.model import Topic
from tidegate.mirror.ports import MirrorCluster
from tidegate.offset_mirror.failback import NOTHING, Adoption, adopted, is_strange
from tidegate.offset_mirror.topics import (
    AddPartitions,
    Configure,
    Copied,
    Create,
    Halted,
    Sides,
    Step,
    is_copy,
    next_step,
    wanted,
)
from tidegate.resources.connection import AllowSpec
from tidegate.resources.offset_mirror import CopyState, MirroredTopics, MirroredTopicStatus, OffsetMirrorStatus

_log = logging.getLogger(__name__)

_OF_RECORDS: Final = frozenset({"cleanup.policy", "message.timestamp.type"})
_DRIFTED_BEFORE: Final = "its copy had drifted from the source when it was last checked"


@dataclass(frozen=True, slots=True)
class Prepared:
    """``copied``: topics of which nothing is missing; ``halted``: by name, those that must not be copied;
    ``preparing``: those for which something was done just now, or that are not there yet; ``gone``: those that the
    source has no more; ``sources``: all of the source's topics that are wanted;
    ``adoption``: what was taken over from another mirror just now; ``changed``: of those for which something was done,
    the topics whose copying that does not touch, with the copy's id."""

    copied: tuple[Copied, ...]
    halted: Mapping[str, Halted]
    preparing: tuple[str, ...]
    gone: frozenset[str]
    sources: Mapping[str, Topic]
    adoption: Adoption = NOTHING
    changed: Mapping[str, str] = field(default_factory=dict)


def prepare(
    source: MirrorCluster,
    target: MirrorCluster,
    names: Mapping[str, Topic],
    known: Mapping[str, MirroredTopicStatus],
    may_write: Callable[[], bool],
    taken_back: OffsetMirrorStatus | None = None,
    ids: Collection[int] = (),
    copying: Container[str] = frozenset(),
) -> Prepared:
    """Bring the target's topics as far as one look allows; a topic that the target refuses is halted, and no other.
    ``names``: the source's topics that are wanted; ``may_write``: whether it is this process's turn; ``taken_back``: of
    the mirror in the other direction that has failed over; ``ids``: this one's producer ids; ``copying``: topics to
    whose copies somebody may append by a place that is known: none is created again before. Raises ``KafkaFailure``.
    """
    adoption = NOTHING if taken_back is None else adopted(taken_back, names, target, known, ids)
    known = {**known, **adoption.rows}
    looked = _look(source, target, names, known, copying)
    there = looked.there
    copied: list[Copied] = []
    halted: dict[str, Halted] = {}
    preparing: list[str] = []
    changed: dict[str, str] = {}
    for name in names:
        if name in looked.halted:
            halted[name] = looked.halted[name]
            continue
        if name in looked.unseen or name in adoption.unseen or (name in copying and name not in there):
            preparing.append(name)
            continue
        sides = replace(looked.sides[name], not_adopted=adoption.refused.get(name, ""))
        step = next_step(sides, known.get(name))
        if isinstance(step, Halted) and step.unless_ours and sides.target is not None:
            is_ours = _is_ours(target, sides.target, ids)
            if is_ours is None:
                preparing.append(name)
                continue
            step = next_step(replace(sides, is_ours=is_ours), known.get(name))
        match step:
            case Copied():
                copied.append(step)
            case Halted():
                halted[name] = step
            case Create() | AddPartitions() | Configure():
                if refused := _made_ready(target, step, may_write):
                    halted[name] = refused
                    continue
                preparing.append(name)
                if name in there and not _touches_copying(step):
                    changed[name] = there[name].topic_id
            case _ as never:
                assert_never(never)
    gone = frozenset(known) - frozenset(names)
    return Prepared(tuple(copied), halted, tuple(preparing), gone, names, adoption, changed)


@dataclass(frozen=True, slots=True)
class _Looked:
    """``there``: the target's topics; ``sides``: of each topic of which all is seen; ``unseen``: those that come or go,
    or of which a log's leader does not tell; ``halted``: those of which something may not be read, and those that had
    drifted when all of them was seen."""

    there: Mapping[str, Topic]
    sides: Mapping[str, Sides]
    unseen: frozenset[str]
    halted: Mapping[str, Halted]


def _look(
    source: MirrorCluster,
    target: MirrorCluster,
    names: Mapping[str, Topic],
    known: Mapping[str, MirroredTopicStatus],
    copying: Container[str],
) -> _Looked:
    """At both sides of the topics; one of which something can't be told holds up no other. Raises ``KafkaFailure``."""
    there = target.topics()
    source_settings, refused = _settings(source, names, copying)
    target_settings, also = _settings(target, [name for name in names if name in there], copying)
    kept = {n: names[n] for n, each in source_settings.items() if "delete" not in each.get("cleanup.policy", "delete")}
    begin_later, untold = _begin_later(source, kept, target_settings)
    strange = [there[name] for name in names if name in there and not is_copy(there[name], known.get(name))]
    written, emptied, unread = _written(source, target, strange, names)
    whole = {n for n in names if n in source_settings and (n not in there or n in target_settings)} - untold - unread
    drifted = {row.name for row in known.values() if row.state is CopyState.DRIFTED}
    halted = {name: Halted(says, drifted=name in drifted) for name, says in (refused | also).items()}
    halted |= {n: Halted(_DRIFTED_BEFORE, drifted=True) for n in (untold | unread) & drifted if n not in halted}
    sides = {
        name: Sides(
            source=names[name],
            source_settings=source_settings[name],
            begins_later=name in begin_later,
            target=there.get(name),
            target_settings=target_settings.get(name, {}),
            target_is_empty=name not in written and there.get(name) in (None, *strange),
            was_emptied=name in emptied,
        )
        for name in whole
    }
    return _Looked(there, sides, frozenset(names) - whole, halted)


def _settings(
    cluster: MirrorCluster, names: Collection[str], copying: Container[str]
) -> tuple[Mapping[str, Mapping[str, str]], dict[str, str]]:
    """Of topics; and why those of others may not be read. Raises ``NotAuthorized`` of one that is being copied: that
    goes on as it is."""
    try:
        return cluster.settings(list(names)), {}
    except NotAuthorized:
        found, refused = dict[str, Mapping[str, str]](), dict[str, str]()
    for name in names:
        try:
            found |= cluster.settings([name])
        except NotAuthorized as failure:
            if name in copying:
                raise
            refused[name] = str(failure)
    return found, refused


@dataclass(frozen=True, slots=True)
class Unlisted:
    """Topics that a listing of the source did not have. ``hidden``: why it is not known whether they are gone, by name;
    ``there``: those that are there all the same."""

    hidden: Mapping[str, Halted]
    there: frozenset[str]


def not_listed(source: MirrorCluster, rows: Collection[MirroredTopicStatus]) -> Unlisted:
    """``rows``: the topics. Brokers don't list what the principal may not see, so each is asked for by its
    name. Raises ``KafkaFailure``."""
    hidden, there = dict[str, Halted](), set[str]()
    for row in rows:
        try:
            if source.topic(row.name) is not None:
                there.add(row.name)
        except NotAuthorized as failure:
            says = f"the source no longer shows topic {row.name}, and it is not being copied: {failure}"
            advice = "If it was deleted there, exclude it here"
            hidden[row.name] = Halted(f"{says}. {advice}", drifted=row.state is CopyState.DRIFTED)
    return Unlisted(hidden, frozenset(there))


def wanted_topics(source: MirrorCluster, spec: MirroredTopics, allowed: Collection[AllowSpec]) -> Mapping[str, Topic]:
    """The source's topics that are to be copied. Raises ``KafkaFailure``."""
    topics = source.topics()
    return {name: topics[name] for name in wanted(topics, spec, *(allow.topics for allow in allowed))}


def _made_ready(
    target: MirrorCluster, step: Create | AddPartitions | Configure, may_write: Callable[[], bool]
) -> Halted | None:
    """Why the target refuses, where it does. Raises ``KafkaFailure``."""
    try:
        if isinstance(step, Create) and target.topic(step.name) is not None:
            return None  # by now; one that is not listed because the principal may not see it is refused
        if not may_write():  # it may have become another process's turn since it looked
            why = "this operator process must not write at the moment"
            raise Unavailable(f"topic {step.name} can't be prepared: {why}")
        _do(target, step)
    except (NotAuthorized, Refused) as failure:
        return Halted(str(failure), drifted=False)
    return None


def _touches_copying(step: Step) -> bool:
    """Whether records are copied otherwise by it: where they may vanish one by one, and need keys; or have been, as
    with times of the target's brokers: whoever begins anew looks at the ends of the copies first."""
    return isinstance(step, Configure) and not step.settings.keys().isdisjoint(_OF_RECORDS)


def _do(target: MirrorCluster, step: Step) -> None:
    match step:
        case Create(name, partitions, settings):
            _log.info("creating topic %s at the target with %d partitions", name, partitions)
            target.create_topic(name, partitions, settings)
        case AddPartitions(name, partitions):
            _log.info("expanding topic %s at the target to %d partitions", name, partitions)
            target.add_partitions(name, partitions)
        case Configure(name, settings):
            _log.info("configuring topic %s at the target: %s", name, dict(settings))
            target.configure(name, settings)
        case Copied() | Halted():
            pass
        case _ as never:
            assert_never(never)


def _is_ours(target: MirrorCluster, topic: Topic, ids: Collection[int]) -> bool | None:
    """Whether all logs of the topic that have had records end with what a producer of ``ids`` has written: whoever goes
    on with the copy compares that. ``None``: it can't be told for now."""
    if not ids:
        return False
    told = target.told_bounds(topic.all_partitions(), stable=False)
    if len(told) < topic.partitions:
        return None
    try:
        strange = [is_strange(target, partition, ids) for partition, one in told.items() if one.latest > 0]
    except NotAuthorized:
        return False
    return False if any(strange) else None if None in strange else True


def _written(
    source: MirrorCluster, target: MirrorCluster, topics: Collection[Topic], names: Mapping[str, Topic]
) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Those of the target's topics that have records, or had some; those of which a log has none any more, while the
    source has some from before its end; and those of which a log's leader does not tell."""
    partitions = [p for topic in topics for p in topic.all_partitions()]
    if not partitions:
        return frozenset(), frozenset(), frozenset()
    told = target.told_bounds(partitions, stable=False)
    ends = {p: one for p, one in told.items() if one.latest > 0}
    empty = [p for p, one in ends.items() if one.earliest == one.latest and p.partition < names[p.topic].partitions]
    ours = source.told_bounds(empty) if empty else {}
    lacking = frozenset(p.topic for p, one in ours.items() if one.earliest < min(one.latest, ends[p].latest))
    silent = frozenset(p.topic for p in {*partitions} - told.keys() | {*empty} - ours.keys())
    return frozenset(p.topic for p in ends), lacking, silent


def _begin_later(
    source: MirrorCluster, names: Mapping[str, Topic], target_settings: Mapping[str, Mapping[str, str]]
) -> tuple[frozenset[str], frozenset[str]]:
    """Topics of which some log does not begin at 0; and those that have no copy yet, and of which that can't be told
    for now. ``names``: those of which it matters. What a copy has been given says how it was before."""
    partitions = [p for topic in names.values() for p in topic.all_partitions()]
    if not partitions:
        return frozenset(), frozenset()
    told = source.told_bounds(partitions)
    later = {p.topic for p, bounds in told.items() if bounds.earliest > 0}
    silent = {p.topic for p in partitions if p not in told} - later
    before = {n for n in silent & target_settings.keys() if "delete" in target_settings[n].get("cleanup.policy", "")}
    return frozenset(later | before), frozenset(silent - target_settings.keys())
