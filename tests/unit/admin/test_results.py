"""The futures that the library returns."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from tidegate.admin import ListPausedPartitionsResult, PartitionsFailed, PausePartitionsResult
from tidegate.admin.service import PausedPartition
from tidegate.control.standing import Flow, PartitionStanding
from tidegate.kafka.model import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def _two() -> tuple[Future[PartitionStanding], Future[PartitionStanding], PausePartitionsResult]:
    first: Future[PartitionStanding] = Future()
    second: Future[PartitionStanding] = Future()
    return first, second, PausePartitionsResult({FIRST: first, SECOND: second})


def test_all_succeeds_once_every_partition_has() -> None:
    first, second, result = _two()
    everything = result.all()

    first.set_result(PartitionStanding(Flow.CLOSED))
    assert not everything.done()
    second.set_result(PartitionStanding(Flow.UNOWNED))

    assert everything.result(0) is None
    assert result.partition_result(SECOND).result(0).flow is Flow.UNOWNED
    assert result.values() == {FIRST: first, SECOND: second}


def test_all_fails_with_every_partition_that_did() -> None:
    first, second, result = _two()
    error = RuntimeError("no agent")
    first.set_exception(error)
    second.set_result(PartitionStanding(Flow.CLOSED))

    with pytest.raises(PartitionsFailed, match=r"Failed pausing the following partitions: \[orders-0\]: no agent") as e:
        result.all().result(0)

    assert e.value.failures == {FIRST: error}
    assert e.value.__cause__ is error


def test_all_of_nothing_is_done() -> None:
    assert PausePartitionsResult({}).all().result(0) is None


def test_a_partition_that_was_not_asked_for_is_an_error() -> None:
    _, _, result = _two()

    with pytest.raises(ValueError, match='Pausing of the "orders-7" was not attempted'):
        result.partition_result(TopicPartition("orders", 7)).result(0)


def test_the_list_has_a_future_for_each_partition() -> None:
    listed: Future[dict[TopicPartition, PausedPartition]] = Future()
    result = ListPausedPartitionsResult(listed)  # type: ignore[arg-type]
    known, unknown = result.partition_result(FIRST), result.partition_result(SECOND)
    paused = PausedPartition(FIRST, PartitionStanding(Flow.CLOSED), (), 3, 4)

    listed.set_result({FIRST: paused})

    assert known.result(0) == paused
    assert (paused.lag, result.all().result(0)) == (1, {FIRST: paused})
    with pytest.raises(ValueError, match='"orders-1" is not paused'):
        unknown.result(0)


def test_a_list_that_failed_fails_for_each_partition() -> None:
    listed: Future[dict[TopicPartition, PausedPartition]] = Future()
    result = ListPausedPartitionsResult(listed)  # type: ignore[arg-type]

    listed.set_exception(OSError("away"))

    with pytest.raises(OSError, match="away"):
        result.partition_result(FIRST).result(0)


def test_who_waits_for_one_of_the_list_hears_of_it_whoever_wants_the_list_no_more() -> None:
    listed: Future[dict[TopicPartition, PausedPartition]] = Future()
    result = ListPausedPartitionsResult(listed)  # type: ignore[arg-type]
    known = result.partition_result(FIRST)
    paused = PausedPartition(FIRST, PartitionStanding(Flow.CLOSED), (), 3, 4)

    result.all().cancel()
    if not listed.done():
        listed.set_result({FIRST: paused})

    assert known.done()
    assert known.result(0) == paused
