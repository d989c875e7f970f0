"""The fence at the end of a copy: where that is, and whose batches lie before it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.mirror.simulated_target import SimulatedTarget
from support.mirror.target_broker import TargetBroker
from support.mirror.written import Written, batch
from tidegate.mirror.batches import Stamp, restamped
from tidegate.mirror.fencing import Fenced, fence
from tidegate.mirror.model import Interrupted, Tail
from tidegate.mirror.records import FILLER_KEY, filler

ID, FORMER, STRANGER, FENCE = 101, 100, 999, 7


def records(base: int, count: int, producer_id: int = ID, sequence: int | None = None) -> bytes:
    content = {place: Written(1000, b"key", b"value") for place in range(count)}
    return batch(base, content, count, producer=(producer_id, 0, base if sequence is None else sequence))


@pytest.fixture
def broker() -> TargetBroker:
    """With 50 records of the mirror's."""
    broker = TargetBroker()
    broker.produce(records(0, 50))
    return broker


def late(broker: TargetBroker, count: int) -> Callable[[], None]:
    """A batch that was on its way arrives behind the first marker of the fence, once."""

    def arrive() -> None:
        if broker.end == 51:
            broker.produce(records(51, count, sequence=50))

    return arrive


@pytest.mark.parametrize("count", [100, 3000, 30_000])
def test_a_late_batch_does_not_hide_where_the_copy_ended(count: int, broker: TargetBroker) -> None:
    """However many offsets it takes: the marker is looked for as far back as it lies."""
    target = SimulatedTarget(broker, late(broker, count))

    assert fence(target, [ID], FENCE) == Fenced(50, displaced=51)
    end = broker.end
    assert fence(target, [ID], FENCE) == Fenced(50, displaced=51)
    assert broker.end == end, "or the marker would be pushed further back each time"


class OfFewOffsets(SimulatedTarget):
    """Of a log whose last batches are so large that no more of them are read at once."""

    def tail(self, window: int) -> Tail:
        return super().tail(min(window, 2000))


def test_no_other_end_is_made_up_where_the_marker_cannot_be_read(broker: TargetBroker) -> None:
    target = OfFewOffsets(broker, late(broker, 3000))
    assert isinstance(fence(target, [ID], FENCE), Interrupted)
    end = broker.end
    found = fence(target, [ID], FENCE)

    assert isinstance(found, Interrupted)
    assert found.reason == "the marker that ends the copy lies further back than is read of the log"
    assert broker.end == end


@pytest.mark.parametrize("producer_id", [STRANGER, -1])
def test_what_somebody_else_wrote_is_not_taken_for_the_copys(producer_id: int, broker: TargetBroker) -> None:
    broker.foreign(producer_id)
    for _ in range(2):  # also by whoever goes on with it
        assert fence(SimulatedTarget(broker), [FORMER, ID], FENCE) == Fenced(51, strange=50)


def test_a_strangers_marker_is_told_as_well(broker: TargetBroker) -> None:
    broker.write_marker(STRANGER, 3)
    assert fence(SimulatedTarget(broker), [ID], FENCE) == Fenced(51, strange=50)


@pytest.mark.parametrize("key", [None, FILLER_KEY])
def test_a_copy_that_was_still_being_filled_is_told(key: bytes | None) -> None:
    """Up to the source's first record, or without having deleted it."""
    broker = TargetBroker()
    broker.produce(restamped(filler(3000, key), Stamp(ID, 0, 0)))
    for _ in range(2):
        assert fence(SimulatedTarget(broker), [ID], FENCE) == Fenced(3000, fills=True)

    broker.delete_records(3000)
    assert fence(SimulatedTarget(broker), [ID], FENCE) == Fenced(3000)


@pytest.mark.parametrize("other", [Written(1, None, None), Written(0, b"k", None), Written(0, None, b"")])
def test_records_of_the_source_are_not_taken_for_what_fills(other: Written) -> None:
    broker = TargetBroker()
    broker.produce(batch(0, {0: Written(0, None, None), 1: other}, 2, codec=4, producer=(ID, 0, 0)))

    assert fence(SimulatedTarget(broker), [ID], FENCE) == Fenced(2)


def test_what_the_copy_was_begun_from_may_be_anybodys() -> None:
    broker = TargetBroker()
    broker.foreign()
    broker.produce(records(1, 5, sequence=0))

    assert fence(SimulatedTarget(broker), [ID], FENCE, adopted=1) == Fenced(6)
    assert fence(SimulatedTarget(broker), [ID], FENCE) == Fenced(6, strange=0)
