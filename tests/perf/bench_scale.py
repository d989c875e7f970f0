"""What does an operator cost that looks after very many resources, and does it keep up?

A ladder of resources in one namespace, each rung with a fresh operator: half are pauses, a quarter policies with
discovery, an eighth finished resets and an eighth resets whose plans wait for approval; each of a group of its own.
The anchor of each rung is the empty operator of the same machine; beside it stands what an operator takes that is made
with kopf as well and only watches the same objects. A rung is ``1000``, or ``1000x200`` where its resources go through
200 connections to the one cluster. It is a row of ``build/bench/scale-rows.jsonl``, so that the ladder can be climbed
in pieces (``--append``). ``--docs`` writes ``docs/benchmarks/scale.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from kubernetes import client as kube
from kubernetes import config

from devstack import ApiServer
from devstack.commands import crd_files
from perf.report import ROOT, Report, Row
from perf.scale_stage import (
    PAUSES,
    RESETS,
    Asked,
    Crowd,
    Probes,
    Rung,
    Size,
    bare_kopf,
    brokers_for,
    cpu_s,
    crowded,
    ladder,
    resident_mib,
    spare,
    writes,
)
from support.operator_process import OperatorProcess

ROWS: Final = ROOT / "build" / "bench" / "scale-rows.jsonl"
DOCS: Final = ROOT / "docs" / "benchmarks" / "scale.md"
RUNGS: Final = "0,100,500,1000,2500,5000,1000x200"
FULL: Final = Size(topics=5_000, partitions=10, groups=1_000)
QUICK: Final = Size(topics=100, partitions=10, groups=100)
QUICK_RUNGS: Final = "0,20,100"
MORE: Final = 3
"""How often one more reset, and one more pause, is asked for; the median counts."""

MORE_LIMIT_S: Final = 60.0

_DEFAULT_TICKS: Final = {"TIDEGATE_ACTIVE_TICK_S": "", "TIDEGATE_IDLE_TICK_S": "", "TIDEGATE_HEALTH_INTERVAL_S": ""}
"""An empty value leaves the operator's own default."""

_AS_IN_ITS_IMAGE: Final = {"MALLOC_ARENA_MAX": "2"}
"""What the Dockerfile sets for the operator's process."""

MEASURES: Final = {
    "settled s": "seconds from the creation of the last resource until all are in their intended state",
    "rss MiB": "resident memory of the operator at rest",
    "cpu %": "percent of one core at rest, by the process's own CPU time",
    "kafka requests/s": "at rest, in addition to what the brokers answer without the operator",
    "api reads/min": "at rest",
    "api writes/min": "at rest",
    "one more reset s": f"with engine Direct, until it has succeeded; median of {MORE}",
    "one more pause s": f"until it is Paused; median of {MORE}",
    "health failures": "failed probes, of one a second, from the first resource on",
    "bare kopf: rss MiB": "resident memory of an operator made with kopf that only watches the same objects",
    "bare kopf: cpu %": "CPU of that operator",
}


def main(arguments: list[str]) -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser("scale", description=__doc__)
    parser.add_argument("--rungs", default="", help=f"how many resources, with commas; without, {RUNGS}")
    parser.add_argument("--topics", type=int, default=FULL.topics)
    parser.add_argument("--partitions", type=int, default=FULL.partitions, help="of each topic")
    parser.add_argument("--groups", type=int, default=FULL.groups)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK}, rungs {QUICK_RUNGS}")
    parser.add_argument("--rest-s", type=float, default=60.0, help="over which the costs at rest are measured")
    parser.add_argument("--limit-s", type=float, default=600.0, help="how long a rung may take to settle")
    parser.add_argument("--operator", type=Path, help="the operator folder of another checkout, to measure that one")
    parser.add_argument("--append", action="store_true", help="keep the rows there are of other rungs")
    parser.add_argument("--docs", action="store_true", help=f"write {DOCS.relative_to(ROOT)}")
    parser.add_argument("--only-docs", action="store_true", help="run nothing; write it from the rows there are")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else Size(options.topics, options.partitions, options.groups)
    rungs = (options.rungs or (QUICK_RUNGS if options.quick else RUNGS)).split(",")
    if not options.only_docs:
        _climb(size, rungs, options)
    rows = _rows()
    _report(rows).publish()
    if options.docs or options.only_docs:
        DOCS.write_text(_document(rows), encoding="utf-8")
        print(f"-> {DOCS.relative_to(ROOT)}")


# --- running ----------------------------------------------------------------------------------------------------------


def _counts(rung: str) -> tuple[int, int]:
    """How many resources, and through how many connections."""
    resources, _, connections = rung.partition("x")
    return int(resources), int(connections or 1)


