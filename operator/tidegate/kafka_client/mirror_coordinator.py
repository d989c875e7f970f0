"""Transactions that only take offsets of a mirror's partition, through their coordinator
(``tidegate.mirror.ports.Coordinator``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from tidegate.kafka.errors import Fenced, NotAuthenticated, OutcomeUnknown, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.rights import Resource, Right, on_topics
from tidegate.kafka_client import mirror_requests as requests
from tidegate.kafka_client.codes import check
from tidegate.kafka_client.wire import Wire
from tidegate.mirror.batches import Stamp, restamped, sequence_after
from tidegate.mirror.model import Coordinated, Done, Interrupted, Refusal
from tidegate.mirror.records import filler

_LASTS_MS: Final = 60_000
_ANSWER_S: Final = 60.0
_WRITE_MS: Final = 30_000
_NEWEST_ADD: Final = 3
_NEWEST_END: Final = 3
_NEWEST_INIT: Final = 4
"""The newest versions from before transaction version 2 (KIP-890)."""
_INVALID_EPOCH: Final = 47
_LEAST_S: Final = 0.5
_OVER: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})


class MirrorCoordinator:
    """One transaction at a time, of one transactional id and one partition."""

    def __init__(
        self, wire: Wire, transactional_id: str, partition: TopicPartition, filler_key: bytes | None = None
    ) -> None:
        self._wire = wire
        self._id = transactional_id
        self._partition = partition
        self._filler_key = filler_key
        self._sequence = 0
        self._what = f"fill a gap of {partition} by a transaction"
        of_id = Right("Write", Resource.TRANSACTIONAL_ID, transactional_id)
        self._needs = (of_id, *on_topics("Write", [partition.topic]))

    def fence_predecessors(self) -> Coordinated | Interrupted:
        def ask() -> Coordinated:
            answer = self._asked(
                lambda: InitProducerIdRequest(
                    transactional_id=self._id,
                    transaction_timeout_ms=_LASTS_MS,
                    producer_id=-1,
                    producer_epoch=-1,
                    max_version=_NEWEST_INIT,
                ),
                lambda answer: int(answer.error_code),
            )
            self._sequence = 0
            return Coordinated(int(answer.producer_id), int(answer.producer_epoch))

        return _told(ask)

    def transact(self, producer: Coordinated, fillers: int) -> Done | Refusal | Interrupted:
        def ask() -> Done:
            self._add_partition(producer)
            if fillers:
                self._append(producer, fillers)
            self._end(producer, committed=not fillers)
            return Done()

        try:
            return _told(ask)
        except Fenced as error:
            return Refusal(_INVALID_EPOCH, str(error), lasting=False)

    def _add_partition(self, producer: Coordinated) -> None:
        topic_class = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        topic = topic_class(name=self._partition.topic, partitions=[self._partition.partition])
        self._asked(
            lambda: AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=[topic],
                max_version=_NEWEST_ADD,
            ),
            lambda answer: int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code),
        )

    def _append(self, producer: Coordinated, fillers: int) -> None:
        stamp = Stamp(producer.producer_id, producer.epoch, self._sequence)
        batch = restamped(filler(fillers, self._filler_key), stamp, transactional=True)
        leader = requests.leader_of(self._wire, self._partition, self._what)
        request = requests.produce(self._partition, batch, _WRITE_MS, self._id)
        row = requests.produced(self._wire.ask(leader, request, what=self._what, timeout_s=_ANSWER_S))
        check(int(row.error_code), self._what, *self._needs, said=row.error_message)
        self._sequence = sequence_after(self._sequence, fillers)

    def _end(self, producer: Coordinated, *, committed: bool) -> None:
        self._asked(
            lambda: EndTxnRequest(
                transactional_id=self._id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=committed,
                max_version=_NEWEST_END,
            ),
            lambda answer: int(answer.error_code),
        )
        # Answered as soon as it is decided: the marker is written afterwards, by then perhaps by another broker.
        self._asked(
            lambda: DescribeTransactionsRequest(transactional_ids=[self._id]),
            lambda answer: int(answer.transaction_states[0].error_code),
            until=lambda answer: answer.transaction_states[0].transaction_state in _OVER,
        )

    def _asked(
        self,
        build: Callable[[], Any],
        code_of: Callable[[Any], int],
        until: Callable[[Any], bool] = lambda _: True,
    ) -> Any:
        """Asked again where the coordinator moves or has something under way: to ask twice changes nothing."""
        deadline = self._wire.deadline()

        def attempt(_: bool) -> Any:
            [answer] = self._wire.exchange(
                self._id,
                build,
                of=CoordinatorType.TRANSACTION,
                code_of=code_of,
                what=self._what,
                needs=self._needs[0],
                timeout_s=max(_LEAST_S, deadline - time.monotonic()),
            )
            check(code_of(answer), self._what, *self._needs)
            if not until(answer):
                raise Unavailable(f"{self._what}: its end is under way")
            return answer

        return self._wire.patiently(attempt, deadline)


T = TypeVar("T")


def _told(ask: Callable[[], T]) -> T | Interrupted:
    try:
        return ask()
    except NotAuthenticated:
        raise
    except (Unavailable, OutcomeUnknown) as error:
        return Interrupted(str(error))
