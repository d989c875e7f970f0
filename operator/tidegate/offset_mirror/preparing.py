"""What copies need at the target: topics, partitions, settings. Looks at both clusters, and does what is missing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from tidegate.kafka.errors import NotAuthorized, Refused, Unavailable
from tidegate.kafka.model import Topic
from tidegate.mirror.ports import MirrorCluster
from tidegate.offset_mirror.failback import NOTHING, Adoption, adopted
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
from tidegate.resources.offset_mirror import MirroredTopics, MirroredTopicStatus, OffsetMirrorStatus

_log = logging.getLogger(__name__)


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
    there = target.topics()
    source_settings = source.settings(list(names))
    target_settings = target.settings([name for name in names if name in there])
    kept = {n: names[n] for n, each in source_settings.items() if "delete" not in each.get("cleanup.policy", "delete")}
    begin_later = _begin_later(source, kept)  # of others it does not matter, and one without a leader may hold up all
    strange = [there[name] for name in names if name in there and not is_copy(there[name], known.get(name))]
    written, emptied = _written(source, target, strange, names)
    copied: list[Copied] = []
    halted: dict[str, Halted] = {}
    preparing: list[str] = []
    changed: dict[str, str] = {}
    for name, topic in names.items():
        comes_or_goes = name not in source_settings or (name in there and name not in target_settings)
        if comes_or_goes or name in adoption.unseen or (name in copying and name not in there):
            preparing.append(name)
            continue
        sides = Sides(
            source=topic,
            source_settings=source_settings[name],
            begins_later=name in begin_later,
            target=there.get(name),
            target_settings=target_settings.get(name, {}),
            target_is_empty=name not in written and there.get(name) in (None, *strange),
            was_emptied=name in emptied,
            not_adopted=adoption.refused.get(name, ""),
        )
        step = next_step(sides, known.get(name))
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


def wanted_topics(source: MirrorCluster, spec: MirroredTopics, allowed: Collection[AllowSpec]) -> Mapping[str, Topic]:
    """The source's topics that are to be copied. Raises ``KafkaFailure``."""
    topics = source.topics()
    return {name: topics[name] for name in wanted(topics, spec, *(allow.topics for allow in allowed))}


def _made_ready(
    target: MirrorCluster, step: Create | AddPartitions | Configure, may_write: Callable[[], bool]
) -> Halted | None:
    """Why the target refuses, where it does. Raises ``KafkaFailure``."""
    if not may_write():  # it may have become another process's turn since it looked
        raise Unavailable(f"topic {step.name} is not made ready: nothing may be written now")
    try:
        _do(target, step)
    except (NotAuthorized, Refused) as failure:
        return Halted(str(failure), drifted=False)
    return None


def _touches_copying(step: Step) -> bool:
    """Whether records are copied otherwise by it: where they may vanish one by one, and need keys."""
    return isinstance(step, Configure) and "cleanup.policy" in step.settings


def _do(target: MirrorCluster, step: Step) -> None:
    match step:
        case Create(name, partitions, settings):
            _log.info("topic %s is created at the target, with %d partitions", name, partitions)
            target.create_topic(name, partitions, settings)
        case AddPartitions(name, partitions):
            _log.info("topic %s gets %d partitions at the target", name, partitions)
            target.add_partitions(name, partitions)
        case Configure(name, settings):
            _log.info("topic %s gets at the target %s", name, dict(settings))
            target.configure(name, settings)
        case Copied() | Halted():
            pass
        case _ as never:
            assert_never(never)


def _written(
    source: MirrorCluster, target: MirrorCluster, topics: Collection[Topic], names: Mapping[str, Topic]
) -> tuple[frozenset[str], frozenset[str]]:
    """Those of the target's topics that have records, or had some; and those of which a log has none any more, while
    the source has some from before its end."""
    partitions = [p for topic in topics for p in topic.all_partitions()]
    if not partitions:
        return frozenset(), frozenset()
    ends = {p: one for p, one in target.bounds(partitions, stable=False).items() if one.latest > 0}
    empty = [p for p, one in ends.items() if one.earliest == one.latest and p.partition < names[p.topic].partitions]
    ours = source.bounds(empty) if empty else {}
    lacking = frozenset(p.topic for p, one in ours.items() if one.earliest < min(one.latest, ends[p].latest))
    return frozenset(p.topic for p in ends), lacking


def _begin_later(source: MirrorCluster, names: Mapping[str, Topic]) -> frozenset[str]:
    """Topics of which some log does not begin at 0."""
    partitions = [p for topic in names.values() for p in topic.all_partitions()]
    if not partitions:
        return frozenset()
    return frozenset(p.topic for p, bounds in source.bounds(partitions).items() if bounds.earliest > 0)
