"""What has to be read of two clusters to carry a group's place from one to the other. Few records, for their times.

Of each topic: the partitions on both sides, where the group stands over there, and the windows to compare, found by
the time index. Partitions of topics with as many of them over there as here are looked at one by one; of others,
records may have gone anywhere, and one window holds for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from tidegate.find.checkpoints import Checkpoint, read_checkpoint, topic_of
from tidegate.find.translation import Destination, Origin, TopicPair, Window
from tidegate.kafka.errors import NotAuthorized, Unavailable, UnknownPartitions
from tidegate.kafka.model import LogBounds, Offsets, Topic, TopicPartition
from tidegate.kafka.names import is_allowed
from tidegate.kafka.ports import ClusterReader
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import FromCluster
from tidegate.reset.planning.checks import Asked, check
from tidegate.reset.planning.measured import Aimed
from tidegate.reset.planning.notes import left_out
from tidegate.reset.planning.planner import decided_group
from tidegate.reset.planning.refusals import NOTHING_MATCHES, SOURCE_WITHOUT_OFFSETS, TOPIC_NOT_ALLOWED, PlanRefused
from tidegate.reset.planning.scope import listed, scope_of
from tidegate.reset.planning.targets import EPOCH, NoAim

NO_TOPIC_OVER_THERE: Final = "NoTopicOverThere"

_BEHIND: Final = 1000
"""So many offsets before the group's place are looked at, at least: a quiet partition has none in any short window."""

_FAR: Final = 100_000
"""Checkpoints so many offsets before the group's place are too old to be looked at."""

_LAST_RECORD: Final = (1, 2, 3, 5, 10, 100, 1000)
"""Where the last record of a log is looked for, in offsets from its end: transactions end in offsets without one."""


class Side(ClusterReader, Protocol):
    """One of the two clusters."""

    def compacted(self, topics: Collection[str]) -> Mapping[str, bool]:
        """Whether compaction removes records of a topic; those whose settings may not be read are absent."""
        ...

    def contents(self, topic: str) -> Mapping[bytes, bytes]:
        """The last value by key of a small compacted topic; what was deleted, or has no key, is absent."""
        ...


@dataclass(frozen=True, slots=True)
class Wider:
    """What a first look has shown: topics whose windows were too short, and whose records change partitions."""

    to_the_end: frozenset[str] = frozenset()
    by_key: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Surveyed:
    """``pairs``: of topics in the request's scope in which the group has a place over there. ``without``: partitions in
    the scope for which it has none, sorted."""

    pairs: tuple[TopicPair, ...]
    without: tuple[TopicPartition, ...]


def survey(request: RunRequest, target: FromCluster, here: Side, there: Side, wider: Wider | None = None) -> Surveyed:
    """What is to be compared, and what is left as it is.

    Raises ``PlanRefused`` and ``KafkaFailure``, as ``tidegate.reset.planning.planner.make_plan`` does.
    """
    wider = wider or Wider()
    topics_here, topics_there = here.topics(), there.topics()
    committed = there.committed(target.group_id)
    if not committed:
        raise PlanRefused(
            SOURCE_WITHOUT_OFFSETS,
            f"group {target.group_id} has no committed offsets on the cluster of to.cluster: check its name",
        )
    names = {
        name: origin for name in topics_here if (origin := origin_of(name, topics_here, topics_there, target.alias))
    }
    chosen, unread = _chosen(request, here, topics_here, names, committed)
    refused = sorted({names[t] for t in chosen if not is_allowed(names[t], target.allowed_topics)})
    if refused:
        raise PlanRefused(
            TOPIC_NOT_ALLOWED,
            f"the connection of to.cluster allows topics {listed(target.allowed_topics)}, and not {listed(refused)}: "
            "name the topics to reset, or extend its allow.topics",
        )
    checkpoints = _checkpoints(request, target, here, topics_here)
    pairs = tuple(
        _pair(
            topics_here[name], partitions, topics_there[names[name]], committed, checkpoints, target, here, there, wider
        )
        for name, partitions in sorted(chosen.items())
    )
    placed = {TopicPartition(pair.here, d.partition) for pair in pairs for d in pair.destinations}
    wanted = {TopicPartition(name, number) for name, numbers in chosen.items() for number in numbers}
    without = tuple(sorted(unread | wanted - placed))
    if not placed:
        raise PlanRefused(NOTHING_MATCHES, ". ".join(left_without(target, without)))
    return Surveyed(pairs, without)


