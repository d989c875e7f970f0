"""What a mirror takes over from the failover of one in the other direction: the offsets are the same already."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate.kafka.model import Topic, TopicPartition
from tidegate.kube.ports import Object, name_of, namespace_of
from tidegate.mirror.batches import Unreadable, read_batches
from tidegate.mirror.model import Interrupted
from tidegate.mirror.ports import MirrorCluster
from tidegate.resources.base import has_readable_status, read_status
from tidegate.resources.conditions import Refusal
from tidegate.resources.mirror_failover import FailoverPhase
from tidegate.resources.offset_mirror import CopyState, MirroredTopicStatus, OffsetMirrorSpec, OffsetMirrorStatus

NO_FAILOVER: Final = "NoFailover"


@dataclass(frozen=True, slots=True)
class Adoption:
    """``rows``: topics whose records at the target are the beginning of the copy; ``refused``: by name, why those of
    other topics are not; ``unseen``: topics of which that can't be told for now."""

    rows: Mapping[str, MirroredTopicStatus]
    refused: Mapping[str, str]
    unseen: frozenset[str] = frozenset()


NOTHING: Final = Adoption({}, {})


def origin(
    body: Object, spec: OffsetMirrorSpec, mirrors: Iterable[Object], clusters: tuple[str, str]
) -> OffsetMirrorStatus | Refusal | None:
    """The status of the mirror whose failover is taken back; ``None``: there is none to be; or the :class:`Refusal`.
    ``clusters``: the ids of source and target."""
    if spec.failback_from is None:
        return None
    name, namespace = spec.failback_from.name, namespace_of(body)
    found = next((each for each in mirrors if (namespace_of(each), name_of(each)) == (namespace, name)), None)
    if found is None or not has_readable_status(OffsetMirrorStatus, found):
        return Refusal(NO_FAILOVER, f"there is no OffsetMirror {name} in this namespace, or its status can't be read")
    status = read_status(OffsetMirrorStatus, found)
    if status.failover is None or status.failover.phase is not FailoverPhase.DONE:
        return Refusal(NO_FAILOVER, f"OffsetMirror {name} has not failed over: do that first")
    if status.target_cluster is None or status.source_cluster is None:
        return Refusal(NO_FAILOVER, f"the status of OffsetMirror {name} does not say between which clusters it copied")
    if (status.target_cluster, status.source_cluster) != clusters:
        says = f"OffsetMirror {name} has failed over from cluster {status.source_cluster} to {status.target_cluster}"
        return Refusal(NO_FAILOVER, f"{says}, and not from {clusters[1]} to {clusters[0]}")
    return status


def adopted(
    status: OffsetMirrorStatus,
    source: Mapping[str, Topic],
    target: MirrorCluster,
    known: Mapping[str, MirroredTopicStatus],
    ids: Collection[int] = (),
) -> Adoption:
    """Of topics that this mirror does not know, or no more. ``status``: of the mirror whose failover is taken back;
    ``source``: the topics that are wanted; ``ids``: the producer ids of this mirror. Raises ``KafkaFailure``."""
    if status.failover is None:
        return NOTHING
    ended = {topic.name: topic for topic in status.failover.topics}
    there, rows, refused = target.topics(), dict[str, MirroredTopicStatus](), dict[str, str]()
    unseen = set[str]()
    for row in status.topics:
        name, mine, copy = row.name, source.get(row.name), there.get(row.name)
        was_begun = name in known and known[name].target_id
        if was_begun or mine is None or copy is None or name not in ended:
            continue
        if (mine.topic_id, copy.topic_id) != (row.target_id, row.source_id):
            continue  # one of them was created again: it is copied from its start, if it is empty at the target
        ends = ended[name].ends
        if row.state in (CopyState.DRIFTED, CopyState.STOPPED) or ended[name].message:
            why = ended[name].message or f"its copy was {row.state} when it was failed over"
            refused[name] = (
                f"topic {name} can't be taken over: {why}. It may hold records that exist nowhere else: save "
                "what you need before you delete the topic"
            )
            continue
        beyond = _beyond(target, copy, ends)
        # What goes further may be this mirror's own, where the topic was left out since.
        strange = None if beyond is None else [is_strange(target, TopicPartition(name, n), ids) for n in beyond]
        if beyond is None or strange is None or None in strange:
            unseen.add(name)
            continue
        if any(strange):
            refused[name] = _never_copied(name, ends, beyond)
            continue
        rows[name] = MirroredTopicStatus(
            name=name,
            source_id=mine.topic_id,
            target_id=copy.topic_id,
            partitions=mine.partitions,
            state=CopyState.WAITING,
            adopted=ends,
        )
    return Adoption(rows, refused, frozenset(unseen))


def _beyond(target: MirrorCluster, copy: Topic, ends: tuple[int, ...]) -> Mapping[int, int] | None:
    """How many offsets each partition has beyond the failover, also of those that were not copied; ``None``: some
    partition is not there, as while a topic is deleted or created, or has no leader."""
    partitions = copy.all_partitions()
    bounds = target.told_bounds(partitions, stable=False)
    if len(bounds) < len(partitions):
        return None
    known = {TopicPartition(copy.name, number): end for number, end in enumerate(ends)}
    return {p.partition: one.latest - known.get(p, 0) for p, one in bounds.items() if one.latest > known.get(p, 0)}


def is_strange(target: MirrorCluster, partition: TopicPartition, ids: Collection[int]) -> bool | None:
    """Whether the end of the log is nothing that a producer of ``ids`` has written. That is enough to know here:
    whoever goes on with the copy looks at what is before. ``None``: it can't be read for now."""
    if not ids:
        return True
    try:
        tail = target.target(partition).tail(1)
        if isinstance(tail, Interrupted):
            return None
        wrote = [batch.stamp.producer_id for batch in read_batches(tail.data)]
    except Unreadable:
        return True
    return not (wrote and wrote[-1] in ids)


def _never_copied(name: str, ends: tuple[int, ...], beyond: Mapping[int, int]) -> str:
    ordered = sorted(beyond, key=lambda number: -beyond[number])
    some, others = ordered[:5], ordered[5:]
    where = ", ".join(f"{beyond[n]} in partition {n} from offset {ends[n] if n < len(ends) else 0}" for n in some)
    more = f", and {sum(beyond[n] for n in others)} in {len(others)} other partition(s)" if others else ""
    return (
        f"topic {name} has {sum(beyond.values())} offset(s) at the target that were never copied from there: "
        f"{where}{more}. Save what you need before you delete the topic"
    )
