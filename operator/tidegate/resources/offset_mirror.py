"""``OffsetMirror``: topics copied to another cluster with the same offsets, and groups' committed offsets with them."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field, StrictBool, StrictInt

from tidegate.resources.base import ConnectionRef, ResourceModel, SpecModel, StatusModel
from tidegate.resources.conditions import Conditions
from tidegate.resources.durations import parse_duration
from tidegate.resources.fields import (
    Count,
    Duration,
    Excluded,
    GroupPattern,
    Timestamp,
    TopicPattern,
    TopicPatterns,
    duration_must,
)
from tidegate.resources.mirror_engine import MirrorEngine, MirrorJob
from tidegate.resources.mirror_failover import MOST_TOPICS, FailoverSpec, MirrorFailover, MirrorRef
from tidegate.resources.rules import Transition, described, immutable, list_map, rule, unique
from tidegate.resources.spark import SparkSpec


class OnDrift(StrEnum):
    """What is done where the target has something at an offset that is not the source's."""

    STOP = "Stop"


class MirroredTopics(ResourceModel):
    """Which topics are copied."""

    include: TopicPatterns
    """The topics to copy, as names or patterns with '*', out of those that both connections allow. Internal topics,
    whose names begin with '__', are never copied."""

    exclude: (
        Annotated[
            tuple[TopicPattern, ...],
            Field(min_length=1, max_length=100),
            unique("must not repeat a topic: remove the second one"),
        ]
        | None
    ) = None
    """Topics to leave out, as names or patterns with '*'."""


MirrorInterval = Annotated[
    Duration,
    duration_must(
        lambda interval: interval >= timedelta(seconds=1), "duration(self) >= duration('1s')", "must be 1s or longer"
    ),
]


class MirroredGroups(ResourceModel):
    """Which groups' committed offsets are carried over."""

    include: Annotated[
        tuple[GroupPattern, ...],
        Field(min_length=1, max_length=100),
        unique("must not repeat a group: remove the second one"),
    ]
    """The groups to carry over, as names or patterns with '*', out of those that both connections allow."""

    exclude: Excluded | None = None
    """Groups to leave out, as names or patterns with '*'."""

    interval: MirrorInterval = parse_duration("60s")
    """How often the offsets are carried over."""


class SeedSpec(ResourceModel):
    """How a partition is begun at the target."""

    max_fill: Annotated[StrictInt, Field(ge=0, le=100_000_000_000)] = 100_000_000
    """The maximum number of offsets before the source's first record that are filled at the target, per partition. The
    target has to write that many empty records, and deletes them at once. Partitions that need more are not copied."""


class ParitySpec(ResourceModel):
    """How the copies are compared with the source, at offsets that are chosen at random."""

    interval: MirrorInterval = parse_duration("10s")
    """How often a sample of one copy is compared: up to a mebibyte of record batches is read from either cluster."""


class RateLimit(ResourceModel):
    """How fast records are copied."""

    bytes_per_second: Annotated[StrictInt, Field(ge=1_000, le=10_000_000_000)]
    """How many bytes of record batches, as they are compressed, are written per second in all."""


_ELSEWHERE: Final = immutable("the target's log belongs to this pair of clusters; create another OffsetMirror")

_ONE_ORIGIN: Final = "what was taken over, and which groups are used, was noted for it; create another OffsetMirror"


