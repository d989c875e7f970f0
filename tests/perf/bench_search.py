"""What does a search cost that knows where to look?

Ours: find the one record of its kind, which lies in the last 1 % of the topic, bounded by ``from``; and searches
without bounds that end where they find something. Anchor: the first search without bounds, which reads all records. In
turns, in a session that has just started and done each of them ten times with a tenth of the records: what memory it
takes from then on, it takes for the topic's size.
"""

from __future__ import annotations

import argparse

from perf.record_stage import Stage, broker, fill, live_mib, peak_mib, search, session
from perf.report import Report, Row
from tidegate.reset.model.targets import ToRecord

MANY = "value like '%\"status\":404%'"
WHERE = "value like '%OutOfStock%'"


def main(arguments: list[str]) -> None:
    """``--records N --partitions N --cores N --runs N``."""
    parser = argparse.ArgumentParser("search", description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args(arguments)
    with broker() as bootstrap:
        small = fill(bootstrap, "small", options.records // 10, options.partitions)
        late = fill(bootstrap, "late", options.records, options.partitions, mark=int(options.records * 0.995))
        spark = session(options.cores)
        try:
            full_small, _ = search(spark, small, ToRecord(WHERE))
            for _ in range(9):
                search(spark, small, ToRecord(WHERE))
            for target in cases(small).values():
                for _ in range(10):
                    search(spark, small, target)
            small_mib = peak_mib(spark), live_mib(spark)
            ours: dict[str, list[float]] = {case: [] for case in cases(late)}
            full = []
            for run in range(options.runs):
                seconds, found = search(spark, late, ToRecord(WHERE))
                check(late.marked, {p.partition: o for p, o in found.findings.offsets.items() if o is not None})
                full.append(seconds)
                for case, target in cases(late).items():
                    seconds, found = search(spark, late, target)
                    if target.where == WHERE:
                        check(late.marked, {p.partition: o for p, o in found.findings.offsets.items() if o is not None})
                    ours[case].append(seconds)
                print(
                    f"run {run + 1}: full {full[-1]:.2f} s, "
                    + ", ".join(f"{case} {times[-1]:.2f} s" for case, times in ours.items()),
                    flush=True,
                )
            print(f"first full scan, of a tenth: {full_small:.2f} s", flush=True)
            large_mib = peak_mib(spark), live_mib(spark)
            extra = {
                "JVM's peak and live memory with a tenth of it (MiB)": "{}, {}".format(*small_mib),
                "with all of it": "{}, {}".format(*large_mib),
            }
            rows = [Row(case, tuple(times), tuple(full), extra) for case, times in ours.items()]
        finally:
            spark.stop()
    Report("search", "s", "full scan", rows).publish()


def cases(stage: Stage) -> dict[str, ToRecord]:
    return {
        "in the last 1 %, from given": ToRecord(WHERE, since=stage.at(0.99)),
        "first of many, no bounds": ToRecord(MANY),
        "behind the last of many, no bounds": ToRecord(MANY, after=True),
    }


def check(marked: tuple[int, int] | None, offsets: dict[int, int]) -> None:
    """Raises ``SystemExit`` for another answer than the one record there is."""
    if marked is None or offsets != dict([marked]):
        raise SystemExit(f"{offsets} was found, and the record is at {marked}")
