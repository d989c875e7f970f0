"""One partition is copied a while at a time, and what is known of it is told."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest

from support.fake_kafka import FakeClock
from support.mirror.fake_cluster import FakeMirrorCluster, FakeTarget
from support.mirror.written import Written, batch
from tidegate.kafka.errors import NotAuthorized
from tidegate.kafka.model import LogBounds, TopicPartition
from tidegate.mirror.batches import Unreadable, read_batches
from tidegate.mirror.copier import Copier, Waiting
from tidegate.mirror.model import Appended, Done, Interrupted, ProducerIds, Refusal, Tail
from tidegate.mirror.source import SourceRead
from tidegate.mirror.states import Lost, Mirror, Ready
from tidegate.offset_mirror import course as course_module
from tidegate.offset_mirror.counting import state_of
from tidegate.offset_mirror.course import NEVER, WHEN_GROWN, Limits, PartitionCopying
from tidegate.offset_mirror.pace import Pace
from tidegate.resources.offset_mirror import CopyState

P = TopicPartition("t", 0)


class Ids:
    def claim(self, _after: int | None) -> ProducerIds | Interrupted:
        return ProducerIds((7,))


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.source, self.target = FakeMirrorCluster("s"), FakeMirrorCluster("t")
        for cluster in (self.source, self.target):
            cluster.create_topic("t", 1, {})
        self.may_write = True
        self.wrote: list[tuple[int, int]] = []
        self.rate: int | None = None
        self.max_fill = 1000
        self.begin()

    def begin(self) -> None:
        limits = Limits(
            Pace(self.rate, self.clock.monotonic),
            self.max_fill,
            lambda: self.may_write,
            lambda records, size: self.wrote.append((records, size)),
            self.clock.monotonic,
        )
        self.copier = Copier(
            Mirror(),
            self.source.source(P, self.source.topics()["t"].topic_id),
            self.target.target(P),
            Ids(),
        )
        self.copying = PartitionCopying(P, self.copier, limits)

    def see(self) -> bool:
        return self.copying.saw(self.source.bounds([P])[P], self.copying.offset, self.clock.monotonic())


@pytest.fixture
def world() -> World:
    return World()


def test_all_that_is_there_is_copied_and_then_it_waits_for_more(world: World) -> None:
    world.source.write("t", 20)
    assert world.see()
    assert world.copying.go_on() == WHEN_GROWN
    assert world.target.log("t").visible() == world.source.log("t").visible()
    assert sum(records for records, _ in world.wrote) == 20
    assert not world.see()

    course = world.copying.seen()
    assert (course.offset, course.source_end, course.lag, course.copied_at_s) == (20, 20, 0, world.clock.monotonic())
    world.source.write("t", 1)
    assert world.see()
    assert world.copying.seen().lag == 1


def test_how_old_a_copy_is_goes_by_what_the_source_had(world: World) -> None:
    world.see()
    world.copying.go_on()
    began_s = world.clock.monotonic()
    for _ in range(200):
        world.clock.sleep(1)
        world.source.write("t", 1)
        world.see()
    assert world.copying.seen().copied_at_s == began_s

    assert world.copying.go_on() == WHEN_GROWN
    assert world.copying.seen().copied_at_s == world.clock.monotonic()


def test_the_start_of_the_source_is_followed(world: World) -> None:
    world.source.write("t", 20)
    world.see()
    world.copying.go_on()
    world.source.log("t").delete_records(15)

    assert world.see()
    assert world.copying.go_on() == WHEN_GROWN
    assert world.target.log("t").start == 15
    assert not world.see()


def test_a_marker_is_not_written_again_after_a_defect_that_came_when_it_was_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one takes an offset: the next record would come to lie too far on."""
    world.source.write("t", 3)
    world.source.log("t").write_marker(99, 0)
    world.source.write("t", 2)
    write, defects = FakeTarget.write_markers, [RuntimeError("a defect of the code")]

    def written(target: FakeTarget, producer_id: int, epoch: int, count: int) -> Done | Interrupted:
        done = write(target, producer_id, epoch, count)
        if defects:
            raise defects.pop()
        return done

    monkeypatch.setattr(FakeTarget, "write_markers", written)
    world.see()
    with pytest.raises(RuntimeError, match="a defect of the code"):
        world.copying.go_on()
    while (pause_s := world.copying.go_on()) >= 0:
        world.clock.sleep(pause_s)

    assert pause_s == WHEN_GROWN
    assert world.target.log("t").visible() == world.source.log("t").visible()
    assert world.target.log("t").end == world.source.log("t").end


