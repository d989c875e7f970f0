"""A live group is reset: once for every kind of group and client, on a real broker. The benchmark repeats each.

Continuous integration tries each client with each of its assignors, each of both with static and with dynamic members;
the other kinds are tried nightly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from zlib import crc32

import pytest

from devstack import KafkaCluster
from support.clients import ClientKind, GroupProtocol
from support.reset_trial import UNSUPPORTED, Cell, Outcome, kinds, managed, run_trial
from tidegate.resources.reset import Way

AT_ONCE = 6
"""Each trial is mostly waiting: for heartbeats, and for the next auto-commit."""


def _often(cell: Cell) -> Cell:
    """A commit each second instead of each five: the watch is over sooner, and overwrites are five times as likely."""
    return replace(cell, auto_commit_interval_s=1.0)


CELLS = [_often(cell) for cell in (*kinds(), *managed())]
# franz-go at its defaults: the fewer members, the more often one learns it from a refused commit that it had to leave.
CELLS += [Cell(kind=ClientKind.FRANZ_GO, protocol=GroupProtocol.CLASSIC, members=members) for members in (1, 2)]
CELLS += [
    _often(Cell(kind=ClientKind.FRANZ_GO, protocol=GroupProtocol.CLASSIC, assignor="cooperative-sticky", members=n))
    for n in (1, 2)
]
EAGER = ("range", "roundrobin", "sticky")


def _pairs(cells: Sequence[Cell]) -> set[str]:
    """Names of kinds that have all pairs of client, assignor and static or dynamic members: of one client's assignors
    every other one is tried with static members, of the next client the others.
    """
    clients = list(dict.fromkeys(cell.client for cell in cells))
    assignors = list(dict.fromkeys((cell.protocol, cell.assignor) for cell in cells))

    def is_wanted(cell: Cell) -> bool:
        place = clients.index(cell.client) + assignors.index((cell.protocol, cell.assignor))
        return cell.static == bool(place % 2)

    return {cell.name for cell in cells if is_wanted(cell)}


IN_CI = {
    *_pairs(kinds()),
    # With the agent nobody rebalances, whatever the assignor: once with static members, once by KIP-848, each client.
    "librdkafka-agent/classic-range-static/m4",
    "librdkafka-agent/KIP-848-uniform/m4",
    "aiokafka-agent/classic-roundrobin/m4",
    "kafka-python-agent/classic-range/m4",
    "franz-go/classic-default/m1",
    "franz-go/classic-cooperative-sticky/m2",
}
EACH = [pytest.param(c, id=c.name, marks=() if c.name in IN_CI else pytest.mark.nightly) for c in CELLS]


@pytest.fixture(scope="module")
def trials(request: pytest.FixtureRequest, kafka: KafkaCluster) -> Iterator[Mapping[str, Future[Outcome]]]:
    """All trials that were selected, each on a topic and a group of its own, some at once."""
    selected = {item.nodeid for item in request.session.items}
    here = request.node.nodeid
    name = test_a_live_group_goes_on_from_the_targets.__name__
    wanted = [cell for cell in CELLS if f"{here}::{name}[{cell.name}]" in selected]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {cell.name: pool.submit(_reset, kafka.bootstrap, cell) for cell in wanted}
        pool.shutdown(cancel_futures=True)


def _reset(bootstrap: str, cell: Cell) -> Outcome:
    [outcome] = run_trial(bootstrap, cell, 1, seed=crc32(cell.name.encode()), rest_s=(0.0, 1.5))
    return outcome


@pytest.mark.parametrize("cell", EACH)
def test_a_live_group_goes_on_from_the_targets(cell: Cell, trials: Mapping[str, Future[Outcome]]) -> None:
    outcome = trials[cell.name].result(300)
    verdict = outcome.verdict
    assert outcome.is_good, str(outcome)
    assert verdict.targeted >= 4, str(outcome)
    # Only what an owner overwrote, or whose owner had to stay for a round, may have begun elsewhere first.
    assert set(verdict.elsewhere) - set(verdict.handed_on) <= set(outcome.done_again), str(outcome)
    assert outcome.way in expected_ways(cell), str(outcome)
    if outcome.way == Way.BARRIER:
        # franz-go commits what it has handed out with the next poll: the last batch is read again, as in any
        # rebalance of its own.
        assert verdict.again_elsewhere <= (cell.partitions if cell.kind is ClientKind.FRANZ_GO else 0), str(outcome)
        assert verdict.stale == 0, str(outcome)
        # Where an owner committed once more just before the join ended, the partition may have gone to somebody else.
        assert verdict.wrong_starts <= len(outcome.done_again), str(outcome)
    if outcome.way == Way.GATED:
        read_twice = (verdict.again, verdict.again_elsewhere, verdict.stale)
        assert (read_twice, verdict.wrong_starts, outcome.rounds) == ((0, 0, 0), 0, 1), str(outcome)


def expected_ways(cell: Cell) -> set[Way]:
    """Managed owners: ``Gated``. Eager groups whose clients know KIP-429: ``Barrier``. A lone eager member whose client
    does not: ``Leading``. All others: ``Handover``. And ``Leading`` where franz-go may have kept an old position."""
    if cell.agent:
        return {Way.GATED}
    eager = cell.protocol == "classic" and cell.assignor in EAGER
    alone = eager and cell.members == 1
    knows_kip_429 = cell.kind in ("librdkafka", "java", "franz-go")
    first = Way.BARRIER if eager and knows_kip_429 else Way.LEADING if alone else Way.HANDOVER
    return {first, Way.LEADING} if cell.kind is ClientKind.FRANZ_GO else {first}


@pytest.mark.pure
def test_every_combination_is_tried_or_left_out_for_a_reason() -> None:
    everything = kinds(ClientKind)
    tried = {(c.kind, c.assignor if c.protocol == "classic" else "KIP-848") for c in everything}
    assignors = {*EAGER, "cooperative-sticky", "KIP-848"}
    assert tried | set(UNSUPPORTED) == {(kind, assignor) for kind in ClientKind for assignor in assignors}
    assert not tried & set(UNSUPPORTED)


@pytest.mark.pure
def test_continuous_integration_tries_all_pairs() -> None:
    cells = kinds()
    tried = [cell for cell in cells if cell.name in IN_CI]

    def pairs(of: Sequence[Cell]) -> set[tuple[object, ...]]:
        facets = [(cell.client, (cell.protocol, cell.assignor), cell.static) for cell in of]
        return {(a, b, facet[a], facet[b]) for facet in facets for a, b in product(range(3), repeat=2)}

    assert pairs(tried) == pairs(cells)
    assert len(tried) == len(cells) / 2
    assert {cell.name for cell in CELLS} >= IN_CI
    ways = set[Way]().union(*(expected_ways(cell) for cell in CELLS if cell.name in IN_CI))
    assert ways == set[Way]().union(*map(expected_ways, CELLS))
