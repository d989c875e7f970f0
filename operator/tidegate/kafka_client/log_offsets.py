"""Offsets that the leaders of partitions tell (ListOffsets)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from kafka.protocol.consumer import ListOffsetsRequest

from tidegate.kafka.errors import KafkaFailure, Unavailable, UnknownPartitions
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.rights import Right, on_topics
from tidegate.kafka_client.cluster_requests import describe_topics
from tidegate.kafka_client.codes import NO_ERROR, UNKNOWN_PARTITION, UNREACHABLE, check
from tidegate.kafka_client.partitions import by_topic
from tidegate.kafka_client.wire import Wire

EARLIEST: Final = -2
LATEST: Final = -1
"""Instead of a timestamp (``ListOffsetsRequest.EARLIEST_TIMESTAMP`` and ``LATEST_TIMESTAMP``)."""

_ELECTION_S: Final = 3.0
"""How long a partition without a leader is waited for. One whose brokers are all away has none for much longer."""

_MOST_LEADERS: Final = 200_000
"""That are remembered, with those of topics that are gone: a cluster may make and remove topics all the time."""


class LogOffsets:
    """Asks each partition's leader; follows leaders when they move. Thread-safe."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._leaders: dict[TopicPartition, int] = {}
        """As the last answers had it: a leader that is none any more says so."""

    def at(
        self, asked: Mapping[TopicPartition, int], what: str, *needs: Right, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Offsets for timestamps (epoch milliseconds, ``EARLIEST``, ``LATEST``); −1 where no record is that young.

        ``read_committed``: the log ends before the first record of an open transaction. ``needs``: rights to name where
        one is missing, Describe on the topic by default. Raises ``UnknownPartitions``; ``Unavailable`` where a
        partition has no leader.
        """
        deadline = self._wire.deadline()
        elected = deadline
        found: dict[TopicPartition, int] = {}

        def attempt(again: bool) -> TopicPartition | None:
            """One without a leader, after it was waited for."""
            nonlocal elected
            left = [p for p in asked if p not in found]
            if again:
                for partition in left:
                    self._leaders.pop(partition, None)
            leaders = self._leaders_of(left, what, deadline, needs)
            headless = min((p for p in left if leaders[p] < 0), default=None)
            if headless is not None:
                elected = min(elected, time.monotonic() + _ELECTION_S)
                if time.monotonic() >= elected:
                    return headless
                raise Unavailable(f"{what}: the leader of {headless} is being elected")
            by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
            for partition in left:
                by_leader[leaders[partition]].append(partition)
            requests = {n: _request(asked, some, read_committed=read_committed) for n, some in by_leader.items()}
            answers = self._wire.ask_each(requests, what=what, deadline=deadline)
            for answer in answers.values():
                if not isinstance(answer, KafkaFailure):
                    found.update(_offsets(answer, what, needs))
            for answer in answers.values():
                if isinstance(answer, KafkaFailure):
                    raise answer
            moved = next((p for p in left if p not in found), None)
            if moved is not None:
                raise Unavailable(f"{what}: the leader of {moved} is moving")
            return None

        headless = self._wire.patiently(attempt, deadline) if asked else None
        if headless is not None:
            raise Unavailable(f"{what}: {headless} has no leader at the moment")
        return found

    def told(
        self, asked: Mapping[TopicPartition, int], what: str, *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """As :meth:`at`, of the partitions whose leaders tell: one that is gone, has no leader or may not be described
        is absent, and keeps nobody waiting. Leaders are looked for twice, as they move."""
        found: dict[TopicPartition, int] = {}
        for again in (False, True):
            left = [p for p in asked if p not in found]
            if not left:
                break
            deadline = self._wire.deadline()
            by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
            for partition, node in self._known_leaders(left, what, deadline, fresh=again).items():
                by_leader[node].append(partition)
            requests = {n: _request(asked, some, read_committed=read_committed) for n, some in by_leader.items()}
            for answer in self._wire.ask_each(requests, what=what, deadline=deadline).values():
                if not isinstance(answer, KafkaFailure):
                    found |= {p: row.offset for p, row in _rows(answer) if row.error_code == NO_ERROR}
        return found

    def _known_leaders(
        self, partitions: Collection[TopicPartition], what: str, deadline: float, *, fresh: bool
    ) -> dict[TopicPartition, int]:
        """Of the partitions that have one now, as far as brokers tell."""
        leaders = {} if fresh else {p: node for p in partitions if (node := self._leaders.get(p)) is not None}
        unknown = frozenset(partitions) - leaders.keys()
        if unknown:
            told = describe_topics(self._wire, by_topic(unknown).keys(), what=what, deadline=deadline).topics
            looked_up = {
                partition: row.leader_id
                for topic in told
                for row in topic.partitions
                if row.leader_id >= 0 and (partition := TopicPartition(topic.name, row.partition_index)) in unknown
            }
            self._remember(looked_up)
            leaders |= looked_up
        return leaders

    def _leaders_of(
        self, partitions: Collection[TopicPartition], what: str, deadline: float, needs: tuple[Right, ...]
    ) -> dict[TopicPartition, int]:
        """Node ids, −1 where there is no leader. Other threads may forget a leader at any time."""
        leaders = {p: node for p in partitions if (node := self._leaders.get(p)) is not None}
        unknown = [p for p in partitions if p not in leaders]
        if not unknown:
            return leaders
        told: dict[TopicPartition, int] = {}
        for topic in describe_topics(self._wire, by_topic(unknown).keys(), what=what, deadline=deadline).topics:
            if topic.error_code not in UNKNOWN_PARTITION:
                check(topic.error_code, f"{what} ({topic.name})", *(needs or on_topics("Describe", [topic.name])))
                told |= {TopicPartition(topic.name, row.partition_index): row.leader_id for row in topic.partitions}
        if missing := frozenset(unknown) - told.keys():
            raise UnknownPartitions(missing)
        self._remember({p: told[p] for p in unknown if told[p] >= 0})
        return leaders | {p: told[p] for p in unknown}

    def _remember(self, leaders: Mapping[TopicPartition, int]) -> None:
        if len(self._leaders) + len(leaders) > _MOST_LEADERS:
            self._leaders.clear()  # those that are asked for again are looked up again
        self._leaders |= leaders


def _request(
    asked: Mapping[TopicPartition, int], partitions: Collection[TopicPartition], *, read_committed: bool
) -> Any:
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    partition_class = topic_class.ListOffsetsPartition
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[
            topic_class(
                name=topic,
                partitions=[
                    partition_class(
                        partition_index=number,
                        current_leader_epoch=-1,
                        timestamp=asked[TopicPartition(topic, number)],
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ],
        min_version=2,
    )


def _offsets(answer: Any, what: str, needs: tuple[Right, ...]) -> dict[TopicPartition, int]:
    """Of partitions whose leader it is that answered; a topic that was deleted has none either."""
    found: dict[TopicPartition, int] = {}
    for partition, row in _rows(answer):
        if row.error_code == NO_ERROR:
            found[partition] = row.offset
        elif row.error_code not in UNREACHABLE | UNKNOWN_PARTITION:
            check(row.error_code, f"{what} ({partition})", *(needs or on_topics("Describe", [partition.topic])))
    return found


def _rows(answer: Any) -> Iterator[tuple[TopicPartition, Any]]:
    for topic in answer.topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row
