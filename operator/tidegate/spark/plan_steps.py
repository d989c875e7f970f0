"""The three steps of a planning job, as executors take them: whatever talks to Kafka is here.

1. *observe*: the groups are spread over the executors, each of which reads states and committed offsets of its groups.
2. *measure*: the distinct partitions of all groups are spread likewise; their log's bounds (and the offset of the
   asked time) are read once each, however many groups share them.
3. *plan*: both are joined, and each group is planned from what was read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from pydantic import TypeAdapter

from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused, Unavailable, UnknownPartitions
from tidegate.kafka.model import Group, LogBounds, Topic, TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.settings import BadConnection
from tidegate.reset.codec import decode_request, encode_request
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import Findings
from tidegate.reset.planning.cluster_view import Snapshot, concerned
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.planning.targets import asked_time
from tidegate.spark.arrow import as_batches, rows_of

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

PLAN_COLUMNS: Final = (
    "run_uid string, run_id string, group string, topic string, partition int, topic_id string, committed bigint, "
    "target bigint, earliest bigint, latest bigint, clamped string, span_from timestamp, span_to timestamp, "
    "replayed bigint, skipped bigint, way string, notes array<string>, made_at timestamp, "
    "refused string, failure string, message string"
)
"""A row for each partition of each group. A group without any has one row with no topic: ``refused`` is then planning's
reason (PascalCase), or ``failure`` the class as in ``FAILURES``, and ``message`` says what is wrong; or the
plan is empty, and all three are null. ``way`` and ``notes`` are the plan's, on each of its rows."""

# Columns named alike mean the same. ``request`` and ``cluster`` are numbers into the job's lists; ``at_us`` is the
# asked time in microseconds since 1970, or -1 where none is asked for (a null would not join). ``topic_id``: null for a
# topic that is gone.
OBSERVED: Final = (
    "request int, cluster int, topic string, partition int, topic_id string, committed bigint, at_us bigint, "
    "group_json string, failure string, message string"
)
MEASURED: Final = "cluster int, topic string, partition int, at_us bigint, earliest bigint, latest bigint, found bigint"
JOINED: Final = tuple(
    "request topic partition topic_id committed group_json failure message earliest latest found".split()  # noqa: SIM905
)