def left_without(target: FromCluster, without: Sequence[TopicPartition]) -> list[str]:
    """A sentence for the plan, where there are such partitions."""
    return left_out(target, Aimed((), {NoAim.NOT_IN_GROUP: tuple(without)} if without else {}))


def origin_of(name: str, here: Mapping[str, Topic], there: Mapping[str, Topic], alias: str | None) -> str | None:
    """The topic over there that a topic here was copied from, ``None`` where there is none.

    With an alias, as ``org.apache.kafka.connect.mirror.DefaultReplicationPolicy`` names topics (``<alias>.<topic>``),
    and by their own name where there is none of that name, as ``IdentityReplicationPolicy`` does.
    """
    if alias is not None and name.startswith(f"{alias}."):
        original = name.removeprefix(f"{alias}.")
        if original in there:
            return original
    if name not in there or (alias is not None and f"{alias}.{name}" in here):
        return None
    return name


def _chosen(
    request: RunRequest,
    here: ClusterReader,
    topics: Mapping[str, Topic],
    names: Mapping[str, str],
    committed: Offsets,
) -> tuple[dict[str, frozenset[int]], frozenset[TopicPartition]]:
    """Partitions here by topic: those in scope whose topic the group has a place in over there; and the others."""
    group = decided_group(request, here)
    read_there = {p.topic for p in committed}
    known = {p: 0 for name, origin in names.items() if origin in read_there for p in topics[name].all_partitions()}
    scope = scope_of(request, topics, group, here.committed(request.group_id), known)
    check(Asked(request, topics, group, scope))
    chosen: defaultdict[str, set[int]] = defaultdict(set)
    for p in scope.partitions:
        if p in known:
            chosen[p.topic].add(p.partition)
    if not chosen:
        raise PlanRefused(
            NO_TOPIC_OVER_THERE,
            f"of {listed(sorted({p.topic for p in scope.partitions}))}, the group of to.cluster reads none in "
            "the other cluster: name the topics to reset, or give to.cluster.alias where topics got a prefix when they "
            "were copied",
        )
    others = frozenset(p for p in scope.partitions if p not in known)
    return {name: frozenset(numbers) for name, numbers in chosen.items()}, others


def _pair(
    topic: Topic,
    wanted: frozenset[int],
    other: Topic,
    committed: Offsets,
    checkpoints: Mapping[TopicPartition, Checkpoint],
    target: FromCluster,
    here: Side,
    there: Side,
    wider: Wider,
) -> TopicPair:
    by_key = topic.partitions != other.partitions or topic.name in wider.by_key
    # The ends here first: what is copied meanwhile is younger than they are.
    bounds_here = here.log_bounds([TopicPartition(topic.name, p) for p in sorted(wanted)])
    bounds_there = there.log_bounds([p for p in other.all_partitions() if by_key or p.partition in wanted])
    places = _places(committed, bounds_there, by_key)
    compacted = there.compacted([other.name]).get(other.name, False)
    usable = {} if by_key else _usable(checkpoints, topic.name, places, bounds_here)
    times = _times(there, places, bounds_there, usable, by_key)
    if by_key:
        times = _from_before(there, times, places, bounds_there, compacted)
    spans = _spans(times, _last_times(here, bounds_here), by_key, target.window)
    widened = topic.name in wider.to_the_end
    spans_there = {p: spans[p.partition] for p in places if p.partition in spans}
    ours = {p: b for p, b in bounds_here.items() if by_key or TopicPartition(other.name, p.partition) in places}
    spans_here = {p: spans[p.partition] for p in ours if p.partition in spans}
    read = {p: bounds_there[p] for p in places}
    return TopicPair(
        here=topic.name,
        topic_id=topic.topic_id,
        there=other.name,
        by_key=by_key,
        compacted_there=compacted,
        compacted_here=here.compacted([topic.name]).get(topic.name, True),
        origins=tuple(
            Origin(p.partition, places[p], window)
            for p, window in _windows(there, read, spans_there, places, target.window, widened)
        ),
        destinations=tuple(
            Destination(
                p.partition,
                window,
                reach=spans_here[p].until if p in spans_here else None,
                checkpoint=usable[p.partition].downstream if p.partition in usable else None,
            )
            for p, window in _windows(here, ours, spans_here, {}, timedelta(0), widened)
        ),
    )