def test_nothing_is_written_while_another_replica_leads(world: World) -> None:
    world.source.write("t", 20)
    world.may_write = False

    assert world.copying.go_on() == 1.0
    assert world.target.log("t").end == 0


def test_no_step_is_taken_after_the_end(world: World) -> None:
    world.source.write("t", 20)
    world.copying.end()

    assert world.copying.go_on() == NEVER
    assert world.target.log("t").end == 0


def test_more_offsets_than_allowed_are_not_filled(world: World) -> None:
    world.source.write("t", 30)
    world.source.log("t").delete_records(25)
    world.max_fill = 24
    world.begin()
    assert world.copying.go_on() > 1
    assert world.target.log("t").end == 0
    assert "raise spec.seed.maxFill to 25" in world.copying.seen().stopped

    world.max_fill = 25
    world.begin()
    assert world.copying.go_on() == WHEN_GROWN
    assert (world.target.log("t").start, world.target.log("t").end) == (25, 30)


def test_a_stranger_in_the_copy_stops_it(world: World) -> None:
    world.source.write("t", 5)
    world.copying.go_on()
    world.target.write("t", 1)
    world.source.write("t", 5)

    assert world.copying.go_on() == NEVER
    course = world.copying.seen()
    assert course.drifted
    assert course.stopped
    end = world.target.log("t").end
    assert world.copying.go_on() == NEVER
    assert world.target.log("t").end == end


def test_a_source_that_lost_records_is_compared_before_anything_is_added(world: World) -> None:
    world.source.write("t", 10)
    world.see()
    world.copying.go_on()
    log = world.source.log("t")
    del log.log[5:]
    assert world.copying.saw(LogBounds(0, 5), world.copying.offset, 0.0)
    assert world.copying.go_on() >= 0
    for _ in range(8):
        log._lay(batch(log.end, {0: Written(1, b"another", b"record")}, 1), 1)

    assert world.copying.go_on() == NEVER
    assert world.copying.seen().drifted
    assert world.target.log("t").end == 10


def test_a_right_that_is_missing_is_told_and_asked_for_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.source.write("t", 5)
    state = world.copier.mirror
    source = world.source.source(P, "x")

    def refuse(_offset: int) -> Interrupted:
        raise NotAuthorized("allow the principal Read on topic t")

    monkeypatch.setattr(source, "read", refuse)
    monkeypatch.setattr(world.copier, "_source", source)
    pauses = [world.copying.go_on() for _ in range(3)]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[2]
    assert world.copying.seen().trouble == "allow the principal Read on topic t"
    monkeypatch.undo()

    assert state is not world.copier.mirror
    assert world.copying.go_on() == WHEN_GROWN
    assert world.copying.seen().trouble == ""