class OffsetMirrorSpec(SpecModel):
    """Which topics are copied where, and whose offsets are carried over."""

    source: Annotated[ConnectionRef, _ELSEWHERE]
    """The KafkaConnection of this namespace to the cluster that is copied from. Nothing is changed there."""

    target: Annotated[ConnectionRef, _ELSEWHERE]
    """The KafkaConnection of this namespace to the cluster that is copied to. Nobody else may write the copies."""

    topics: MirroredTopics
    """Which topics are copied."""

    groups: MirroredGroups | None = None
    """Which groups' committed offsets are carried over. Without this field, none."""

    engine: MirrorEngine = MirrorEngine.DIRECT
    """What copies the records. Direct: the operator's leading replica. Spark: a SparkApplication that runs for as long
    as the mirror copies; the operator does everything else. It can be changed at any time."""

    spark: SparkSpec | None = None
    """How the SparkApplication runs if engine is Spark. The chart's defaults apply to fields that are absent, except
    for the number of executors: if it is absent, it grows with the number of partitions, up to 20."""

    seed: SeedSpec = SeedSpec()
    """How a partition is begun at the target."""

    parity: ParitySpec = ParitySpec()
    """How the copies are compared with the source, at offsets that are chosen at random."""

    on_drift: OnDrift = OnDrift.STOP
    """What is done with a partition whose copy has something at an offset that differs from the source. Stop: nothing
    more is written to the copy until its topic is deleted at the target and copied again from its start."""

    rate_limit: RateLimit | None = None
    """How fast records are copied. Without this field, as fast as possible."""

    suspend: StrictBool = False
    """If true, nothing is copied or carried over for now, as after a failover. Later, copying continues from where the
    target ends."""

    failover: FailoverSpec | None = None
    """Ends the copying for good, so that others may write the copies afterwards. It can be removed again until
    status.failover.phase is Fencing; after that, the mirror never copies again. It takes precedence over suspend."""

    failback_from: Annotated[MirrorRef | None, immutable(_ONE_ORIGIN)] = None
    """An OffsetMirror in the other direction that has failed over. What it had copied from its source is taken as the
    beginning of the copy: only what was written since is copied. It cannot be changed, added or removed."""

    former_producer_ids: (
        Annotated[
            tuple[Annotated[StrictInt, Field(ge=0), described("A producer id.")], ...],
            Field(min_length=1, max_length=100),
            unique("must not repeat a producer id: remove the second one"),
        ]
        | None
    ) = None
    """Producer ids of an earlier OffsetMirror of the same copies that was deleted, or whose status was lost. What was
    written at the target with these ids counts as the copy, as far as it agrees with the source."""

    transitions: ClassVar[tuple[Transition, ...]] = (
        Transition(
            "has(self.failbackFrom) == has(oldSelf.failbackFrom)",
            f"failbackFrom can't be added or removed: {_ONE_ORIGIN}",
            lambda old, new: ("failbackFrom" in old) == ("failbackFrom" in new),
        ),
    )

    @rule(
        "self.source.name != self.target.name",
        "source and target must be two KafkaConnections: name another one as target",
    )
    def _are_two(self) -> bool:
        return self.source.name != self.target.name


class CopyState(StrEnum):
    """The state of a topic's copy, and of a partition's."""

    WAITING = "Waiting"
    """Nothing is known of it yet, or the source or the target can't be reached."""
    SEEDING = "Seeding"
    """It has not yet had all that the source has."""
    IN_SYNC = "InSync"
    """It had, ten seconds ago or later, all that the source had then."""
    LAGGING = "Lagging"
    """It had once, and does not now."""
    STOPPED = "Stopped"
    """Nothing is written to it until somebody does something."""
    DRIFTED = "Drifted"
    """The same, because it has something at an offset that is not the source's."""
    SOURCE_GONE = "SourceGone"
    """There is no such topic at the source any more; the copy stays as it is."""


class MirroredTopicStatus(ResourceModel):
    """A topic that is copied."""

    name: str
    """The topic's name, the same in both clusters."""

    source_id: str
    """The topic's id at the source. A topic that was deleted and created again has another one."""

    target_id: str
    """The id of its copy."""

    partitions: Count
    """How many partitions are copied."""

    seeded: bool = False
    """Whether all of its partitions were once in sync at the same time."""

    state: CopyState
    """The state of the partition in the worst state."""

    lag: Count | None = None
    """The difference between the source's last stable offsets and the ends of the copies, in all. Absent where that is
    not known."""

    writers: Annotated[tuple[Annotated[int, described("A producer id.")], ...], Field(max_length=1000)] | None = None
    """The producer ids with which the ends of its copies were written, or are about to be written. Absent until they
    are known for each copy."""

    adopted: Annotated[
        tuple[Annotated[int, described("By partition, the offset up to which it is.")], ...], Field(max_length=100_000)
    ] = ()
    """The offsets up to which the target's records are taken as the beginning of the copy, whoever wrote them: see
    spec.failbackFrom."""


class WorstPartition(ResourceModel):
    """A partition that is not in sync."""

    topic: str
    """The topic's name."""

    partition: Count
    """The partition's number."""

    state: CopyState
    """The state of its copy."""

    offset: Count | None = None
    """Where the copy ends. Absent where that is not known."""

    lag: Count | None = None
    """The difference to the source's last stable offset. Absent where that is not known."""

    message: str = ""
    """Why copying does not progress, if it does not."""


