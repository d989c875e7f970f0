"""The demo's verdict: well where all was well, and not where anything was lost, doubled or moved that should not be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from demo.access_log import read_requests
from demo.verdict import History, RunFacts, judge, stood_at
from support.clients import Event, EventKind
from support.deliveries import Delivery, Partition

START: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
ASKED: Final = ("t", 0)
OTHER: Final = ("t", 1)


def test_the_records_are_real_requests_with_their_own_times() -> None:
    requests = list(read_requests())

    assert len(requests) == 10_000
    assert requests[0].client_ip == b"83.149.9.216"
    assert requests[0].timestamp_ms == 1431857103000
    assert max(r.at for r in requests) - min(r.at for r in requests) > timedelta(days=3)


# --- a made-up history, and what may go wrong in it -------------------------------------------------------------------


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def delivery(partition: Partition, offset: int, seconds: float) -> Delivery:
    return Delivery(at(seconds).timestamp(), "c0", *partition, offset)


def history() -> History:
    """Partition 0 reads 0 to 19, is sent back to 5 in seconds 20 to 22, and reads 5 to 29; partition 1 reads on."""
    asked = [delivery(ASKED, n, n) for n in range(20)]
    asked += [delivery(ASKED, n, 22 + n * 0.1) for n in range(5, 30)]
    other = [delivery(OTHER, n, n) for n in range(30)]
    run = RunFacts(
        run_id="back",
        applied_at=at(19.5),
        finished_at=at(22),
        phase="Succeeded",
        way="Barrier",
        targets={ASKED: 5},
        expected={ASKED: (5, 5)},
        standstill="status: 2s, 2s",
        message="",
    )
    return History(
        deliveries=sorted([*asked, *other], key=lambda d: d.t),
        events=[Event(at(0).timestamp(), "c0", EventKind.READY)],
        acked={ASKED: frozenset(range(30)), OTHER: frozenset(range(30))},
        committed={ASKED: 30, OTHER: 30},
        processes_before={"c0": 7},
        processes_after={"c0": 7},
        runs=(run,),
    )


def with_run(**changes: object) -> Callable[[History], History]:
    return lambda h: replace(h, runs=(replace(h.runs[0], **changes),))  # type: ignore[arg-type]


def without(partition: Partition, offset: int) -> Callable[[History], History]:
    def doctored(h: History) -> History:
        return replace(
            h, deliveries=[d for d in h.deliveries if (d.topic, d.partition, d.offset) != (*partition, offset)]
        )

    return doctored


def also(*more: Delivery) -> Callable[[History], History]:
    return lambda h: replace(h, deliveries=sorted([*h.deliveries, *more], key=lambda d: d.t))


def first_after_reset_left_out(h: History) -> History:
    return replace(h, deliveries=[d for d in h.deliveries if not (d.offset == 5 and d.t > at(20).timestamp())])


def test_a_history_as_it_should_be_is_well() -> None:
    judgement = judge(history())

    assert judgement.well, judgement.findings
    told = [finding.sentence for finding in judgement.findings]
    assert told[0] == "nothing lost: each of 60 records produced was delivered"
    assert told[1].startswith("nothing doubled but what was asked for: 15 records")
    assert "standstill for its consumers: 3.5 s" in told[-1]


@pytest.mark.parametrize(
    ("doctored", "complaint"),
    [
        pytest.param(without(OTHER, 12), "1 of 60 records were never delivered", id="a record lost elsewhere"),
        pytest.param(without(ASKED, 25), "1 of 60 records were never delivered", id="a record lost after the reset"),
        pytest.param(
            also(delivery(OTHER, 20, 20.5)), "records were read again although nobody had asked for that", id="doubled"
        ),
        pytest.param(also(delivery(OTHER, 20, 20.5)), "outside the request were moved: t-1", id="moved elsewhere"),
        pytest.param(first_after_reset_left_out, "did not go on from their target", id="began after the target"),
        pytest.param(
            also(delivery(ASKED, 20, 22.8)), "did not go on from their target", id="the old position came back"
        ),
        pytest.param(with_run(expected={ASKED: (6, 9)}), "the targets are not what was asked for", id="wrong target"),
        pytest.param(with_run(expected={OTHER: (5, 5)}), "partitions t-0 instead of t-1", id="wrong partitions"),
        pytest.param(with_run(phase="RolledBack", message="why"), "back: RolledBack: why", id="not succeeded"),
        pytest.param(
            lambda h: replace(h, committed={ASKED: 29, OTHER: 30}),
            "has not committed the end of these partitions: t-0",
            id="behind",
        ),
        pytest.param(lambda h: replace(h, processes_after={"c0": 8}), "consumers were restarted", id="another process"),
        pytest.param(
            lambda h: replace(h, events=[*h.events, Event(at(20).timestamp(), "c0", EventKind.CLOSED)]),
            "consumers were restarted",
            id="closed and opened again",
        ),
    ],
)
def test_a_doctored_history_is_not_well(doctored: Callable[[History], History], complaint: str) -> None:
    judgement = judge(doctored(history()))

    assert not judgement.well
    assert any(f.passed is False and complaint in f.sentence for f in judgement.findings), judgement.findings


def test_a_partition_that_was_done_again_is_told_and_well_where_the_run_says_so() -> None:
    read_twice = also(*(delivery(ASKED, n, 24.6 + n * 0.1) for n in range(5, 30)))(history())
    told = judge(with_run(redone=1)(read_twice))

    assert told.well, told.findings
    assert any("25 of them twice: an owner had committed an old position" in f.sentence for f in told.findings)
    assert not judge(read_twice).well


def test_where_a_group_stood_is_read_from_what_its_consumers_were_given() -> None:
    assert stood_at(history().deliveries, [ASKED], at(19.5)) == {ASKED: 20}
    assert stood_at(history().deliveries, [OTHER], at(19.5)) == {OTHER: 30}
