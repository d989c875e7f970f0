"""Every transition of a partition's writer: what it does in each state, and where each answer leads."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TypeVar

import pytest

from support.mirror.written import batch, marker, records_in, rows
from tidegate.mirror import comparison, records, source
from tidegate.mirror.batches import Batch, Stamp, restamped
from tidegate.mirror.model import (
    Answer,
    Append,
    Appended,
    ClaimProducerId,
    DeleteRecords,
    Done,
    Interrupted,
    Position,
    ProducerIds,
    ProducerState,
    ReadSource,
    ReadTail,
    Refusal,
    Tail,
    WriteMarkers,
)
from tidegate.mirror.records import Record
from tidegate.mirror.source import Copy, Gap, SourceRead
from tidegate.mirror.states import (
    AT_ONCE,
    FILLERS,
    LAST_MARKER_EPOCH,
    ROLL_EPOCH,
    WINDOW,
    Claiming,
    Comparing,
    Confirming,
    Doubting,
    Lost,
    Mirror,
    Ready,
    State,
    Stopped,
    markers_at_once,
)
from tidegate.mirror.transitions import MOST_REFUSALS, after, forgotten

OURS, NEXT, THEIRS = 100, 101, 999
THREE = dict(enumerate(rows(3)))
DATA = batch(0, THREE, 3, producer=(OURS, 0, 0))
"""Three records of ours, at the beginning."""
COPY = Copy(3, 3, batch(3, THREE, 3))
GAP = Gap(3, 10)
OUT_OF_ORDER = Refusal(45, "OUT_OF_ORDER_SEQUENCE_NUMBER", lasting=False)
TOO_LARGE = Refusal(10, "RECORD_TOO_LARGE", lasting=True)

AT_3 = Position(3, Stamp(OURS, 0, 3), fresh=False)
AFTER_MARKER = Position(4, Stamp(OURS, 2, 0), fresh=True)
TAIL = Tail(0, 3, DATA)
COMPACTED = Tail(0, 3, batch(0, {0: rows(1)[0]}, 3, producer=(OURS, 4, 2**31 - 2)))
READY = Ready(AT_3, 0)
COMPARING = Comparing(TAIL, AT_3, 0)
CONFIRMING = Confirming(replace(READY, work=(GAP, Copy(10, 3, COPY.data))), planned=6, until=10)

S = TypeVar("S", bound=State)


def led_to(kind: type[S], state: State, answer: Answer, ids: tuple[int, ...] = (OURS,)) -> S:
    mirror = Mirror(ids, state)
    action = mirror.action()
    assert action is not None
    following = after(mirror, action, answer).state
    assert isinstance(following, kind), following
    return following


def markers(base: int, count: int, producer_id: int = OURS, epoch: int = 1) -> bytes:
    return b"".join(marker(base + n, producer_id, epoch, commit=True) for n in range(count))


# --- what is done in each state ---------------------------------------------------------------------------------------


def test_without_a_producer_id_one_is_claimed_first() -> None:
    assert Mirror().action() == ClaimProducerId(None)
    assert after(Mirror(), ClaimProducerId(None), ProducerIds((OURS,))) == Mirror((OURS,))


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (Lost(), ReadTail(WINDOW)),
        (Doubting(THEIRS, 3), ClaimProducerId(None)),
        (COMPARING, ReadSource(0)),
        (READY, ReadSource(3)),
        (replace(READY, source_start=3), DeleteRecords(3)),
        (replace(READY, work=(GAP,)), WriteMarkers(OURS, 1, 3)),
        (Ready(AFTER_MARKER, 0, (Gap(4, 5),)), WriteMarkers(OURS, 2, 1)),
        (Claiming(READY), ClaimProducerId(OURS)),
        (CONFIRMING, ReadTail(3)),
        (Stopped("for a reason", drifted=True), None),
    ],
)
def test_what_is_done_in_each_state(state: State, action: object) -> None:
    assert Mirror((OURS,), state).action() == action


def test_batches_follow_each_other_once_the_broker_has_taken_one() -> None:
    work = tuple(Copy(3 + 3 * n, 3, COPY.data) for n in range(AT_ONCE + 2))
    [first, second] = (Mirror((OURS,), replace(READY, work=work, proven=proven)).action() for proven in (False, True))

    assert isinstance(first, Append)
    assert isinstance(second, Append)
    assert first == Append((restamped(COPY.data, AT_3.stamp),), (3,))
    assert second.offsets == tuple(range(3, 3 + 3 * AT_ONCE, 3))
    assert [struct.unpack_from(">qhi", data, 43) for data in second.batches] == [
        (OURS, 0, 3 + 3 * n) for n in range(AT_ONCE)
    ]


def test_no_batch_follows_a_gap_in_the_same_round() -> None:
    action = Mirror((OURS,), replace(READY, work=(COPY, Gap(6, 7), Copy(7, 3, COPY.data)), proven=True)).action()

    assert isinstance(action, Append)
    assert action.offsets == (3,)


@pytest.mark.parametrize("proven", [False, True])
def test_before_the_sources_start_comes_what_is_deleted_again(proven: bool) -> None:
    start = 3 + 2 * FILLERS + 7
    action = Mirror((OURS,), replace(READY, source_start=start, proven=proven)).action()

    assert isinstance(action, Append)
    assert action.offsets == ((3, 3 + FILLERS, 3 + 2 * FILLERS) if proven else (3,))
    if proven:
        assert len(records_in(action.batches[2])) == 7


@pytest.mark.parametrize(("missing", "count"), [(1, 1), (2, 1), (3, 1), (4, 2), (7, 3), (2001, 1000), (10**6, 1000)])
def test_markers_that_are_written_twice_still_end_within_the_gap(missing: int, count: int) -> None:
    assert markers_at_once(missing) == count


# --- the target's end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tail", "position"),
    [
        (TAIL, AT_3),
        (Tail(0, 4, DATA + markers(3, 1)), AFTER_MARKER),
        (
            Tail(0, 3, batch(0, {0: rows(1)[0]}, 3, producer=(OURS, 4, 2**31 - 2))),
            Position(3, Stamp(OURS, 4, 1), False),
        ),
    ],
    ids=["data", "marker", "what compaction left, over the largest sequence number"],
)
def test_the_last_batch_tells_the_position(tail: Tail, position: Position) -> None:
    assert led_to(Comparing, Lost(2), tail) == Comparing(tail, position, 0, refusals=2)


@pytest.mark.parametrize(
    ("producers", "stamp", "fresh"),
    [
        ((ProducerState(OURS, 3, 8),), Stamp(OURS, 3, 9), False),
        ((ProducerState(OURS, 3, -1),), Stamp(OURS, 4, 0), True),
    ],
)
def test_of_an_empty_log_the_broker_remembers_it(producers: tuple[ProducerState], stamp: Stamp, fresh: bool) -> None:
    found = led_to(Ready, Lost(), Tail(7, 7, producers=producers), ids=(OURS, NEXT))

    assert found == Ready(Position(7, stamp, fresh), 7, source_start=7)


def test_a_new_log_begins_with_the_first_stamp() -> None:
    assert led_to(Ready, Lost(), Tail(0, 0)).position == Position(0, Stamp(OURS, 0, 0), fresh=True)


def test_an_empty_log_of_a_producer_that_is_forgotten_goes_on_with_the_latest_id() -> None:
    """Two writers with a new id each would both be taken."""
    ready = led_to(Ready, Lost(), Tail(7, 7, producers=(ProducerState(THEIRS, 0, 3),)), ids=(OURS, NEXT))

    assert ready.position == Position(7, Stamp(NEXT, 0, 0), fresh=True)


@pytest.mark.parametrize("tail", [batch(0, THREE, 3, producer=(THEIRS, 0, 0)), batch(0, THREE, 3) + markers(3, 1)])
def test_a_producer_that_is_not_known_is_asked_about(tail: bytes) -> None:
    doubting = led_to(Doubting, Lost(1), Tail(0, 4, tail))

    assert led_to(Stopped, doubting, ProducerIds((OURS, NEXT))).drifted
    assert led_to(Lost, doubting, ProducerIds((OURS, doubting.producer_id))) == Lost(1)


def test_a_log_that_ends_elsewhere_than_its_last_batch_is_not_written() -> None:
    assert not led_to(Stopped, Lost(), Tail(0, 5, DATA)).drifted


# --- compared with the source -----------------------------------------------------------------------------------------


def test_what_agrees_may_be_followed() -> None:
    assert led_to(Ready, COMPARING, SourceRead(0, 0, 9, data=batch(0, THREE, 9))) == READY


def test_batches_that_were_copied_as_they_are_need_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes can promise gigabytes, of which two clusters have the same."""
    read: list[int] = []

    def noted(of: Batch) -> list[Record]:
        read.append(of.base_offset)
        return records.read_records(of)

    for module in (comparison, source):
        monkeypatch.setattr(module, "read_records", noted)
    theirs = batch(0, THREE, 3, codec=4) + batch(3, THREE, 3, codec=1)
    copied = batch(0, THREE, 3, codec=4, producer=(OURS, 0, 0)) + batch(3, THREE, 3, codec=4, producer=(OURS, 0, 3))
    comparing = Comparing(Tail(0, 6, copied), AT_3, 0)

    assert isinstance(led_to(Ready, comparing, SourceRead(0, 0, 6, data=theirs)), Ready)
    assert read == [3, 3]  # of the same records, compressed in another way