class MirrorCounts(ResourceModel):
    """Partitions by the state of their copies."""

    total: Count
    """How many partitions are copied."""

    in_sync: Count
    """How many copies have all that the source had at some time in the last ten seconds."""

    seeding: Count
    """How many copies have not yet had all that the source has."""

    lagging: Count
    """How many copies had all of it once, but do not now."""

    stopped: Count
    """How many copies are not written to until somebody does something, including those that drifted."""

    drifted: Count
    """How many copies have something at an offset that differs from the source."""


class MirrorLag(ResourceModel):
    """The lag of the copies."""

    records: Count
    """How many offsets the copies lag, in all partitions of which both ends are known. Some may have no record."""

    seconds: Count | None = None
    """The longest time since a copy last had all that the source had. Absent if a copy has not had it since the
    operator began to look."""


class CarriedGroups(ResourceModel):
    """Groups whose offsets are carried over."""

    total: Count
    """How many groups of the source have committed offsets for copied topics."""

    carried: Count
    """How many groups have the same offsets at the target, or the ends of the copies if those are not as far yet."""

    in_use: Count
    """How many groups are left alone because somebody else has committed or joined at the target."""

    failed: Count
    """How many groups could not be carried over the last time."""

    in_use_such_as: str = ""
    """One of those in use at the target."""

    failure: str = ""
    """Why one of them could not be carried over."""

    at: Timestamp
    """When groups were last carried over."""


class DifferentPlace(ResourceModel):
    """An offset from which on a copy differs from the source."""

    topic: str
    """The topic's name."""

    partition: Count
    """The partition's number."""

    offset: Count
    """The offset from which on the two were compared."""

    message: str
    """What differs."""


class MirrorParity(ResourceModel):
    """What comparing the copies with the source, at offsets that are chosen at random, has shown."""

    since: Timestamp
    """When the operator began to compare and to count. After a restart it counts from zero."""

    places: Count
    """How many places have been compared."""

    records: Count
    """How many records were the same in both clusters."""

    at: Timestamp | None = None
    """When the newest place was compared."""

    different: Annotated[tuple[DifferentPlace, ...], Field(max_length=10)] = ()
    """Places that differ. They are compared again, and removed from here once they no longer differ."""


class OffsetMirrorStatus(StatusModel):
    """The state of the copies, as it was counted at a time."""

    at: Timestamp | None = None
    """When all this was counted. The operator counts at least once a minute while it copies."""

    source_cluster: str | None = None
    """The id of the cluster that is copied from."""

    target_cluster: str | None = None
    """The id of the cluster that is copied to."""

    producer_ids: Annotated[tuple[Annotated[int, described("A producer id.")], ...], Field(max_length=1000)] = ()
    """The ids of the producers with which all copies at the target are written. If they are missing here, a copy counts
    as somebody else's. Those that no copy needs any more are removed."""

    topics: Annotated[tuple[MirroredTopicStatus, ...], Field(max_length=MOST_TOPICS), list_map("name")] = ()
    """The topics that are copied."""

    in_sync: str | None = None
    """How many partitions are in sync, out of all."""

    partitions: MirrorCounts | None = None
    """The partitions by the state of their copies."""

    worst: Annotated[tuple[WorstPartition, ...], Field(max_length=10)] = ()
    """The partitions in the worst state: first those that drifted or stopped, then those with the largest lag."""

    lag: MirrorLag | None = None
    """The lag of the copies. Absent if it is not known for any partition."""

    groups: CarriedGroups | None = None
    """The groups whose offsets are carried over."""

    parity: MirrorParity | None = None
    """What comparing the copies with the source has shown. Absent until they are being copied."""

    job: MirrorJob | None = None
    """The job that copies. Absent if the operator itself copies, and once the job has been ended."""

    failover: MirrorFailover | None = None
    """The end of the copying. Present once the end has been asked for and nothing prevents it."""

    conditions: Conditions = ()
    """Ready is True while all topics are copied and in sync, while the mirror is suspended, and once it has failed
    over. Reconciling and Stalled are present while they are true. InSync is True while each copy has all that the
    source had at some time in the last ten seconds, Seeding while a copy has not yet had all that the source has, and
    Drifted while a copy has something at an offset that differs from the source. Exclusive is False while somebody else
    may write the copies, as far as the target's ACLs show."""
