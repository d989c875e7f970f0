"""How much memory does the page of ``tidegate ui`` take with 1,000 groups, and how soon does it show them?

A real API server with a policy for each group, whose statuses are written all the time, and Debian's Chromium with the
list of groups open. There is nothing that a user would run instead: the anchor of each memory is what it was in the
first minute, so that a ratio far below 1 is a leak; that of the times to show the page is the page without groups.

``--docs`` writes ``docs/benchmarks/ui.md``.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

from kubernetes import client as kube
from kubernetes import config as kube_config

from devstack import ApiServer
from devstack.commands import crd_files
from perf.report import Report, Row
from support.chromium import Browser
from support.shell import Shell
from tidegate.clock import SystemClock
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import POLICIES
from tidegate.resources.timestamps import format_timestamp

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "ui.md"
EVERY_S: Final = 10.0
EMPTY: Final = "empty"
FULL: Final = "shop"


@dataclass(frozen=True, slots=True)
class Sample:
    """``at_s``: since the list was shown. MiB, and elements."""

    at_s: float
    server_mib: float
    heap_mib: float
    elements: int


@dataclass(frozen=True, slots=True)
class Shown:
    """Milliseconds from the start of navigation: to the first paint, and until all lines are rendered."""

    paint_ms: float
    lines_ms: float


def main(arguments: list[str]) -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser("ui", description=__doc__)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--changes", type=float, default=20, help="statuses that are written a second")
    parser.add_argument("--times", type=int, default=7, help="how often each page is opened")
    parser.add_argument("--docs", action="store_true")
    options = parser.parse_args(arguments)
    with ApiServer.start() as server:
        for path in crd_files():
            server.apply(path)
        client = kube_config.new_client_from_config(str(server.kubeconfig))
        for namespace in (EMPTY, FULL):
            kube.CoreV1Api(client).create_namespace(kube.V1Namespace(metadata=kube.V1ObjectMeta(name=namespace)))
        policies = KubeClient(client, SystemClock(), [FULL])
        _create(policies, options.groups)
        shown = _times(server, options.groups, options.times)
        samples, written = _watched(server, policies, options)
    _publish(shown, samples)
    if options.docs:
        PAGE.write_text(page(options, shown, samples, written), encoding="utf-8")


def _create(policies: KubeClient, groups: int) -> None:
    def create(number: int) -> None:
        spec = {"connectionRef": {"name": "prod"}, "group": f"service-{number:04}", "retention": {"guard": True}}
        policies.create(
            POLICIES,
            {
                "apiVersion": POLICIES.api_version,
                "kind": POLICIES.kind,
                "metadata": {"namespace": FULL, "name": f"keep-{number:04}"},
                "spec": spec,
            },
        )

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(create, range(groups)))


@contextmanager
def _served(server: ApiServer, namespace: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with Shell({"KUBECONFIG": str(server.kubeconfig)}).start("ui", "--no-browser", "-n", namespace) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        try:
            yield address, process
        finally:
            process.terminate()


# --- how soon ---------------------------------------------------------------------------------------------------------


def _times(server: ApiServer, groups: int, times: int) -> dict[str, list[Shown]]:
    found: dict[str, list[Shown]] = {EMPTY: [], FULL: []}
    with _served(server, EMPTY) as (empty, _), _served(server, FULL) as (full, _), Browser() as browser:
        browser.open("about:blank")
        for _ in range(times):
            for namespace, address, rows in ((EMPTY, empty, 0), (FULL, full, groups)):
                found[namespace].append(_shown(browser, address, rows))
    return found


def _shown(browser: Browser, address: str, rows: int) -> Shown:
    url = address.partition("#")[0]
    browser.open(address)  # which takes the token
    browser.until("document.querySelector('#live')?.dataset.state === 'live'", "it is live")
    browser.open("about:blank")
    browser.open(f"{url}#/groups")
    done = f"performance.getEntriesByName('first-lines').length && document.querySelectorAll('.row').length === {rows}"
    browser.until(done, "the groups are shown")
    paint = browser.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    return Shown(paint, browser.run("performance.getEntriesByName('first-lines')[0].startTime"))


# --- how much ---------------------------------------------------------------------------------------------------------


def _watched(server: ApiServer, policies: KubeClient, options: argparse.Namespace) -> tuple[list[Sample], int]:
    """What was measured, and how many statuses were written meanwhile."""
    over, written = threading.Event(), itertools.count()
    writer = threading.Thread(target=_write, args=(policies, options.changes, over, written))
    samples: list[Sample] = []
    with _served(server, FULL) as (address, process), Browser() as browser:
        browser.send("HeapProfiler.enable")
        browser.open(address)
        browser.until("document.querySelector('#live')?.dataset.state === 'live'", "it is live")
        browser.run("location.hash = '#/groups'")
        browser.until(f"document.querySelectorAll('.row').length === {options.groups}", "the groups are shown")
        writer.start()
        began = time.monotonic()
        try:
            while (now := time.monotonic() - began) < options.minutes * 60:
                samples.append(_sample(browser, process.pid, now))
                print(samples[-1], flush=True)
                time.sleep(EVERY_S)
        finally:
            over.set()
            writer.join()
    return samples, next(written)


def _sample(browser: Browser, pid: int, now: float) -> Sample:
    browser.send("HeapProfiler.collectGarbage")
    metrics = {m["name"]: m["value"] for m in browser.send("Performance.getMetrics")["metrics"]}
    resident = re.search(r"(?m)^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text())
    assert resident is not None
    mib = metrics["JSHeapUsedSize"] / 2**20
    return Sample(round(now, 1), int(resident[1]) / 1024, mib, int(metrics["Nodes"]))


def _write(policies: KubeClient, a_second: float, over: threading.Event, written: Iterator[int]) -> None:
    bodies = list(policies.list(POLICIES))
    for number in itertools.count():
        at = number % len(bodies)
        condition = {
            "type": "Ready",
            "status": "True" if number % 7 else "False",
            "reason": "Measured",
            "message": f"{number:,} statuses were written",
            "lastTransitionTime": format_timestamp(datetime.now(UTC).replace(microsecond=0)),
        }
        bodies[at] = policies.replace_status(POLICIES, bodies[at], {"conditions": [condition]})
        next(written)
        if over.wait(1 / a_second):
            return


# --- what comes of it -------------------------------------------------------------------------------------------------


def _first_and_last(samples: Sequence[Sample], of: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Those of the first and of the last minute."""
    values = [(s.at_s, float(getattr(s, of))) for s in samples]
    last = values[-1][0]
    return tuple(v for at, v in values if at < 60), tuple(v for at, v in values if at > last - 60)


