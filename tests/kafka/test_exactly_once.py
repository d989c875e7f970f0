"""Exactly-once applications are reset live: real transactional producers of three libraries, beside their consumers.

Whatever becomes of their membership, they end the transaction that they have open, late. Each trial's whole history is
judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from contract.kafka_worlds import RealWorld
from devstack import KafkaCluster
from support.clients import ClientKind, CommitMode, GroupProtocol
from support.reset_trial import Cell, Outcome, Trial, run_trial
from tidegate.kafka.model import TopicPartition
from tidegate.reset.applying import way_choice
from tidegate.reset.ways import choose_way
from tidegate.resources.reset import ResetPhase, Way

AT_ONCE = 5

SHORT_S = 0.3
LONG_S = 6.0
"""Longer than a watch of targets that nobody overwrites takes at least, and than any heartbeat."""
VERY_LONG_S = 25.0
"""Longer than a run waits for anybody's transaction."""


def _cell(
    kind: ClientKind,
    way: Way,
    *,
    assignor: str | None = None,
    static: bool = False,
    protocol: GroupProtocol = GroupProtocol.CLASSIC,
    isolation: str | None = None,
    agent: bool = False,
) -> tuple[Cell, Way]:
    return (
        Cell(
            kind=kind,
            protocol=protocol,
            assignor=assignor,
            static=static,
            isolation=isolation,
            agent=agent,
            members=2,
            commit=CommitMode.TRANSACTIONS,
            hold_s=LONG_S,
        ),
        way,
    )


CELLS = (
    _cell(ClientKind.LIBRDKAFKA, Way.BARRIER, assignor="range"),
    _cell(ClientKind.LIBRDKAFKA, Way.BARRIER, assignor="range", static=True, isolation="read_uncommitted"),
    _cell(ClientKind.JAVA, Way.HANDOVER, assignor="cooperative-sticky"),
    _cell(ClientKind.JAVA, Way.HANDOVER, protocol=GroupProtocol.CONSUMER),
    # aiokafka names no member as it sends offsets, so older ones of one member may replace newer ones of another, also
    # before any reset: the history has them (`offsets-sent`).
    _cell(ClientKind.AIOKAFKA, Way.HANDOVER, assignor="roundrobin"),
)
# librdkafka's KIP-848 consumers that read committed records wait for open transactions. Two heartbeats are up to 5 s
# apart, so their epoch may change meanwhile, and they begin at ``auto.offset.reset`` then (ADR 19).
BY_NIGHT = (
    _cell(ClientKind.JAVA, Way.BARRIER, assignor="range"),
    _cell(ClientKind.LIBRDKAFKA, Way.HANDOVER, protocol=GroupProtocol.CONSUMER, isolation="read_uncommitted"),
    _cell(ClientKind.LIBRDKAFKA, Way.GATED, assignor="range", agent=True),
    _cell(ClientKind.AIOKAFKA, Way.GATED, assignor="roundrobin", agent=True),
)
WAYS = {cell.name: way for cell, way in (*CELLS, *BY_NIGHT)}
FURTHER = (
    *(cell for cell, _ in BY_NIGHT),
    *(replace(cell, hold_s=hold_s) for cell, _ in (*CELLS, *BY_NIGHT) for hold_s in (SHORT_S, VERY_LONG_S)),
    *(replace(cell, commit=CommitMode.ABORTS) for cell, _ in (*CELLS, *BY_NIGHT)),
)


LED = (
    _cell(ClientKind.JAVA, Way.LEADING, assignor="cooperative-sticky")[0],
    _cell(ClientKind.AIOKAFKA, Way.LEADING, assignor="roundrobin")[0],
    _cell(ClientKind.LIBRDKAFKA, Way.LEADING, assignor="range", isolation="read_uncommitted")[0],
)


def _id(cell: Cell) -> str:
    return f"{cell.name}/{cell.hold_s:g}s"


@pytest.fixture(scope="module")
def trials(request: pytest.FixtureRequest, kafka: KafkaCluster) -> Iterator[Mapping[str, Future[Sequence[Outcome]]]]:
    """All trials that were selected, each on a topic and a group of its own, some at once."""
    selected = " ".join(item.nodeid for item in request.session.items)
    wanted = [cell for cell in (*(c for c, _ in CELLS), *FURTHER) if f"[{_id(cell)}]" in selected]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {_id(cell): pool.submit(_resets, kafka.bootstrap, cell) for cell in wanted}
        pool.shutdown(cancel_futures=True)


def _resets(bootstrap: str, cell: Cell) -> Sequence[Outcome]:
    return list(run_trial(bootstrap, cell, 1, seed=crc32(_id(cell).encode()), rest_s=(0.0, 1.5)))


def _check(cell: Cell, outcomes: Sequence[Outcome]) -> None:
    assert len(outcomes) == 1
    [outcome] = outcomes
    assert outcome.is_good, str(outcome)
    # A group whose transactions stay open is handed over, and led where its owners may send old offsets later on.
    # Agents do not close a gate over one in time, either.
    way = WAYS[replace(cell, commit=CommitMode.TRANSACTIONS).name]
    instead = {Way.HANDOVER, Way.LEADING} | ({Way.BARRIER} if way is Way.GATED else set())
    assert outcome.way in {way} | instead, str(outcome)


@pytest.mark.parametrize("cell", [cell for cell, _ in CELLS], ids=_id)
def test_a_group_whose_transactions_end_late_goes_on_from_its_targets(
    cell: Cell, trials: Mapping[str, Future[Sequence[Outcome]]]
) -> None:
    _check(cell, trials[_id(cell)].result(300))


@pytest.mark.nightly
@pytest.mark.parametrize("cell", FURTHER, ids=_id)
def test_groups_of_other_habits_go_on_from_their_targets(
    cell: Cell, trials: Mapping[str, Future[Sequence[Outcome]]]
) -> None:
    """Transactions that are short, or longer than a run waits, or aborted."""
    _check(cell, trials[_id(cell)].result(600))


@pytest.mark.nightly
@pytest.mark.parametrize("cell", LED, ids=_id)
def test_a_group_that_is_led_goes_on_from_its_targets(
    cell: Cell, kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if an owner had kept its position although it was made to leave: these clients do not."""
    monkeypatch.setattr(way_choice, "choose_way", lambda owners: choose_way(replace(owners, kept_after_leaving=True)))
    [outcome] = _resets(kafka.bootstrap, cell)
    assert outcome.is_good, str(outcome)
    assert outcome.way == Way.LEADING, str(outcome)


@pytest.mark.nightly
@pytest.mark.parametrize("cell", [cell for cell, _ in CELLS], ids=_id)
def test_a_dead_applications_transaction_keeps_no_run(cell: Cell, kafka: KafkaCluster, tmp_path: Path) -> None:
    """Its brokers abort it after a minute; who waits for it goes on at the target then."""
    cell = replace(cell, commit=CommitMode.NONE)
    with (
        closing(RealWorld(kafka.bootstrap)) as world,
        Trial(kafka.bootstrap, cell, tmp_path, commits=False) as trial,
    ):
        targets = dict.fromkeys(trial.partitions[::2], 20)
        dead = world.producer()
        assert dead.send_offsets(trial.group, {TopicPartition(*p): 7 for p in targets}, None)
        request = trial.request(targets)
        result = trial.execute(request)
        assert result.phase is ResetPhase.SUCCEEDED, result
        verdict = trial.judge(trial.touched_at(request), targets, timeout=150)
        assert verdict.is_clean, f"{result} {verdict}"
        complaints = trial.complaints()
        assert not complaints, complaints