def test_it_is_compared_up_to_the_targets_end() -> None:
    comparing = Comparing(Tail(0, 6, DATA + batch(3, THREE, 3, producer=(OURS, 0, 3))), AT_3, 0)

    assert led_to(Comparing, comparing, SourceRead(0, 0, 9, data=batch(0, THREE, 3))).known == 3


def test_a_target_that_is_ahead_waits_for_the_source() -> None:
    assert led_to(Comparing, COMPARING, SourceRead(0, 0, 0)) == COMPARING


def test_what_the_source_has_forgotten_is_not_compared() -> None:
    assert led_to(Ready, COMPARING, SourceRead(0, 8, 9)) == replace(READY, source_start=8)


@pytest.mark.parametrize(
    ("tail", "source", "compacts"),
    [
        (DATA, batch(0, dict(enumerate(rows(3, start=1))), 3), True),
        (DATA, markers(0, 3, THEIRS), False),
        (markers(0, 3), batch(0, {1: rows(2)[1]}, 3), True),
        (markers(0, 3), batch(0, THREE, 3), False),
    ],
    ids=[
        "another record",
        "one where the source has a marker",
        "a marker instead of one",
        "a marker instead of one where nothing is compacted",
    ],
)
def test_drift_is_seen_in_what_was_written_last(tail: bytes, source: bytes, compacts: bool) -> None:
    comparing = Comparing(Tail(0, 3, tail), AT_3, 0)
    mirror = Mirror((OURS,), comparing, compacts=compacts)

    found = after(mirror, ReadSource(0), SourceRead(0, 0, 3, data=source)).state

    assert isinstance(found, Stopped)
    assert found.drifted


