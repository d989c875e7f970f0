"""For how long do partitions stand still while their group is reset, as the consumers see it?

``table``: every kind of group and client, reset live, at least ten times each. ``anchor``: what a user would do
instead, in turns with ours on the same consumers: stop them, ``kafka-consumer-groups --reset-offsets --execute``, start
them. ``plot``: what the consumers are given around one reset, with and without the agent.

Each cell is a process of its own and writes a row a reset to ``build/bench/standstill-rows.jsonl``, so that the table
can be made in pieces (``--append``). ``--docs`` writes ``docs/benchmarks/standstill.md`` from the rows.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from devstack import KafkaCluster, script_command
from perf.plot import Chart, drawing
from perf.report import ROOT, Report, Row
from support.clients import ClientKind, GroupProtocol
from support.deliveries import Partition
from support.reset_trial import UNSUPPORTED, Cell, Outcome, Trial, defaults, kinds, managed, run_trial
from tidegate.kafka.model import GroupState

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
ROWS = ROOT / "build" / "bench" / "standstill-rows.jsonl"
DOCS = ROOT / "docs" / "benchmarks" / "standstill.md"
PLOT = DOCS.with_name("gated.svg")
PLOT_S = (-3.0, 6.0)
PLOT_STEP_S = 0.1
HEARTBEAT_S = {"classic": 3.0, "KIP-848": 5.0}
"""``heartbeat.interval.ms`` of the clients, ``group.consumer.heartbeat.interval.ms`` of the broker: the defaults."""
RUNS = 10
ANCHOR_RUNS = 6
REST_S = (0.5, 3.5)
SPREAD_REST_S = (5.0, 8.0)
"""Long enough for heartbeats of different intervals to drift out of phase after a rebalance."""


def table_cells() -> list[Cell]:
    """The cells of the table, the general ones first."""
    return [
        *kinds(),
        *(c for members in (2, 8, 30) for c in defaults(members)),
        *managed(),
    ]


def anchor_cells() -> list[Cell]:
    """librdkafka and Java as they come, classic and KIP-848, with four members: ours against the tool."""
    plain = [replace(c, heartbeat_spread=0.0, stagger_s=0.0) for c in defaults(4)]
    return [*plain, *(replace(c, agent=True) for c in plain if c.kind is ClientKind.LIBRDKAFKA)]


def plot_cells() -> list[Cell]:
    """The same group with the agent and without."""
    return [c for c in anchor_cells() if c.kind is ClientKind.LIBRDKAFKA and c.protocol is GroupProtocol.CLASSIC]


def main(arguments: list[str]) -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser("standstill", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="resets a cell of the table")
    parser.add_argument("--anchor-runs", type=int, default=ANCHOR_RUNS, help="turns a cell of the comparison; 0: none")
    parser.add_argument("--cells", default="*", help="only table cells whose name matches this pattern")
    parser.add_argument("--quick", action="store_true", help="a few kinds, 2 resets each, 1 turn of the comparison")
    parser.add_argument("--parallel", type=int, default=2, help="cells at once; each is mostly waiting")
    parser.add_argument("--append", action="store_true", help="keep the rows there are; do only what is missing")
    parser.add_argument("--docs", action="store_true", help=f"write {DOCS.relative_to(ROOT)}")
    parser.add_argument("--only-docs", action="store_true", help="run nothing; write it from the rows there are")
    parser.add_argument("--cell", help=argparse.SUPPRESS)  # a child process: one cell
    parser.add_argument("--anchor-cell", help=argparse.SUPPRESS)
    parser.add_argument("--plot-cell", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.cell:
        _one_cell(next(c for c in table_cells() if c.name == options.cell), options.bootstrap, options.runs)
        return
    if options.anchor_cell:
        cell = next(c for c in anchor_cells() if c.name == options.anchor_cell)
        _one_anchor(cell, options.bootstrap, options.anchor_runs)
        return
    if options.plot_cell:
        _one_plot(next(c for c in plot_cells() if c.name == options.plot_cell), options.bootstrap)
        return
    if options.quick:
        options.runs, options.anchor_runs = 2, 1
    if not options.only_docs:
        _run_all(options)
    rows = _rows()
    print(_table(rows))
    anchors = _anchor_report(rows)
    if anchors.rows:
        anchors.publish()
    if options.docs or options.only_docs:
        DOCS.parent.mkdir(parents=True, exist_ok=True)
        DOCS.write_text(_document(rows, anchors), encoding="utf-8")
        if any(r["kind"] == "plot" for r in rows):
            PLOT.write_text(_plot(rows), encoding="utf-8")
        print(f"-> {DOCS.relative_to(ROOT)}")
    bad = [r for r in rows if r["kind"] == "table" and not r["good"]]
    if bad:
        raise SystemExit(f"{len(bad)} reset(s) lost something or failed, e.g. {bad[0]['text']}")


# --- running ----------------------------------------------------------------------------------------------------------


def _run_all(options: argparse.Namespace) -> None:
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    if not options.append:
        ROWS.unlink(missing_ok=True)
    done = _rows()
    cells = [c for c in table_cells() if fnmatch.fnmatch(c.name, options.cells)]
    if options.quick:
        cells = cells[::9]
    jobs: list[tuple[str, str, int]] = []
    for cell in cells:
        missing = options.runs - sum(r["kind"] == "table" and r["cell"] == cell.name for r in done)
        if missing > 0:
            jobs.append(("--cell", cell.name, missing))
    for cell in anchor_cells():
        missing = options.anchor_runs - sum(r["kind"] == "anchor" and r["cell"] == cell.name for r in done)
        if missing > 0:
            jobs.append(("--anchor-cell", cell.name, missing))
    plotted = {r["cell"] for r in done if r["kind"] == "plot"}
    if options.anchor_runs:
        jobs += [("--plot-cell", cell.name, 1) for cell in plot_cells() if cell.name not in plotted]
    began = time.monotonic()
    with KafkaCluster.start() as kafka, ThreadPoolExecutor(max(1, options.parallel)) as pool:

        def run(numbered: tuple[int, tuple[str, str, int]]) -> None:
            number, (flag, name, runs) = numbered
            command = [sys.executable, str(Path(__file__).with_name("run.py")), "standstill", flag, name]
            command += ["--bootstrap", kafka.bootstrap, "--runs", str(runs), "--anchor-runs", str(runs)]
            child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
            load = f"load {os.getloadavg()[0]:.1f}"
            at = f"{time.monotonic() - began:5.0f} s, {number}/{len(jobs)}, {load}"
            print(
                f"[{at}] {flag[2:]} {name}: {child.stdout.strip().splitlines()[-1:] or child.stderr[-3000:]}",
                flush=True,
            )

        list(pool.map(run, enumerate(jobs, 1)))


def _one_cell(cell: Cell, bootstrap: str, runs: int) -> None:
    spread = bool(cell.heartbeat_spread)
    seed = int.from_bytes(os.urandom(4), "big")
    count = 0
    for outcome in run_trial(bootstrap, cell, runs, seed=seed, rest_s=SPREAD_REST_S if spread else REST_S):
        _keep("table", cell, outcome)
        count += 1
    print(f"{count} resets")


def _one_plot(cell: Cell, bootstrap: str) -> None:
    """Records a second around one reset: on the partitions that are reset, and on the others."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, Trial(bootstrap, cell, Path(folder)) as trial:
        trial.wait_settled(-PLOT_S[0])
        outcome = trial.reset()
        trial.rest(PLOT_S[1], PLOT_S[1])
        began, targets = trial.last_reset()
        steps = round((PLOT_S[1] - PLOT_S[0]) / PLOT_STEP_S)
        counts = {True: [0] * steps, False: [0] * steps}
        for delivery in trial.records():
            step = int((delivery.t - began - PLOT_S[0]) // PLOT_STEP_S)
            if 0 <= step < steps:
                counts[(delivery.topic, delivery.partition) in targets][step] += 1
    _append(
        {
            "kind": "plot",
            "cell": cell.name,
            "way": outcome.way,
            "reset": [n / PLOT_STEP_S for n in counts[True]],
            "others": [n / PLOT_STEP_S for n in counts[False]],
        }
    )
    print(f"way {outcome.way}")


def _one_anchor(cell: Cell, bootstrap: str, runs: int) -> None:
    """Ours and the tool, in turns on the same consumers."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, Trial(bootstrap, cell, Path(folder)) as trial:
        for _ in range(runs):
            turn: dict[str, Any] = {}
            trial.wait_settled(0.5)
            trial.rest(*REST_S)
            outcome = trial.reset()
            if not outcome.is_good:
                raise SystemExit(f"not reset: {outcome}")
            turn["ours"] = list(outcome.verdict.standstill)
            trial.wait_settled(0.5)
            trial.rest(*REST_S)
            turn["tool"] = _stop_reset_start(trial)
            _append({"kind": "anchor", "cell": cell.name, "client": cell.client, "group": cell.group, **turn})
    print(f"{runs} turns")


def _stop_reset_start(trial: Trial) -> list[float]:
    """What a user does without us. Seconds from each reset partition's last record to the first at its new place."""
    chosen = trial.partitions[::2]
    trial.stop_fleet()
    while trial.kafka.groups([trial.group])[trial.group].state is not GroupState.EMPTY:
        time.sleep(0.05)  # the tool refuses a group with members; a user would try again as well
    command = [*script_command(TOOL), "--bootstrap-server", trial.bootstrap, "--group", trial.group, "--reset-offsets"]
    command += ["--shift-by", "-60", "--execute"]
    command += ["--topic", f"{trial.topic}:{','.join(str(number) for _, number in chosen)}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise SystemExit(f"kafka-consumer-groups failed:\n{done.stdout}{done.stderr}")
    restarted = time.time()
    trial.start_fleet()
    trial.wait_current(120)
    gaps: dict[Partition, float] = {}
    for a, b in _steps(trial, chosen):
        if a.t < restarted <= b.t:
            gaps[a.topic, a.partition] = b.t - a.t
            if b.offset > a.offset:
                raise SystemExit(
                    f"the tool's reset did not show on {a.topic}-{a.partition}: {a.offset}, then {b.offset}"
                )
    return [round(gaps[p], 3) for p in chosen]


def _steps(trial: Trial, chosen: Iterable[Partition]) -> Iterable[tuple[Any, Any]]:
    for partition in chosen:
        yield from pairwise(d for d in trial.records() if (d.topic, d.partition) == partition)


def _keep(kind: str, cell: Cell, outcome: Outcome) -> None:
    v = outcome.verdict
    _append(
        {
            "kind": kind,
            "cell": cell.name,
            "client": cell.client,
            "group": cell.group,
            "members": cell.members,
            "spread": bool(cell.heartbeat_spread or cell.stagger_s),
            "good": outcome.is_good,
            "way": outcome.way,
            "rounds": outcome.rounds,
            "redone": outcome.redone,
            "standstill": list(v.standstill),
            "others": v.others,
            "again": v.again + v.again_elsewhere,
            "stale": v.stale,
            "missing": v.missing,
            "unfinished": v.unfinished,
            "exact": v.exact,
            "targeted": v.targeted,
            "took": outcome.took_s,
            "said": outcome.said_max_s,
            "load": round(os.getloadavg()[0], 1),
            "text": str(outcome),
        }
    )


def _append(row: dict[str, Any]) -> None:
    # One write of one line in append mode: several processes may do so at once.
    with ROWS.open("a", encoding="utf-8") as file:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        file.write(json.dumps({"at": at, "commit": _commit(), **row}) + "\n")


def _commit() -> str:
    """What was measured; rows made in pieces may be of several."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _rows(*, superseded: bool = False) -> list[dict[str, Any]]:
    """The rows that count, or those marked ``"superseded": <why>``: of code that was changed for what they showed."""
    if not ROWS.exists():
        return []
    rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if bool(row.get("superseded")) == superseded]


# --- reporting --------------------------------------------------------------------------------------------------------

WORST = (("worst", "ours"), ("worst tool", "tool"))

HEAD = (
    "client",
    "group",
    "members",
    "way",
    "runs",
    "standstill median (s)",
    "max (s)",
    "read again median",
    "max",
    "stale max",
    "missing",
    "first record = target",
    "redone",
)


def _table(rows: Sequence[dict[str, Any]], *, agent: bool | None = None) -> str:
    lines = [HEAD]
    for cell in table_cells():
        mine = [r for r in rows if r["kind"] == "table" and r["cell"] == cell.name]
        if not mine or agent not in (None, cell.agent):
            continue
        spans = [s for r in mine for s in r["standstill"]]
        again = [r["again"] for r in mine]
        lines.append(
            (
                mine[0]["client"],
                mine[0]["group"],
                f"{cell.members}{' out of phase' if mine[0]['spread'] else ''}",
                "/".join(sorted({r["way"] for r in mine})),
                str(len(mine)),
                f"{median(spans):.2f}" if spans else "",
                f"{max(spans):.2f}" if spans else "",
                f"{median(again):.0f}",
                str(max(again)),
                str(max(r["stale"] for r in mine)),
                str(sum(r["missing"] for r in mine)),
                f"{sum(r['exact'] for r in mine)}/{sum(r['targeted'] for r in mine)}",
                str(sum(r["redone"] for r in mine)),
            )
        )
    return _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rows = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines]
    rows.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(rows)


def _anchor_report(rows: Sequence[dict[str, Any]]) -> Report:
    reported = []
    for cell in anchor_cells():
        turns = [r for r in rows if r["kind"] == "anchor" and r["cell"] == cell.name]
        if turns:
            ours = tuple(median(t["ours"]) for t in turns)
            tool = tuple(median(t["tool"]) for t in turns)
            worst = {name: round(max(max(t[of]) for t in turns), 2) for name, of in WORST}
            reported.append(Row(f"{cell.client}, {cell.group}", ours, tool, worst))
    return Report("standstill", "s", "stop, kafka-consumer-groups, start", reported)


def _has_agent(row: dict[str, Any]) -> bool:
    return str(row["client"]).endswith(" agent")


def _plot(rows: Sequence[dict[str, Any]]) -> str:
    charts = []
    for row in sorted((r for r in rows if r["kind"] == "plot"), key=lambda r: str(r["way"]), reverse=True):
        xs = [PLOT_S[0] + PLOT_STEP_S * number for number in range(len(row["reset"]))]
        # What is replayed comes at once: the rest would be a flat line below it.
        cut = 3 * median(row["others"])
        series = tuple(
            (name, [min(rate, cut) for rate in row[key]])
            for name, key in (("partitions that are reset", "reset"), ("the other partitions", "others"))
        )
        charts.append(Chart(f"{row['way']} (cut off at {cut:.0f}/s)", "records/s", xs, series))
    return drawing(charts)


def _document(rows: Sequence[dict[str, Any]], anchors: Report) -> str:
    table = [r for r in rows if r["kind"] == "table"]
    days = sorted({r["at"][:10] for r in rows})
    loads = [r["load"] for r in table]
    spans = {
        (agent, protocol): [
            s for r in table if _has_agent(r) is agent and r["group"].startswith(protocol) for s in r["standstill"]
        ]
        for agent in (False, True)
        for protocol in HEARTBEAT_S
    }
    summary = [("group", "agent", "heartbeat (s)", "resets of a partition", "median (s)", "max (s)")]
    for (agent, protocol), values in spans.items():
        if values:
            summary.append(
                (
                    protocol,
                    "yes" if agent else "no",
                    f"{HEARTBEAT_S[protocol]:g}",
                    str(len(values)),
                    f"{median(values):.2f}",
                    f"{max(values):.2f}",
                )
            )
    exact, targeted = sum(r["exact"] for r in table), sum(r["targeted"] for r in table)
    old = _rows(superseded=True)
    dropped = "\n".join(
        f"* {r['cell']}: {r['missing']} records missing, {r['unfinished']} target(s) lost; {r['superseded']}."
        for r in old
        if not r["good"]
    )
    commits: dict[str, list[str]] = {}
    for r in table:
        commits.setdefault(r["way"], []).append(r["commit"])
    measured = "\n".join(f"* {way}: {', '.join(sorted(set(ids)))}" for way, ids in sorted(commits.items()))
    count = Counter(r["cell"] for r in table)
    short = [f"* `{c.name}`: {count[c.name] or 'none'}" for c in table_cells() if count[c.name] < RUNS]
    left_out = "\n".join(f"* {kind}, {what}: {why}." for (kind, what), why in UNSUPPORTED.items())
    return f"""# How long a live reset stalls partitions

Made by `make bench NAME=standstill` ({", ".join(days)}), with one broker (Kafka 4.3.1). All clients and the broker ran
on one machine with {os.cpu_count()} cores (load: median {median(loads or [0]):.1f}, at most
{max(loads, default=0):.1f}).
{len(table)} resets, {targeted} resets of a partition: the first record was exactly the target in {exact} of {targeted};
{sum(r["missing"] for r in table)} records missing; {sum(r["unfinished"] for r in table)} targets lost;
{sum(r["redone"] for r in table)} partitions reset again.

Each reset takes half of the partitions, drawn at random and owned by several members. It sets most of them 40 to 90
records back and some ahead, while 25 records a second are written to each (13 if there are 30). Clients run at their
defaults
(heartbeats {HEARTBEAT_S["classic"]:g} s, in KIP-848 groups {HEARTBEAT_S["KIP-848"]:g} s; auto-commit each 5 s), in two
processes.

* **standstill**: the time as the consumers saw it, for each partition of the reset from the last record of the old
  position to the first of the new one. It contains the time between two records, 0.04 s.
* **read again**: records of a reset that were delivered twice although nobody had asked for that, on all partitions.
* **stale**: records that an owner was given after another member had begun at the target, because the owner did not yet
  know that it had been made to leave. Its commits are refused.
* **redone**: partitions that were reset again because an owner had overwritten the target.
* **out of phase**: each rebalance brings the heartbeats of a classic group into phase. So its members have intervals
  from 1.8 to 3 s, and some seconds to drift apart; KIP-848 members join one after the other.

Measured at these commits, by strategy:

{measured}

Not counted above are {len(old)} resets of {len({r["cell"] for r in old})} kinds at earlier commits: the code was
changed because of what they showed. {sum(not r["good"] for r in old)} of them lost something:

{dropped or "(none)"}

## In short

{_markdown(summary)}

## Against stopping the consumers

The alternative is to stop the consumers, run `kafka-consumer-groups --reset-offsets --execute`, and start them again.
The consumers are bare processes, four members in two processes, and Tidegate takes turns with the tool on the same
consumers. The figures are medians over the turns of each turn's median partition; a ratio above 1 means that Tidegate
is faster.

{anchors.table() if anchors.rows else "(not measured)"}

## Owners that run the agent

{_table(rows, agent=True)}

![Records a second around a reset, with the agent and without](gated.svg)

## Owners without the agent

{_table(rows, agent=False)}

## Still to be measured

{chr(10).join(short) or "Nothing: every cell has its " + str(RUNS) + " resets."}

rc and ru are the `isolation.level`s read_committed (librdkafka's default) and read_uncommitted. Left out:

{left_out}
"""


if __name__ == "__main__":
    main(sys.argv[1:])