_MEMORY: Final = {"server_mib": "resident memory of tidegate ui", "heap_mib": "the page's JavaScript heap"}


_TIMES: Final = {"paint_ms": "first contentful paint", "lines_ms": "all lines are there"}


def _publish(shown: dict[str, list[Shown]], samples: Sequence[Sample]) -> None:
    memory = []
    for of, case in _MEMORY.items():
        first, last = _first_and_last(samples, of)
        memory.append(Row(case, last, first))
    Report("ui", "MiB", "first minute", memory).publish()
    times = [
        Row(case, tuple(getattr(s, of) for s in shown[FULL]), tuple(getattr(s, of) for s in shown[EMPTY]))
        for of, case in _TIMES.items()
    ]
    Report("ui-times", "ms", "no groups", times).publish()


def page(options: argparse.Namespace, shown: dict[str, list[Shown]], samples: Sequence[Sample], written: int) -> str:
    """What ``docs/benchmarks/ui.md`` says."""
    groups = f"{options.groups:,} groups"
    nodes = [median(values) for values in _first_and_last(samples, "elements")]
    return "\n\n".join(
        [
            f"# What the page of `tidegate ui` takes with {groups}",
            _paragraph(
                f"`make bench NAME=ui ARGS=--docs`: an API server with a policy for each of {groups}, Debian's "
                f"Chromium with the list of groups open for {options.minutes:g} minutes. Meanwhile {written:,} "
                f"statuses were written, one after the other, at most {options.changes:g} a second. The machine has "
                f"{os.cpu_count()} cores, which other work shared. Kafka was not asked."
            ),
            _table(
                ("memory, MiB", *(f"minute {minute + 1}" for minute in _minutes(samples)), "most"),
                [_memory_row(samples, of, case) for of, case in _MEMORY.items()],
            ),
            _paragraph(
                "The figures are medians of samples 10 s apart; the heap is measured after a garbage collection. The "
                f"page has {nodes[0]:,.0f} DOM nodes in the first minute and {nodes[1]:,.0f} in the last."
            ),
            _table(
                ("ms from the start of navigation", "no groups", groups),
                [_time_row(shown, of, case) for of, case in _TIMES.items()],
            ),
            _paragraph(
                f"The figures are medians of {options.times} openings each, in turns, with the least and the most. "
                "Lines are there when the script has rendered what the API server returned; the browser draws what is "
                "in the window."
            )
            + "\n",
        ]
    )


def _memory_row(samples: Sequence[Sample], of: str, case: str) -> tuple[str, ...]:
    """Medians of minutes, and the most."""
    values = [(s.at_s, float(getattr(s, of))) for s in samples]
    minutes = [median([v for at, v in values if int(at // 60) == minute]) for minute in _minutes(samples)]
    return case, *(f"{each:.1f}" for each in minutes), f"{max(v for _, v in values):.1f}"


def _minutes(samples: Sequence[Sample]) -> list[int]:
    """The first two, one in the middle, and the last."""
    last = int(samples[-1].at_s // 60)
    return sorted({0, min(1, last), last // 2, last})


def _time_row(shown: dict[str, list[Shown]], of: str, case: str) -> tuple[str, ...]:
    cells = []
    for namespace in (EMPTY, FULL):
        values = sorted(float(getattr(s, of)) for s in shown[namespace])
        cells.append(f"{median(values):,.0f} ({values[0]:,.0f} to {values[-1]:,.0f})")
    return case, *cells


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 120)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows))