@pytest.mark.parametrize(
    ("tail", "source"),
    [
        (DATA, batch(0, {0: rows(1)[0]}, 3)),
        (batch(0, {0: rows(1)[0]}, 3, producer=(OURS, 0, 0)), batch(0, THREE, 3)),
    ],
    ids=["the source", "the target"],
)
@pytest.mark.parametrize("compacts", [True, False])
def test_either_log_may_have_been_compacted(tail: bytes, source: bytes, compacts: bool) -> None:
    """Also where the topic is compacted no more: what its records were before stays in neither log."""
    mirror = Mirror((OURS,), Comparing(Tail(0, 3, tail), AT_3, 0), compacts=compacts)

    assert isinstance(after(mirror, ReadSource(0), SourceRead(0, 0, 3, data=source)).state, Ready)


# --- the source -------------------------------------------------------------------------------------------------------


def test_what_was_read_is_the_work() -> None:
    read = SourceRead(3, 0, 9, data=COPY.data)

    assert led_to(Ready, READY, read) == replace(READY, work=(COPY,))
    assert led_to(Ready, READY, SourceRead(3, 0, 3)) == replace(READY, idle=True)


def test_a_start_that_has_moved_on_is_filled_up_to() -> None:
    assert led_to(Ready, READY, SourceRead(3, 8, 9)) == replace(READY, source_start=8)