def _checkpoints(
    request: RunRequest, target: FromCluster, here: Side, topics: Mapping[str, Topic]
) -> dict[TopicPartition, Checkpoint]:
    """MirrorMaker 2's of the group, by partition here; none without an alias, or where its topic can't be read."""
    if target.alias is None:
        return {}
    name = topic_of(target.alias)
    if name not in topics or not is_allowed(name, request.allowed_topics):
        return {}
    try:
        contents = here.contents(name)
    except (NotAuthorized, Unavailable, UnknownPartitions):
        return {}  # they are told of, and a place is found without them
    read = (read_checkpoint(key, value) for key, value in contents.items())
    return {c.partition: c for c in read if c is not None and c.group_id == target.group_id}


def _usable(
    checkpoints: Mapping[TopicPartition, Checkpoint],
    topic: str,
    places: Offsets,
    bounds: Mapping[TopicPartition, LogBounds],
) -> dict[int, Checkpoint]:
    """By partition number: those of the group's place or one not far before it, inside the log."""
    at = {p.partition: offset for p, offset in places.items()}
    found: dict[int, Checkpoint] = {}
    for p, b in bounds.items():
        c = checkpoints.get(TopicPartition(topic, p.partition))
        if c is None or p.partition not in at or not b.earliest <= c.downstream <= b.latest:
            continue
        if 0 <= at[p.partition] - c.upstream <= _FAR:
            found[p.partition] = c
    return found


def _places(committed: Offsets, bounds: Mapping[TopicPartition, LogBounds], by_key: bool) -> dict[TopicPartition, int]:
    """Where the group stands. Where several partitions may fill one here, one without a place is one of which nothing
    was read; and so is one whose place is behind the end, because its topic was made anew."""
    places = {p: committed[p] if committed[p] <= b.latest else 0 for p, b in bounds.items() if p in committed}
    return places | {p: 0 for p, b in bounds.items() if by_key and p not in committed and b.earliest < b.latest}


@dataclass(frozen=True, slots=True)
class _Times:
    """Of the first record looked at, and of the one at the group's place; ``caught_up``: of the last one instead."""

    first: datetime
    at: datetime
    caught_up: bool


@dataclass(frozen=True, slots=True)
class _Span:
    """``until`` absent: to the end."""

    since: datetime
    until: datetime | None


def _times(
    there: ClusterReader,
    places: Offsets,
    bounds: Mapping[TopicPartition, LogBounds],
    checkpoints: Mapping[int, Checkpoint],
    by_key: bool,
) -> dict[TopicPartition, _Times]:
    """By partition over there; those without any record are absent."""
    ahead = there.record_times({p: offset for p, offset in places.items() if offset < bounds[p].latest})
    last = _last_times(there, {p: bounds[p] for p in places if p not in ahead})
    starts = {
        p: min([max(0, offset - _BEHIND), *([checkpoints[p.partition].upstream] if p.partition in checkpoints else [])])
        for p, offset in places.items()
    }
    behind = {} if by_key else there.record_times(starts)
    found = {}
    for p in places:
        at = ahead.get(p, last.get(p))
        if at is not None:
            found[p] = _Times(min(at, behind.get(p, at)), at, caught_up=p not in ahead)
    return found


