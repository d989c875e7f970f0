"""What does one operator ask of 50 clusters with 2,000 groups each?

On fakes, in virtual time: requests and writes are counted, and how much CPU the operator's own code takes for them,
with that of the fakes and without that of any client. The anchor is one cluster alone. ``--docs`` writes
``docs/benchmarks/many-clusters.json``, of which ``docs/generate_scaling.py`` makes ``docs/explanation/scaling.md``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any, Final

from perf.report import ROOT, Report, Row
from support.many_clusters import Counted, ManyClusters, Size

DOCS: Final = ROOT / "docs" / "benchmarks" / "many-clusters.json"
SETTLED_S: Final = 60.0
REST_S: Final = 120.0
_OURS: Final = "*/operator/tidegate/*"


def main(arguments: list[str]) -> None:
    """``--clusters N --groups N --docs``."""
    parser = argparse.ArgumentParser("many_clusters", description=__doc__)
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--groups", type=int, default=2_000, help="of each cluster")
    parser.add_argument("--docs", action="store_true", help=f"write {DOCS.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    all_of_them = _counted(Size(options.clusters, options.groups))
    alone = _counted(Size(1, options.groups))
    memory = _bytes_of_a_group(Size(2, 500))
    calls = sorted(all_of_them["at rest"])
    rows = [
        Row(call, (float(all_of_them["at rest"][call]),), (float(alone["at rest"].get(call, 0.0)),)) for call in calls
    ]
    Report("many_clusters", "calls/s at rest", "one cluster alone", rows).publish()
    measured = {"all": all_of_them, "alone": alone, "bytes of a group": memory}
    print(json.dumps(measured, indent=2), flush=True)
    if options.docs:
        DOCS.write_text(json.dumps(measured, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _counted(size: Size) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        world = ManyClusters(size, Path(folder) / "files")
        try:
            first = world.run(SETTLED_S)
            began_s = time.process_time()
            rest = world.run(REST_S)
            took_s = time.process_time() - began_s
        finally:
            world.close()
    return {
        "clusters": size.clusters,
        "groups": size.groups,
        "at start": dict(sorted(first.kafka.items())),
        "bytes stored at start": first.document_bytes,
        "documents at start": first.documents,
        "at rest": {call: round(count / rest.seconds, 3) for call, count in sorted(rest.kafka.items())},
        "groups looked at/s": round(rest.named["groups"] / rest.seconds, 1),
        "status writes/min": _a_minute(rest, rest.status_writes),
        "documents/min": _a_minute(rest, rest.documents),
        "cpu %": round(100 * took_s / rest.seconds, 1),
    }


def _a_minute(rest: Counted, count: int) -> float:
    return round(60 * count / rest.seconds, 2)


def _bytes_of_a_group(size: Size) -> int:
    """What the operator's own modules hold of a group, and libraries on their behalf do not count."""
    few, many = (_held(Size(size.clusters, groups)) for groups in (size.groups // 10, size.groups))
    return round((many - few) / (size.clusters * (size.groups - size.groups // 10)))


def _held(size: Size) -> int:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        tracemalloc.start()
        world = ManyClusters(size, Path(folder) / "files")
        try:
            world.run(SETTLED_S)
            held = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, _OURS)])
            return sum(each.size for each in held.statistics("filename"))
        finally:
            tracemalloc.stop()
            world.close()