def test_what_cannot_be_read_stops_the_writer() -> None:
    damaged = COPY.data[:-1] + b"?"

    assert not led_to(Stopped, READY, SourceRead(3, 0, 9, data=damaged)).drifted


@pytest.mark.parametrize(
    ("epoch", "fresh", "rolls"),
    [
        (ROLL_EPOCH - 1, False, False),
        (ROLL_EPOCH, False, True),
        (ROLL_EPOCH, True, False),
        (LAST_MARKER_EPOCH, True, False),
        (LAST_MARKER_EPOCH + 1, True, True),
    ],
)
def test_a_gap_goes_on_with_another_producer_id_once_the_epochs_are_used_up(
    epoch: int, fresh: bool, rolls: bool
) -> None:
    ready = Ready(Position(3, Stamp(OURS, epoch, 0), fresh), 0, proven=True)
    read = SourceRead(3, 0, 5, data=markers(3, 2))

    if rolls:
        claiming = led_to(Claiming, ready, read, ids=(OURS, NEXT))
        assert claiming.ready.work == (Gap(3, 5),)
        assert led_to(Ready, claiming, ProducerIds((OURS, NEXT))) == Ready(
            Position(3, Stamp(NEXT, 0, 0), fresh=True), 0, (Gap(3, 5),)
        )
    else:
        assert led_to(Ready, ready, read).position == ready.position


@pytest.mark.parametrize(
    ("ids", "answer"),
    [((OURS,), (NEXT,)), ((OURS,), ()), ((5, OURS), (5, NEXT)), ((5, OURS), (OURS, 5, NEXT)), ((OURS, 5), ())],
)
def test_the_id_that_is_written_with_stays_and_so_does_the_order(ids: tuple[int, ...], answer: tuple[int, ...]) -> None:
    assert not led_to(Stopped, Claiming(READY), ProducerIds(answer), ids).drifted


def test_ids_that_are_of_no_more_use_may_be_removed_and_older_ones_added() -> None:
    ready = led_to(Ready, Claiming(READY), ProducerIds((2, 4, OURS, NEXT)), ids=(3, 4, OURS, 105))

    assert ready.position == Position(3, Stamp(NEXT, 0, 0), fresh=True)


# --- what was written -------------------------------------------------------------------------------------------------


def test_a_batch_where_it_was_planned_is_followed_by_the_next() -> None:
    ready = replace(READY, work=(COPY, GAP), refusals=3)

    following = led_to(Ready, ready, Appended((3,)))

    assert following == Ready(Position(6, Stamp(OURS, 0, 6), fresh=False), 0, (GAP,), proven=True)


def test_fillers_where_they_were_planned_are_followed_by_the_next() -> None:
    following = led_to(Ready, replace(READY, source_start=10), Appended((3,)))

    assert following == Ready(Position(10, Stamp(OURS, 0, 10), fresh=False), 0, source_start=10, proven=True)


def test_fillers_that_are_too_large_for_the_topic_become_fewer() -> None:
    mirror, fillers = Mirror((OURS,), replace(READY, source_start=FILLERS)), list[int]()
    while not isinstance(mirror.state, Stopped):
        action = mirror.action()
        assert isinstance(action, Append)
        fillers += [struct.unpack_from(">i", data, 57)[0] for data in action.batches]
        refused = after(mirror, action, Appended((TOO_LARGE,)))
        assert isinstance(refused.state, Lost | Stopped)
        mirror = refused if isinstance(refused.state, Stopped) else replace(refused, state=mirror.state)

    assert fillers == [FILLERS - 3, 12_500, 1_562, 195, 24, 3, 1]


@pytest.mark.parametrize("base", [4, 2, 0])
def test_a_batch_anywhere_else_is_drift(base: int) -> None:
    assert led_to(Stopped, replace(READY, work=(COPY,)), Appended((base,))).drifted


def test_a_batch_whose_records_got_other_times_is_drift() -> None:
    """Also where the writer has come far by the time that somebody compares again."""
    stopped = led_to(Stopped, replace(READY, work=(COPY,)), Appended((3,), by_its_clock=True))

    assert stopped.drifted
    assert "message.timestamp.type=LogAppendTime" in stopped.reason


