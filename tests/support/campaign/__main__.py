"""``make campaign SEEDS=0-49``: try the schedules of these seeds, and write the page.

Exit code 1: at least one of these seeds has a verdict that is not true. 2: the seeds cannot be read.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from devstack import KafkaCluster
from support.campaign import writer
from support.campaign.outcome import CHANGED, Outcome, Results, Truth
from support.campaign.page import page
from support.campaign.schedule import BROKERS, Schedule, draw
from support.campaign.trial import PROPERTIES, Performance
from support.campaign.tried import Tried
from support.clients import ClientKind
from support.clients.node import has_node

PROJECT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = PROJECT / "docs" / "benchmarks" / "campaign.md"
RESULTS: Final = PAGE.with_suffix(".jsonl")
BESIDES: Final = (
    "agents/python",
    "dev",
    *(str(file.relative_to(PROJECT)) for file in sorted(PROJECT.glob("operator/tidegate/kafka_client/*.json"))),
    *(f"tests/support/{name}" for name in ("clients", "go", "java", "node")),
)
"""What trials use besides the modules that they import: the clients' programs, brokers, protocol schemas."""
AT_ONCE: Final = 3


def seeds(text: str) -> list[int]:
    """``0-49,60``. Raises ``ValueError``."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        found += range(int(first), int(last if dash else first) + 1)
    if not found:
        raise ValueError(f"no seeds in {text!r}")
    return sorted(set(found))


def tried_files() -> list[str]:
    """What is tried, and what it is tried with, as far as this repository has it: paths from its root."""
    modules = {writer, *sys.modules.values()}
    files = {Path(file) for module in modules if (file := getattr(module, "__file__", None)) is not None}
    own = {file.relative_to(PROJECT) for file in files if file.is_relative_to(PROJECT)}
    return sorted({*BESIDES, *(str(file) for file in own if not file.parts[0].startswith("."))})


def tried_commit() -> str:
    """The last commit that changed what `tried_files` do, and whether the tree differs from them."""
    tried = Tried(PROJECT, tried_files())
    return tried.commit() + (CHANGED if tried.is_changed() else "")


def try_all(schedules: Sequence[Schedule], results: Results, commit: str, at_once: int, until: float) -> None:
    """Those that leave the brokers alone side by side; meanwhile, on brokers of their own, the others one by one.
    ``until``: by the monotonic clock, when no more of them are begun."""

    def tried(performance: Performance) -> Outcome | None:
        return performance.perform() if time.monotonic() < until else None

    alone = [schedule for schedule in schedules if schedule.wants_brokers_alone]
    together = [schedule for schedule in schedules if not schedule.wants_brokers_alone]
    with ExitStack() as opened:
        under_way: dict[Future[Outcome | None], Performance] = {}
        for wanted, workers in ((together, at_once), (alone, 1)):
            if not wanted:
                continue
            cluster = opened.enter_context(KafkaCluster.start(BROKERS, PROPERTIES))
            pool = ThreadPoolExecutor(workers)
            opened.callback(pool.shutdown, cancel_futures=True)
            for schedule in wanted:
                performance = Performance(schedule, cluster, commit)
                under_way[pool.submit(tried, performance)] = performance
        for future in as_completed(tuple(under_way)):
            # What has ended is not kept: each performance has its whole history.
            performance = under_way.pop(future)
            error = future.exception()
            outcome = future.result() if error is None else performance.broken(error)
            if outcome is not None:
                results.add(outcome)
                print(f"{outcome.schedule}\n{outcome}\n", flush=True)


def main(arguments: Sequence[str]) -> int:
    """See above."""
    parser = argparse.ArgumentParser("campaign", description=__doc__)
    parser.add_argument("seeds", help="such as 0-49 or 3,7,20-29")
    parser.add_argument("--again", action="store_true", help="also those that were tried at this commit already")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help=f"trials side by side ({AT_ONCE})")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no trial after so long")
    parser.add_argument("--show", action="store_true", help="print the schedules, and try none")
    options = parser.parse_args(arguments)
    try:
        schedules = [draw(seed) for seed in seeds(options.seeds)]
    except ValueError as error:
        print(f"SEEDS: {error}", file=sys.stderr)
        return 2
    if options.show:
        print(*schedules, sep="\n")
        return 0
    results, commit = Results(RESULTS), tried_commit()
    left_out = [s for s in schedules if s.cell.kind is ClientKind.KAFKAJS and not has_node()]
    if left_out:
        print(f"left out, for want of Node.js: seeds {', '.join(str(s.seed) for s in left_out)}", file=sys.stderr)
    schedules = [s for s in schedules if s not in left_out]
    wanted = [s for s in schedules if options.again or not results.has(s.seed, s.digest, commit)]
    if wanted:
        try_all(wanted, results, commit, options.at_once, time.monotonic() + 60 * options.minutes)
    PAGE.write_text(page(results), encoding="utf-8")
    asked = {(schedule.seed, schedule.digest, commit) for schedule in schedules}
    tried = [outcome for outcome in results if (outcome.seed, outcome.digest, outcome.commit) in asked]
    bad = [outcome for outcome in tried if outcome.truth is not Truth.TRUE]
    verdicts = f"{len(tried)} of {len(asked)} seeds tried, {len(tried) - len(bad)} verdicts true"
    print(*bad, f"{verdicts}; {PAGE.relative_to(PROJECT)}", sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
