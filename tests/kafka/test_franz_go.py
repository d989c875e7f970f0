"""franz-go at its defaults: a hundred resets each of groups of one, two and three members.

Its cooperative consumers may keep what they own although they were made to leave, and with a callback for revoked
partitions they do not commit what they have read by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from devstack import KafkaCluster
from support.clients import ClientKind, GroupProtocol
from support.reset_trial import Cell, Outcome, run_trial

RESETS = 100
MEMBERS = (1, 2, 3)
CALLBACKS = ("none", "commit")
CELLS = [(members, callback) for members in MEMBERS for callback in CALLBACKS]


@pytest.fixture(scope="module")
def trials(kafka: KafkaCluster) -> Iterator[Mapping[tuple[int, str], Future[Sequence[Outcome]]]]:
    """All of them at once: they wait most of the time."""
    with ThreadPoolExecutor(len(CELLS)) as pool:
        yield {cell: pool.submit(_resets, kafka.bootstrap, *cell) for cell in CELLS}
        pool.shutdown(cancel_futures=True)


def _resets(bootstrap: str, members: int, callback: str) -> Sequence[Outcome]:
    cell = Cell(kind=ClientKind.FRANZ_GO, protocol=GroupProtocol.CLASSIC, members=members)
    config = {"on.revoked": callback} if callback != "none" else None
    return list(run_trial(bootstrap, cell, RESETS, seed=members, config=config))


@pytest.mark.nightly
@pytest.mark.parametrize(("members", "callback"), CELLS)
def test_every_partition_of_a_hundred_resets_begins_at_its_target(
    members: int, callback: str, trials: Mapping[tuple[int, str], Future[Sequence[Outcome]]]
) -> None:
    outcomes = trials[members, callback].result(5400)
    assert len(outcomes) == RESETS
    assert [str(o) for o in outcomes if not o.is_good] == []
    standstill = sorted(s for o in outcomes for s in o.verdict.standstill)
    print(
        f"{members} member(s), callback {callback}: {len(standstill)} partitions of {RESETS} resets, "
        f"ways {sorted({o.way for o in outcomes})}, rounds at most {max(o.rounds for o in outcomes)}, "
        f"standstill median {standstill[len(standstill) // 2]:.2f} s, longest {standstill[-1]:.2f} s, "
        f"read again {sum(o.verdict.again for o in outcomes)} + {sum(o.verdict.again_elsewhere for o in outcomes)}"
    )