def test_the_first_of_a_round_that_is_refused_decides() -> None:
    ready = replace(READY, work=(COPY, Copy(6, 3, COPY.data)), proven=True)

    assert led_to(Lost, ready, Appended((3, OUT_OF_ORDER))) == Lost(1)
    assert led_to(Lost, ready, Appended((OUT_OF_ORDER, 3))) == Lost(1)
    assert not led_to(Stopped, ready, Appended((3, TOO_LARGE))).drifted


def test_refusals_without_end_stop_the_writer() -> None:
    ready = replace(READY, work=(COPY,), refusals=MOST_REFUSALS - 1)

    assert not led_to(Stopped, ready, Appended((OUT_OF_ORDER,))).drifted


def test_markers_are_looked_for_where_they_were_planned() -> None:
    ready = replace(READY, work=(GAP,))

    assert led_to(Confirming, ready, Done()) == Confirming(ready, 6, 10)
    assert led_to(Ready, replace(READY, source_start=3), Done()).target_start == 3


@pytest.mark.parametrize(("written", "left"), [(3, (Gap(6, 10),)), (6, (Gap(9, 10),)), (7, ())])
def test_markers_that_are_there_are_followed_by_what_is_missing(written: int, left: tuple[Gap, ...]) -> None:
    following = led_to(Ready, CONFIRMING, Tail(0, 3 + written, markers(3, written), 3))

    assert following.position == Position(3 + written, Stamp(OURS, 2, 0), fresh=True)
    assert following.work == (*left, Copy(10, 3, COPY.data))


@pytest.mark.parametrize(
    "tail",
    [
        Tail(0, 11, markers(3, 8), 3),
        Tail(0, 6, batch(3, {0: rows(1)[0]}, 1, producer=(OURS, 0, 3)) + markers(4, 2), 3),
        Tail(0, 6, markers(5, 1), 5),
        Tail(6, 6, producers=(ProducerState(OURS, 1, -1),)),
    ],
    ids=["too many", "data among them", "not all to be seen", "deleted meanwhile"],
)
def test_anything_else_in_a_gap_is_looked_into(tail: Tail) -> None:
    assert led_to(Lost, CONFIRMING, tail) == Lost()


def test_a_stranger_in_a_gap_is_asked_about() -> None:
    assert led_to(Doubting, CONFIRMING, Tail(0, 6, markers(3, 2) + markers(5, 1, THEIRS), 3)).end == 6


def test_markers_that_are_not_there_are_written_again_but_not_for_ever() -> None:
    tired = replace(CONFIRMING, ready=replace(CONFIRMING.ready, refusals=MOST_REFUSALS - 1))

    assert led_to(Lost, CONFIRMING, Tail(0, 5, DATA + markers(3, 2))) == Lost(1)
    assert not led_to(Stopped, tired, Tail(0, 5, DATA + markers(3, 2))).drifted


# --- whatever the state -----------------------------------------------------------------------------------------------

STATES: tuple[State, ...] = (
    Lost(4),
    Doubting(THEIRS, 3, refusals=4),
    replace(COMPARING, refusals=4),
    replace(READY, refusals=4),
    Claiming(replace(READY, refusals=4)),
    replace(CONFIRMING, ready=replace(READY, refusals=4)),
)


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_without_an_answer_the_end_is_read_again(state: State) -> None:
    assert led_to(Lost, state, Interrupted("the connection was closed")) == Lost(4)
    assert forgotten(Mirror((OURS,), state)).state == Lost(4)
    assert led_to(Lost, state, OUT_OF_ORDER) == Lost(5)
    assert not led_to(Stopped, state, TOO_LARGE).drifted


def test_who_has_stopped_stays_so() -> None:
    stopped = Mirror((OURS,), Stopped("for a reason", drifted=True))

    assert forgotten(stopped) == stopped


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_an_answer_to_something_else_is_a_mistake(state: State) -> None:
    mirror = Mirror((OURS,), state)
    action = mirror.action()
    assert action is not None

    with pytest.raises(TypeError, match="is no answer to"):
        after(mirror, action, Done())
