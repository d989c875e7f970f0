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
    """The topics, or patterns of them, of those that both connections allow. Internal topics, whose names begin with
    '__', are never copied."""

    exclude: (
        Annotated[
            tuple[TopicPattern, ...],
            Field(min_length=1, max_length=100),
            unique("must not repeat a topic: remove the second one"),
        ]
        | None
    ) = None
    """Topics, or patterns of them, that are left out."""


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
    """The groups, or patterns of them, of those that both connections allow."""

    exclude: Excluded | None = None
    """Groups, or patterns of them, that are left out."""

    interval: MirrorInterval = parse_duration("60s")
    """How often the offsets are carried over."""


class SeedSpec(ResourceModel):
    """How a partition is begun at the target."""

    max_fill: Annotated[StrictInt, Field(ge=0, le=100_000_000_000)] = 100_000_000
    """How many offsets before the source's first record are filled at the target, at most, for a partition. The target
    has to write so many empty records, and deletes them at once. Partitions that need more are not copied."""


class ParitySpec(ResourceModel):
    """How the copies are compared with the source, at places that are chosen at random."""

    interval: MirrorInterval = parse_duration("10s")
    """How often one place of one copy is compared: up to a mebibyte of record batches is read from either cluster."""


class RateLimit(ResourceModel):
    """How fast records are copied."""

    bytes_per_second: Annotated[StrictInt, Field(ge=1_000, le=10_000_000_000)]
    """How many bytes of record batches are written a second, in all, as they are compressed."""


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
    """What copies. Direct: the operator's leading replica. Spark: a SparkApplication that runs for as long as the
    mirror copies; all but the copying stays with the operator. It can be changed at any time."""

    spark: SparkSpec | None = None
    """How the SparkApplication runs, where engine is Spark. What is absent comes from the chart's defaults, but for the
    number of executors: without one it grows with the partitions, up to 20."""

    seed: SeedSpec = SeedSpec()
    """How a partition is begun at the target."""

    parity: ParitySpec = ParitySpec()
    """How the copies are compared with the source, at places that are chosen at random."""

    on_drift: OnDrift = OnDrift.STOP
    """What is done with a partition whose copy has something at an offset that is not the source's. Stop: nothing is
    written to it any more, until its topic is deleted at the target and copied again from its start."""

    rate_limit: RateLimit | None = None
    """How fast records are copied. Without this field, as fast as possible."""

    suspend: StrictBool = False
    """Whether nothing is copied or carried over for now, as after a failover. It goes on from where the target ends."""

    failover: FailoverSpec | None = None
    """That copying has to end for good, and the copies may be written by others afterwards. Until status.failover.phase
    is Fencing, the field can be removed again; afterwards the mirror never copies again. It goes before suspend."""

    failback_from: Annotated[MirrorRef | None, immutable(_ONE_ORIGIN)] = None
    """An OffsetMirror in the other direction that has failed over. What its source has, and was copied, is taken as
    the beginning of the copy: only what was written since is copied. It cannot be changed, added or removed."""

    former_producer_ids: (
        Annotated[
            tuple[Annotated[StrictInt, Field(ge=0), described("A producer id.")], ...],
            Field(min_length=1, max_length=100),
            unique("must not repeat a producer id: remove the second one"),
        ]
        | None
    ) = None
    """Producer ids that an OffsetMirror of the same copies had which was deleted, or whose status was lost: what they
    wrote at the target is the copy, as far as it agrees with the source."""

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
    """Whether all of its partitions had what the source has at the same time once."""

    state: CopyState
    """The state of the partition that is worst."""

    lag: Count | None = None
    """The difference between the source's last stable offsets and the ends of the copies, in all. Absent where that is
    not known."""

    writers: Annotated[tuple[Annotated[int, described("A producer id.")], ...], Field(max_length=1000)] | None = None
    """The producer ids that the ends of its copies were written with, or are about to be. Absent until that is known of
    each."""

    adopted: Annotated[
        tuple[Annotated[int, described("By partition, the offset up to which it is.")], ...], Field(max_length=100_000)
    ] = ()
    """Up to where what the target has is taken as the beginning of the copy, whoever wrote it: see
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
    """Why it does not get on, where it does not."""


class MirrorCounts(ResourceModel):
    """Partitions by the state of their copies."""

    total: Count
    """How many partitions are copied."""

    in_sync: Count
    """How many have what the source had ten seconds ago or later."""

    seeding: Count
    """How many have not yet had all that the source has."""

    lagging: Count
    """How many had it once, and do not now."""

    stopped: Count
    """How many are not written to until somebody does something, those that drifted included."""

    drifted: Count
    """How many have something at an offset that is not the source's."""


