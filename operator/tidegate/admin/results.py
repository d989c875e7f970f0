"""What the calls of ``TidegateAdmin`` return: futures, as the result classes of the pause KIP (KIP-1249) have them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from threading import Lock
from typing import ClassVar, Generic, TypeVar

from tidegate.admin.errors import PartitionsFailed
from tidegate.admin.service import PausedPartition, Resumed
from tidegate.control.standing import PartitionStanding
from tidegate.kafka.model import TopicPartition

T = TypeVar("T")


def promised() -> Future[T]:
    """One that cannot be cancelled: others wait for the same, and what was asked for is under way."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    return future


class _PartitionResults(Generic[T]):
    """A future for each partition that was asked for."""

    _DOING: ClassVar[str]

    def __init__(self, futures: Mapping[TopicPartition, Future[T]]) -> None:
        self._futures = dict(futures)

    def values(self) -> Mapping[TopicPartition, Future[T]]:
        """The futures of all partitions."""
        return dict(self._futures)

    def partition_result(self, partition: TopicPartition) -> Future[T]:
        """The future of one partition; one that has failed with ``ValueError`` where it was not asked for."""
        future = self._futures.get(partition)
        if future is None:
            future = Future()
            future.set_exception(ValueError(f'{self._DOING} of the "{partition}" was not attempted'))
        return future

    def all(self) -> Future[None]:
        """A future that succeeds when all partitions have; fails with ``PartitionsFailed`` once all have ended."""
        done: Future[None] = promised()
        lock = Lock()
        left = len(self._futures)
        if not left:
            done.set_result(None)

        def ended(_: Future[T]) -> None:
            nonlocal left
            with lock:
                left -= 1
                if left:
                    return
            failures = {p: error for p, f in self._futures.items() if (error := f.exception()) is not None}
            if failures:
                failed = PartitionsFailed(self._DOING.lower(), failures)
                failed.__cause__ = next(iter(failures.values()))
                done.set_exception(failed)
            else:
                done.set_result(None)

        for future in self._futures.values():
            future.add_done_callback(ended)
        return done


class PausePartitionsResult(_PartitionResults[PartitionStanding]):
    """Of ``pause_partitions``. A partition's future has how it stands; it fails with a ``PauseFailure`` or
    ``KafkaFailure``.
    """

    _DOING = "Pausing"


class ResumePartitionsResult(_PartitionResults[Resumed]):
    """Of ``resume_partitions``. A partition's future has who still holds it; it fails with a ``KafkaFailure``."""

    _DOING = "Resuming"


class ListPausedPartitionsResult:
    """Of ``list_paused_partitions``."""

    def __init__(self, future: Future[Mapping[TopicPartition, PausedPartition]]) -> None:
        self._future = future

    def all(self) -> Future[Mapping[TopicPartition, PausedPartition]]:
        """All partitions whose gates are closed; fails with a ``KafkaFailure``."""
        everything: Future[Mapping[TopicPartition, PausedPartition]] = promised()

        def ended(listed: Future[Mapping[TopicPartition, PausedPartition]]) -> None:
            error = listed.exception()
            if error is not None:
                everything.set_exception(error)
            else:
                everything.set_result(listed.result())

        self._future.add_done_callback(ended)
        return everything

    def partition_result(self, partition: TopicPartition) -> Future[PausedPartition]:
        """One of them; a future that fails with ``ValueError`` where the partition is not held."""
        one: Future[PausedPartition] = promised()

        def ended(listed: Future[Mapping[TopicPartition, PausedPartition]]) -> None:
            error = listed.exception()
            if error is not None:
                one.set_exception(error)
            elif partition not in listed.result():
                one.set_exception(ValueError(f'partition "{partition}" is not paused'))
            else:
                one.set_result(listed.result()[partition])

        self._future.add_done_callback(ended)
        return one