_GROUP: Final = TypeAdapter(Group)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Steps(Protocol):
    """The three steps of a planning job, batches of rows in and out."""

    def observe(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...

    def measure(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...

    def plan(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...


class Rehearsal:
    """Implements ``Steps`` without a cluster: one partition a request. Makes Spark do what it does for a real plan."""

    def observe(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [n for batch in batches for n in batch.column(0).to_pylist()]
        yield from as_batches(OBSERVED, ((n, 0, "t", n, "", 0, -1, "{}", None, None) for n in numbers))

    def measure(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in rows_of(batch))
        yield from as_batches(MEASURED, ((0, "t", row["partition"], -1, 0, 1, None) for row in rows))

    def plan(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in rows_of(batch))
        nothing = (None,) * (PLAN_COLUMNS.count(",") - 4)
        yield from as_batches(PLAN_COLUMNS, (("", "", "", "t", row["partition"], *nothing) for row in rows))


@dataclass(frozen=True, slots=True)
class PlanJob:
    """What every task of a planning job knows. Travels to the executors; holds no secrets."""

    requests: tuple[str, ...]
    clusters: tuple[Connection, ...]
    cluster_of: tuple[int, ...]
    now: datetime
    spans: bool
    findings: Mapping[str, Findings]

    @classmethod
    def of(
        cls, requests: Sequence[RunRequest], now: datetime, spans: bool, findings: Mapping[str, Findings]
    ) -> PlanJob:
        clusters: list[Connection] = []
        numbers: dict[str, int] = {}
        cluster_of = []
        for request in requests:
            key = repr(request.connection)  # its properties are a mapping, which does not hash
            if key not in numbers:
                numbers[key] = len(clusters)
                clusters.append(request.connection)
            cluster_of.append(numbers[key])
        return cls(tuple(map(encode_request, requests)), tuple(clusters), tuple(cluster_of), now, spans, findings)

    # --- step 1 -------------------------------------------------------------------------------------------------------

    def observe(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Numbers of requests → ``OBSERVED``: a head row for the group, then one for each partition it may concern."""
        with _Clients(self.clusters) as clients:
            for batch in batches:
                by_cluster: defaultdict[int, list[int]] = defaultdict(list)
                for number in batch.column(0).to_pylist():
                    by_cluster[self.cluster_of[number]].append(number)
                for cluster, numbers in by_cluster.items():
                    requests = {number: decode_request(self.requests[number]) for number in numbers}
                    yield from as_batches(OBSERVED, self._observed(clients, cluster, requests))

    def _observed(
        self, clients: _Clients, cluster: int, requests: Mapping[int, RunRequest]
    ) -> Iterator[tuple[object, ...]]:
        names = sorted({r.group_id for r in requests.values()})
        try:
            client = clients[cluster]
            topics = clients.topics(cluster)
            seen = together_or_each(lambda some: (client.groups(some), client.committed_of(some)), names)
        except (KafkaFailure, BadConnection) as failure:
            for number in requests:
                yield (number, cluster, None, None, None, None, -1, None, *_told(failure))
            return
        for number, request in requests.items():
            found = seen[request.group_id]
            if isinstance(found, KafkaFailure):
                yield (number, cluster, None, None, None, None, -1, None, *_told(found))
                continue
            group, committed = found
            yield (number, cluster, None, None, None, None, -1, _GROUP.dump_json(group).decode(), None, None)
            at = asked_time(request.target, self.now)
            at_us = -1 if at is None else _microseconds(at)
            for p in sorted(concerned(request, group, committed, topics)):
                topic_id = topics[p.topic].topic_id if p.topic in topics else None
                yield (number, cluster, p.topic, p.partition, topic_id, committed.get(p), at_us, None, None, None)

    # --- step 2 -------------------------------------------------------------------------------------------------------

    def measure(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Distinct partitions → ``MEASURED``. What does not exist, or can't be read now, is left out: its groups ask
        again while they are planned, and get the error that is theirs."""
        with _Clients(self.clusters) as clients:
            for batch in batches:
                by_cluster: defaultdict[tuple[int, int], list[TopicPartition]] = defaultdict(list)
                for row in rows_of(batch):
                    by_cluster[row["cluster"], row["at_us"]].append(TopicPartition(row["topic"], row["partition"]))
                for (cluster, at_us), partitions in by_cluster.items():
                    yield from as_batches(MEASURED, self._measured(clients, cluster, at_us, partitions))

    def _measured(
        self, clients: _Clients, cluster: int, at_us: int, partitions: Sequence[TopicPartition]
    ) -> Iterator[tuple[object, ...]]:
        left = set(partitions)
        try:
            try:
                bounds = clients[cluster].log_bounds(left)
            except UnknownPartitions as unknown:
                left -= unknown.partitions
                bounds = clients[cluster].log_bounds(left)
            found: Mapping[TopicPartition, int | None] = {}
            if at_us >= 0:
                found = clients[cluster].offsets_at(dict.fromkeys(left, _time(at_us)))
        except (KafkaFailure, BadConnection):
            return
        for p in left:
            offset = found.get(p)
            yield (cluster, p.topic, p.partition, at_us, bounds[p].earliest, bounds[p].latest, offset)

    # --- step 3 -------------------------------------------------------------------------------------------------------

    def plan(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """``JOINED`` → ``PLAN_COLUMNS``. All rows of a request are in one task, in any order."""
        by_request: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        for batch in batches:
            for row in rows_of(batch):
                by_request[row["request"]].append(row)
        with _Clients(self.clusters) as clients:
            yield from as_batches(
                PLAN_COLUMNS, (out for n, rows in by_request.items() for out in self._planned(clients, n, rows))
            )

    def _planned(
        self, clients: _Clients, number: int, rows: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[object, ...]]:
        request = decode_request(self.requests[number])
        head = next(row for row in rows if row["topic"] is None)
        name = (request.run_uid, request.run_id, request.group_id)
        nothing = (None,) * 14
        if head["failure"] is not None:
            yield (*name, *nothing, self.now, None, head["failure"], head["message"])
            return
        try:
            snapshot = self._snapshot(clients, number, request, head, rows)
            plan = make_plan(request, snapshot, self.now, findings=self.findings.get(request.run_uid))
        except PlanRefused as refused:
            yield (*name, *nothing, self.now, refused.reason, None, refused.message)
            return
        except (KafkaFailure, BadConnection) as failure:
            yield (*name, *nothing, self.now, None, *_told(failure))
            return
        way, notes = None if plan.way is None else str(plan.way), list(plan.notes)
        if not plan.partitions:
            yield (*name, *nothing[:12], way, notes, plan.made_at, None, None, None)
        for p in plan.partitions:
            yield (
                *name,
                *(p.topic, p.partition, p.topic_id, p.committed, p.target, p.earliest, p.latest),
                None if p.clamped is None else str(p.clamped),
                *(p.span_from, p.span_to, p.replayed, p.skipped, way, notes, plan.made_at, None, None, None),
            )

    def _snapshot(
        self,
        clients: _Clients,
        number: int,
        request: RunRequest,
        head: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
    ) -> Snapshot:
        cluster = self.cluster_of[number]
        at = asked_time(request.target, self.now)
        committed: dict[TopicPartition, int] = {}
        bounds: dict[TopicPartition, LogBounds] = {}
        found: dict[TopicPartition, int | None] = {}
        topics = clients.topics(cluster)
        for row in rows:
            if row["topic"] is None:
                continue
            partition = TopicPartition(row["topic"], row["partition"])
            topic = topics.get(partition.topic)
            if topic is not None and row["topic_id"] not in (None, topic.topic_id):
                # As it was before its logs were measured: a topic that was made again since is not what is planned.
                topics = {**topics, topic.name: replace(topic, topic_id=row["topic_id"])}
            if row["committed"] is not None:
                committed[partition] = row["committed"]
            if row["earliest"] is not None:
                bounds[partition] = LogBounds(row["earliest"], row["latest"])
                if at is not None:
                    found[partition] = row["found"]
        return Snapshot(
            groups={request.group_id: _GROUP.validate_json(head["group_json"])},
            committed={request.group_id: committed},
            topics=topics,
            bounds=bounds,
            found=found,
            at=at,
            live=lambda: clients[cluster],
            spans=self.spans,
        )


_A = TypeVar("_A")
_B = TypeVar("_B")


def together_or_each(
    read: Callable[[Sequence[str]], tuple[Mapping[str, _A], Mapping[str, _B]]], names: Sequence[str]
) -> dict[str, tuple[_A, _B] | KafkaFailure]:
    """Two things of each group; one by one where they can't be read together, so that each has its own failure."""
    try:
        first, second = read(names)
    except KafkaFailure as failure:
        if len(names) == 1:
            return {names[0]: failure}
        return {name: found for n in names for name, found in together_or_each(read, [n]).items()}
    return {name: (first[name], second[name]) for name in names}


class _Clients:
    """The clients of one task, each connected when it is first needed."""

    def __init__(self, clusters: Sequence[Connection]) -> None:
        self._clusters = clusters
        self._clients: dict[int, KafkaClient] = {}
        self._topics: dict[int, Mapping[str, Topic]] = {}
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def __getitem__(self, cluster: int) -> KafkaClient:
        if cluster not in self._clients:
            self._clients[cluster] = self._exit.enter_context(closing(KafkaClient(self._clusters[cluster])))
        return self._clients[cluster]

    def topics(self, cluster: int) -> Mapping[str, Topic]:
        if cluster not in self._topics:
            self._topics[cluster] = self[cluster].topics()
        return self._topics[cluster]


FAILURES: Final[tuple[type[KafkaFailure], ...]] = (Unavailable, NotAuthorized, Refused, UnknownPartitions, KafkaFailure)
"""What a failure is told as: the first of these that it is one of."""


def _told(failure: KafkaFailure | BadConnection) -> tuple[str, str]:
    """Class and message, as columns."""
    told = Refused if isinstance(failure, BadConnection) else next(c for c in FAILURES if isinstance(failure, c))
    return told.__name__, str(failure)


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