class MirrorLag(ResourceModel):
    """The lag of the copies."""

    records: Count
    """How many offsets, in all partitions of which both ends are known. Some of them may have no record."""

    seconds: Count | None = None
    """The longest time since a copy had all that the source had then. Absent where one has not had it since the
    operator began to look."""


class CarriedGroups(ResourceModel):
    """Groups whose offsets are carried over."""

    total: Count
    """How many groups of the source have offsets of copied topics."""

    carried: Count
    """How many have the same offsets at the target, or the ends of the copies where those are not as far yet."""

    in_use: Count
    """How many are left alone because somebody else has committed or joined there."""

    failed: Count
    """How many could not be carried over the last time."""

    in_use_such_as: str = ""
    """One of those in use at the target."""

    failure: str = ""
    """Why one of them could not be carried over."""

    at: Timestamp
    """When the newest carrying over ended."""


class DifferentPlace(ResourceModel):
    """An offset from which on a copy is not what the source has."""

    topic: str
    """The topic's name."""

    partition: Count
    """The partition's number."""

    offset: Count
    """The offset from which on the two were compared."""

    message: str
    """What differs."""


class MirrorParity(ResourceModel):
    """What comparing the copies with the source, at places that are chosen at random, has shown."""

    since: Timestamp
    """When the operator began to compare and to count. After a restart it counts from zero."""

    places: Count
    """How many places have been compared."""

    records: Count
    """How many records were the same in both clusters."""

    at: Timestamp | None = None
    """When the newest place was compared."""

    different: Annotated[tuple[DifferentPlace, ...], Field(max_length=10)] = ()
    """Places that differ. They are compared again, and removed from here where they no longer do."""


class OffsetMirrorStatus(StatusModel):
    """The state of the copies, as it was counted at a time."""

    at: Timestamp | None = None
    """When all this was counted. The operator counts at least once a minute while it copies."""

    source_cluster: str | None = None
    """The id of the cluster that is copied from."""

    target_cluster: str | None = None
    """The id of the cluster that is copied to."""

    producer_ids: Annotated[tuple[Annotated[int, described("A producer id.")], ...], Field(max_length=1000)] = ()
    """The ids of the producers that all copies are written with, at the target. Without them a copy counts as somebody
    else's. Those that no copy needs any more are removed."""

    topics: Annotated[tuple[MirroredTopicStatus, ...], Field(max_length=MOST_TOPICS), list_map("name")] = ()
    """The topics that are copied."""

    in_sync: str | None = None
    """How many partitions are in sync, of how many."""

    partitions: MirrorCounts | None = None
    """The partitions by the state of their copies."""

    worst: Annotated[tuple[WorstPartition, ...], Field(max_length=10)] = ()
    """The partitions that are worst: those that drifted or stopped, then those with the largest lag."""

    lag: MirrorLag | None = None
    """The lag of the copies. Absent where it is known of no partition."""

    groups: CarriedGroups | None = None
    """The groups whose offsets are carried over."""

    parity: MirrorParity | None = None
    """What comparing the copies with the source has shown. Absent until they are being copied."""

    job: MirrorJob | None = None
    """The job that copies. Absent where the operator copies itself, and once the job has been ended."""

    failover: MirrorFailover | None = None
    """The end of the copying, once it has been asked for and nothing keeps it from ending."""

    conditions: Conditions = ()
    """Ready is True while all topics are copied and in sync, while the mirror is suspended, and once it has failed
    over. Reconciling and Stalled are present while they are true. InSync is True while each copy has all that the
    source had ten seconds ago or later; Seeding while one has not yet had all that the source has; Drifted while one
    has something at an offset that is not the source's. Exclusive is False while
    somebody else may write the copies, as far as the target's ACLs tell."""