def _climb(size: Size, rungs: Sequence[str], options: argparse.Namespace) -> None:
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    if not options.append:
        ROWS.unlink(missing_ok=True)
    with (
        crowded(size) as crowd,
        ApiServer.start() as server,
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder,
    ):
        for path in crd_files():
            server.apply(path)
        api = config.new_client_from_config(str(server.kubeconfig))
        for name in rungs:
            namespace = f"scale-{name}"
            kube.CoreV1Api(api).create_namespace({"metadata": {"name": namespace}})
            place = Path(folder) / namespace
            place.mkdir()
            environment = _DEFAULT_TICKS | _AS_IN_ITS_IMAGE
            if options.operator is not None:
                environment["PYTHONPATH"] = str(options.operator.resolve())
            operator = OperatorProcess(server.kubeconfig, namespace, place, environment)
            measured = _measure(Rung(server, api, crowd, namespace), operator, name, options)
            with bare_kopf(server.kubeconfig, namespace, place / "bare-kopf.log") as pid:
                measured |= _bare(pid, options.rest_s)
            _append(size, name, measured, options.operator)


def _bare(pid: int, seconds: float) -> dict[str, Any]:
    time.sleep(20)  # until it has started, and been told of all there is
    began, spent_s = time.monotonic(), cpu_s(pid)
    time.sleep(seconds)
    cpu = 100 * (cpu_s(pid) - spent_s) / (time.monotonic() - began)
    return {"bare kopf: rss MiB": round(resident_mib(pid), 1), "bare kopf: cpu %": round(cpu, 2)}


def _measure(rung: Rung, operator: OperatorProcess, name: str, options: argparse.Namespace) -> dict[str, Any]:
    without = _requests_a_second(rung.crowd, 10)
    number, connections = _counts(name)
    asked = ladder(number, rung.crowd.size, connections)
    with operator:
        rung.connect(connections)
        probes = Probes(operator)
        probes.start()
        applied = rung.apply(asked)
        settled_s = _settled(rung, asked, applied, options.limit_s)
        print(f"{name}: settled after {settled_s} s", flush=True)
        time.sleep(20)  # what is told once an idle tick after that is no rest yet
        at_rest = _at_rest(rung, operator.pid, options.rest_s, without)
        print(f"{name}: {at_rest}", flush=True)
        resets = _each_within(lambda n: _one_more_reset(rung, n))
        pauses = _each_within(lambda n: _one_more_pause(rung, MORE + n))
        probes.stop()
        stopped_s = _stopped(operator)
        ROWS.with_name(f"scale-{name}.log").write_text(operator.log.read_text())
    return {
        "settled s": settled_s if asked else 0.0,
        **at_rest,
        "one more reset s": _median(resets),
        "one more pause s": _median(pauses),
        "stopped s": stopped_s,
        "health failures": probes.failed,
        "health probes": probes.asked,
        "load": round(os.getloadavg()[0], 1),
    }


def _settled(rung: Rung, asked: list[Asked], applied: float, limit_s: float) -> float | None:
    """Seconds from the last creation on; ``None``: not within the limit."""
    left = asked
    while left := rung.unsettled(left):
        if time.monotonic() - applied > limit_s:
            print(f"{len(left)} are not settled, e.g. {[a.name for a in left[:5]]}", flush=True)
            return None
        time.sleep(2)
    return round(time.monotonic() - applied, 1)


def _at_rest(rung: Rung, pid: int, seconds: float, without: float) -> dict[str, Any]:
    api, requests, began, spent_s = rung.requests_to_api(), rung.crowd.requests(), time.monotonic(), cpu_s(pid)
    time.sleep(seconds)
    took_s, used_s = time.monotonic() - began, cpu_s(pid) - spent_s
    asked = rung.crowd.requests() - requests
    counts = rung.requests_to_api() - api
    written = writes(counts)
    return {
        "rss MiB": round(resident_mib(pid), 1),
        "cpu %": round(100 * used_s / took_s, 2),
        "kafka requests/s": round(asked / (time.monotonic() - began) - without, 1),
        "api reads/min": round(60 * (counts.total() - written) / took_s, 1),
        "api writes/min": round(60 * written / took_s, 1),
    }


def _requests_a_second(crowd: Crowd, seconds: float) -> float:
    before, began = crowd.requests(), time.monotonic()
    time.sleep(seconds)
    return (crowd.requests() - before) / (time.monotonic() - began)


def _each_within(one_more: Callable[[int], float | None]) -> list[float | None]:
    """The seconds of each, up to the first that is not there within the limit."""
    found: list[float | None] = []
    for number in range(MORE):
        found.append(one_more(number))
        if found[-1] is None:
            break
    return found