@pytest.mark.parametrize("was_copied", [True, False])
def test_a_copy_that_has_what_its_source_has_deleted_is_not_in_sync(
    was_copied: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as what fills the offsets before the source's start, of a source of which everything has expired."""
    world.source.write("t", 5)
    if was_copied:
        world.see()
        world.copying.go_on()
    world.source.log("t").delete_records(5)

    def refuse(_target: FakeTarget, _offset: int) -> Done:
        raise NotAuthorized("allow the principal Delete on topic t")

    monkeypatch.setattr(FakeTarget, "delete_records", refuse)
    for _ in range(12):
        world.see()
        world.copying.go_on()
        state = state_of(world.copying.seen(), world.clock.monotonic(), seeded=True)
        assert was_copied or state is not CopyState.IN_SYNC
        world.clock.sleep(1)
    assert state is CopyState.LAGGING
    assert (world.copying.seen().lag, world.target.log("t").start) == (0, 0)
    assert "allow the principal Delete" in world.copying.seen().trouble

    monkeypatch.undo()
    world.see()
    world.copying.go_on()
    assert state_of(world.copying.seen(), world.clock.monotonic(), seeded=True) is CopyState.IN_SYNC
    assert world.target.log("t").start == 5


def test_a_source_that_holds_back_by_a_quota_is_compared_and_copied_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other time: what is compared at the end of a copy takes several reads."""
    monkeypatch.setattr(course_module, "_HELD_BACK_S", 0.001)
    world.source.write("t", 20)
    world.copying.go_on()
    world.source.write("t", 20)
    world.begin()
    source, held = world.source.source(P, world.source.topics()["t"].topic_id), itertools.cycle([False, True])

    def read(offset: int) -> SourceRead | Interrupted:
        if next(held):
            return Interrupted("the broker holds back what is read", held_back=True)
        found = source.read(offset)
        assert isinstance(found, SourceRead)
        first = next((one for one in read_batches(found.data) if one.next_offset > offset), None)
        return replace(found, data=b"" if first is None else first.data)

    monkeypatch.setattr(world.copier, "_source", SimpleNamespace(read=read))
    pauses = [world.copying.go_on() for _ in range(40)]

    assert WHEN_GROWN in pauses
    assert world.target.log("t").visible() == world.source.log("t").visible()


def test_what_was_read_is_not_kept_while_others_have_the_threads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.source.write("t", 50)
    step = world.copier.step

    def slow() -> Waiting | None:
        world.clock.sleep(1)
        return step()

    monkeypatch.setattr(world.copier, "step", slow)
    pauses = []
    while not pauses or pauses[-1] == 0:
        pauses.append(world.copying.go_on())
        if isinstance(world.copier.mirror.state, Ready):
            assert world.copier.mirror.state.work == ()
    assert pauses[-1] == WHEN_GROWN
    assert len(pauses) > 2
    assert world.target.log("t").end == 50


def test_bytes_a_second_are_kept_to() -> None:
    clock = FakeClock()
    pace = Pace(1000, clock.monotonic)
    pace.wrote(500)
    assert pace.wait_s() == pytest.approx(0.5)
    pace.wrote(1000)
    assert pace.wait_s() == pytest.approx(1.5)
    clock.sleep(5)
    assert pace.wait_s() == 0
    pace.wrote(100)
    assert pace.wait_s() == pytest.approx(0.1)
    assert Pace(None, clock.monotonic).wait_s() == 0


def test_a_refusal_that_ends_is_gone_on_after(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a record that is larger than the copy takes, until the topic's setting has been carried over."""
    world.source.write("t", 5)
    target = world.target.target(P)

    def refuse(batches: tuple[bytes, ...]) -> Appended:
        return Appended(tuple(Refusal(10, "MessageSizeTooLargeError", lasting=True) for _ in batches))

    monkeypatch.setattr(target, "append", refuse)
    monkeypatch.setattr(world.copier, "_target", target)
    for _ in range(2):
        assert world.copying.go_on() > 1
        assert "MessageSizeTooLargeError" in world.copying.seen().stopped
        assert not world.copying.seen().drifted
    monkeypatch.undo()

    assert world.copying.go_on() == WHEN_GROWN
    assert world.copying.seen().stopped == ""
    assert world.target.log("t").end == 5


def test_a_target_whose_records_are_not_understood_stops_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    target = world.target.target(P)

    def of_old(_window: int) -> Tail:
        raise Unreadable("the record batch at offset 0 has format 1")

    monkeypatch.setattr(target, "tail", of_old)
    monkeypatch.setattr(world.copier, "_target", target)

    assert world.copying.go_on() > 1
    assert world.copying.seen().stopped == "the record batch at offset 0 has format 1"


def test_a_copy_that_has_more_than_the_source_is_not_in_sync(world: World) -> None:
    world.source.write("t", 10)
    world.see()
    world.copying.go_on()
    del world.source.log("t").log[5:]
    for _ in range(2):
        world.see()
        world.copying.go_on()
        world.clock.sleep(11)
        world.see()

    course = world.copying.seen()
    assert state_of(course, world.clock.monotonic(), seeded=True) is not CopyState.IN_SYNC
    assert course.trouble == "nothing is copied until the source reaches the end of the copy"


def test_the_end_of_a_copy_is_not_kept_while_the_source_is_waited_for(world: World) -> None:
    """It may be MiBs, and there may be many partitions."""
    world.source.write("t", 10)
    world.copying.go_on()
    del world.source.log("t").log[5:]
    world.see()

    assert world.copying.go_on() > 0
    assert world.copier.mirror.state == Lost()


def test_whose_turn_it_is_is_looked_at_after_a_pause(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.source.write("t", 20)
    world.rate = 1000
    world.begin()
    monkeypatch.setattr(world.copying, "_ended", pausing := Pausing(world))
    while world.may_write:
        world.copying.go_on()

    assert world.target.log("t").end == pausing.end


class Pausing:
    """An Event that is waited for; another replica leads after the first pause."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.end = 0

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float) -> bool:
        if timeout:
            self.world.clock.sleep(timeout)
            self.world.may_write = False
            self.end = self.world.target.log("t").end
        return False


def test_nothing_is_deleted_from_a_topic_that_somebody_created_anew(world: World) -> None:
    world.source.write("t", 20)
    world.see()
    world.copying.go_on()
    del world.target.kept["t"]
    world.target.create_topic("t", 1, {})
    world.target.write("t", 30)
    world.source.log("t").delete_records(15)
    world.see()

    assert world.copying.go_on() == NEVER
    assert world.copying.seen().drifted
    assert world.target.log("t").start == 0
