"""How long does it take until another replica leads, and is everything as it was then?

The leader of two replicas is killed, or frozen until another one leads, in each phase of twenty resets and twenty
pauses. What comes of it is judged as ``tests/apiserver/test_operator_takeover.py`` judges it: a complaint ends the
benchmark with exit code 1. The anchor is the lease's duration, which a standby has to wait for at least in part.
``--docs`` writes ``docs/benchmarks/takeover.md``.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kubernetes import client as kube
from kubernetes import config

from devstack import ApiServer
from devstack.commands import crd_files
from perf.report import ROOT, Report, Row
from support.takeover.page import Takeover, document, summary, table, takeovers
from support.takeover.plan import EPISODES, Fault
from support.takeover.stage import stage
from support.takeover.story import Story
from support.takeover.verdict import complaints

DOCS: Final = ROOT / "docs" / "benchmarks" / "takeover.md"
LEASE_S: Final = 10.0
"""``leaseDurationSeconds`` by default."""


def main(arguments: list[str]) -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser("takeover", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of when frozen leaders wake")
    parser.add_argument("--episodes", default="", help="some of them by their numbers from 0, with commas")
    parser.add_argument("--keep", type=Path, help="a folder for the operators' logs")
    parser.add_argument("--docs", action="store_true", help=f"write {DOCS.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    chosen = [int(number) for number in options.episodes.split(",")] if options.episodes else range(len(EPISODES))
    load, began = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as temporary, ApiServer.start() as server:
        for path in crd_files():
            server.apply(path)
        client = config.new_client_from_config(str(server.kubeconfig))
        kube.CoreV1Api(client).create_namespace({"metadata": {"name": "takeover"}})
        with stage(server, client, "takeover", options.keep or Path(temporary)) as made:
            story = Story(made, options.seed, say=lambda text: print(text, flush=True))
            story.play(tuple(EPISODES[number] for number in chosen))
            wrong = complaints(story)
            found = takeovers(story.struck, made.replicas.writes())
    minutes = (time.monotonic() - began) / 60
    _report(found).publish()
    print(summary(found), table(found), *(wrong or ["nothing to complain of"]), sep="\n\n", flush=True)
    if wrong:
        sys.exit(1)
    if options.docs:
        DOCS.write_text(document(story, found, _measured(minutes, load)), encoding="utf-8")
        print(f"-> {DOCS.relative_to(ROOT)}")


def _report(found: Sequence[Takeover]) -> Report:
    rows = []
    for fault in Fault:
        times = tuple(each.lease_s for each in found if each.struck.episode.fault is fault)
        if times:
            rows.append(Row(f"{fault}: until another replica has the Lease", times, (LEASE_S,), {"most": max(times)}))
    return Report("takeover", "s", "the lease's duration", rows)


def _measured(minutes: float, load: float) -> str:
    """Where and when."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return (
        f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()}), with a load average of {load:.1f} at the "
        f"beginning; {minutes:.0f} minutes, {datetime.now(UTC):%Y-%m-%d}, commit {commit}."
    )