def _one_more_reset(rung: Rung, number: int) -> float | None:
    spec = {"connectionRef": {"name": "kafka"}, "group": spare(number), "to": {"earliest": {}}, "engine": "Direct"}
    rung.create(RESETS, "OffsetReset", f"more-{number}", spec)
    return _until_phase(rung, RESETS, f"more-{number}", "Succeeded")


def _one_more_pause(rung: Rung, number: int) -> float | None:
    spec = {"connectionRef": {"name": "kafka"}, "group": spare(number)}
    rung.create(PAUSES, "ConsumerGroupPause", f"more-{number}", spec)
    return _until_phase(rung, PAUSES, f"more-{number}", "Paused")


def _until_phase(rung: Rung, plural: str, name: str, phase: str) -> float | None:
    return rung.wait(lambda: rung.get(plural, name).get("status", {}).get("phase") == phase, MORE_LIMIT_S)


def _stopped(operator: OperatorProcess) -> float | None:
    """Seconds from SIGTERM to its end; ``None``: it had not ended after a minute, and was killed."""
    began = time.monotonic()
    operator.ask_to_stop()
    try:
        operator.ended(60)
    except subprocess.TimeoutExpired:
        operator.kill()
        print("it had not ended a minute after SIGTERM", flush=True)
        return None
    return round(time.monotonic() - began, 1)


def _median(seconds: list[float | None]) -> float | None:
    found = [s for s in seconds if s is not None]
    return round(median(found), 2) if len(found) == len(seconds) else None


# --- rows -------------------------------------------------------------------------------------------------------------


def _append(size: Size, name: str, measured: dict[str, Any], operator: Path | None) -> None:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    named = {"topics": size.topics, "partitions": size.topics * size.partitions, "groups": size.groups}
    row = {"at": at, "commit": _commit(operator or ROOT), "rung": name, **named, **measured}
    with ROWS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def _commit(folder: Path) -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout.strip()


def _rows() -> list[dict[str, Any]]:
    """The newest of each rung, the smallest first."""
    newest: dict[str, dict[str, Any]] = {}
    if ROWS.exists():
        for line in ROWS.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            newest[row["rung"]] = row
    return [newest[rung] for rung in sorted(newest, key=lambda rung: _counts(rung)[::-1])]


def _report(rows: list[dict[str, Any]]) -> Report:
    """What was not reached within the limit has no row."""
    empty = next((row for row in rows if row["rung"] == "0"), {})
    return Report(
        "scale",
        "see case",
        "the empty operator",
        [
            Row(f"{row['rung']}: {measure}", (row[measure],), (empty.get(measure) or 0.0,))
            for row in rows
            for measure in MEASURES
            if row[measure] is not None
        ],
    )


def _document(rows: list[dict[str, Any]]) -> str:
    first = rows[0]
    count = brokers_for(Size(1, first["partitions"], 0))
    brokers = "one broker" if count == 1 else f"{count} brokers"
    head = ["resources", *MEASURES]
    lines = [head, ["---"] * len(head)]
    lines += [[_named(row["rung"]), *(_shown(row[measure]) for measure in MEASURES)] for row in rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    meanings = "\n".join(f"* {measure}: {meaning}." for measure, meaning in MEASURES.items())
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
    loads = ", ".join(f"{row['load']:g}" for row in rows)
    days = ", ".join(dict.fromkeys(row["at"][:10] for row in rows))
    return f"""# What very many resources cost

`make bench NAME=scale`: one operator at its default settings, {brokers} (Kafka 4.3.1) with {first["topics"]:,} topics
of {first["partitions"]:,} partitions in all and {first["groups"]:,} groups, 20 of which have a live member. Half of the
resources are pauses (half of those name a topic, half cover all that their group reads), a quarter are policies with
discovery, an eighth finished resets, and an eighth resets whose plans wait for approval. Each row has a fresh operator.
All resources go through one KafkaConnection unless the row says otherwise. The operator looks at each of several
connections to one cluster separately; a [shared](../how-to/share-a-connection.md) connection saves that.

{table}

{meanings}

A dash means that the limit was exceeded: a minute for one more resource, and ten minutes for the run unless set
otherwise. In the latter case the other figures of the row are those of an operator that was still at work. Brokers, API
server and operator ran on one machine with {os.cpu_count()} cores ({platform.machine()}, {platform.system()}), on which
other work ran at the same time (load average {loads}); {days}, commit {commits}.
"""


def _named(rung: str) -> str:
    resources, connections = _counts(rung)
    return f"{resources:,}" + (f" through {connections:,} connections" if connections > 1 else "")


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:,g}"