def _from_before(
    there: ClusterReader,
    times: Mapping[TopicPartition, _Times],
    places: Offsets,
    bounds: Mapping[TopicPartition, LogBounds],
    compacted: bool,
) -> dict[TopicPartition, _Times]:
    """With times from before the group's places, also where the records at those are gone: what is older then by more
    than the window is done. Where no record from before a place is left, nothing is known to be."""
    unsure = {p for p in times if places[p] < bounds[p].earliest or compacted}
    behind = there.record_times({p: max(0, places[p] - _BEHIND) for p in unsure})
    known = there.offsets_at({p: at for p, at in behind.items() if p in unsure})
    checked = dict(times)
    # What the group had yet to read there is gone, and may be here from any time.
    lost = {p for p, at in places.items() if p not in times and at < bounds[p].latest}
    checked |= dict.fromkeys(lost, _Times(EPOCH, EPOCH, caught_up=True))
    for p in unsure:
        offset = known.get(p)
        sure = offset is not None and offset < places[p]
        checked[p] = replace(times[p], first=min(times[p].first, behind[p]) if sure else EPOCH)
    return checked


def _last_times(kafka: ClusterReader, bounds: Mapping[TopicPartition, LogBounds]) -> dict[TopicPartition, datetime]:
    """Of the last records; partitions without one, or with none near their end, are absent."""
    found: dict[TopicPartition, datetime] = {}
    for back in _LAST_RECORD:
        left = {
            p: max(b.earliest, b.latest - back) for p, b in bounds.items() if p not in found and b.earliest < b.latest
        }
        if not left:
            break
        found |= kafka.record_times(left)
    return found


def _spans(
    there: Mapping[TopicPartition, _Times], last_here: Mapping[TopicPartition, datetime], by_key: bool, slack: timedelta
) -> dict[int, _Span]:
    """What times to look at, by partition number on both sides. A mirror may be far behind: so from its last record
    on, where that is older."""
    newest_here = {p.partition: at for p, at in last_here.items()}
    if not by_key:
        return {
            p.partition: _Span(
                _before(min(t.first, newest_here.get(p.partition, t.first)), slack),
                None if t.caught_up else t.at + slack,
            )
            for p, t in there.items()
        }
    if not there:
        return {}
    first = min(t.first for t in there.values())
    since = _before(min(first, max(newest_here.values(), default=first)), slack)
    until = None if any(t.caught_up for t in there.values()) else max(t.at for t in there.values()) + slack
    return dict.fromkeys({*(p.partition for p in there), *newest_here}, _Span(since, until))


def _before(at: datetime, slack: timedelta) -> datetime:
    return at - slack if at - EPOCH > slack else EPOCH


def _windows(
    kafka: ClusterReader,
    bounds: Mapping[TopicPartition, LogBounds],
    spans: Mapping[TopicPartition, _Span],
    places: Offsets,
    slack: timedelta,
    widened: bool,
) -> Iterator[tuple[TopicPartition, Window]]:
    """The offsets between the times; of partitions without, none. ``places`` are inside, and what is just behind."""
    starts = kafka.offsets_at({p: span.since for p, span in spans.items()})
    untils = {p: None if widened else span.until for p, span in spans.items()}
    stops = kafka.offsets_at({p: until + slack for p, until in untils.items() if until is not None})
    for p, b in bounds.items():
        if p not in spans:
            yield p, Window(b.latest, b.latest, b, EPOCH, None)
            continue
        start, stop = starts.get(p), stops.get(p)
        start, stop = b.latest if start is None else start, b.latest if stop is None else stop
        place = places.get(p)
        if place is not None:
            start, stop = min(start, place), max(stop, place + _BEHIND)
        start = b.clamp(start)
        yield p, Window(start, max(start, b.clamp(stop)), b, spans[p].since, untils[p])
