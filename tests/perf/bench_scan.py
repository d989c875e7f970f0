"""How fast is a full scan by content?

Ours: a search that finds nothing, so that every record is looked at, in a session that has just started and looked
through a tenth as many records by each condition. Anchors: Kafka's own ConsumerPerformance, which looks at nothing (its
``nMsg.sec``: the whole run, its JVM's start apart), and a loop over librdkafka's batches that looks for a text
(``kcat | grep``). In turns on the same broker. ConsumerPerformance is a JVM of its own in each run, as
a user starts it, so its compiler begins anew each time, while our session goes on: the ratio says how fast a search is
beside it, and not which of the two engines is.
"""

from __future__ import annotations

import argparse

from perf.record_stage import (
    broker,
    consumer_performance,
    fill,
    librdkafka_grep,
    search,
    session,
)
from perf.report import Report, Row
from tidegate.reset.model.targets import RecordSchema, ToRecord
from tidegate.resources.targets import SchemaFormat

SCHEMA = RecordSchema(SchemaFormat.JSON, "order BIGINT, status INT, total DOUBLE", "the bench")
CASES = {
    "string: like": ToRecord("value like '%OutOfStock%'"),
    "string: contains": ToRecord("contains(value, binary('OutOfStock'))"),
    "json: get_json_object": ToRecord("get_json_object(string(value), '$.status') = '500'"),
    "json: valueSchema": ToRecord("record.status = 500", schema=SCHEMA),
    "json: each document read": ToRecord("get_json_object(string(value), '$.status') >= 500"),
}


def main(arguments: list[str]) -> None:
    """``--records N --partitions N --cores N --runs N``."""
    parser = argparse.ArgumentParser("scan", description=__doc__)
    parser.add_argument("--records", type=int, default=8_000_000)
    parser.add_argument("--partitions", type=int, nargs="+", default=[8, 1])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    rows = []
    with broker() as bootstrap:
        small = fill(bootstrap, "small", options.records // 10, 8)
        spark = session(options.cores)
        try:
            for target in CASES.values():
                search(spark, small, target)
            for partitions in options.partitions:
                stage = fill(bootstrap, f"scan-{partitions}", options.records, partitions)
                cases = CASES if partitions == options.partitions[0] else dict(list(CASES.items())[:1])
                ours: dict[str, list[float]] = {case: [] for case in cases}
                anchor, grep = [], []
                for run in range(options.runs):
                    # Before ours and after it by turns: the machine's speed changes from run to run.
                    if run % 2 == 0:
                        anchor.append(consumer_performance(stage))
                    if not grep:  # by far the slowest
                        grep.append(librdkafka_grep(stage, partitions, b"OutOfStock"))
                    for case, target in cases.items():
                        seconds, found = search(spark, stage, target)
                        if set(found.findings.offsets.values()) != {None}:
                            raise SystemExit(f"{case} has found {found.findings}, and there is nothing to be found")
                        ours[case].append(options.records / seconds)
                    if run % 2 == 1:
                        anchor.append(consumer_performance(stage))
                    print(
                        f"run {run + 1}: ConsumerPerformance {anchor[-1]:,.0f}, "
                        + ", ".join(f"{case} {rates[-1]:,.0f}" for case, rates in ours.items()),
                        flush=True,
                    )
                for case, rates in ours.items():
                    extra = {
                        "librdkafka, grep": round(grep[0]),
                        "the first run": round(rates[0]),
                    }
                    rows.append(Row(f"{case}, {partitions} partition(s)", tuple(rates), tuple(anchor), extra))
        finally:
            spark.stop()
    Report("scan", "records/s", "ConsumerPerformance", rows, lower_is_better=False).publish()
