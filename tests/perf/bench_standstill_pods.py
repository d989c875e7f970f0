"""For how long do an application's partitions stand still while its group is reset, in a cluster, as its pods see it?

Ours: an OffsetResetPolicy, carried out by a SparkApplication on the live group. Instead: the Deployment is scaled to 0,
``kafka-consumer-groups --reset-offsets --execute``, and scaled back. In turns, on the same pods of one node.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from perf.report import Report, Row
from support.checker import ResetRun
from support.pod_stage import PodStage, pod_stage

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHIFT = -50


def main(arguments: list[str]) -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser("standstill-pods", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="turns")
    options = parser.parse_args(arguments)
    cases: dict[str, tuple[list[float], list[float]]] = {}
    with pod_stage() as stage:
        for case, labels in (("the agent by label", {"tidegate.io/inject": "python"}), ("ordinary consumers", {})):
            stage.application.labels = labels
            stage.application.deploy()
            stage.caught_up()
            ours, tool = cases.setdefault(case, ([], []))
            for turn in range(options.runs):
                stage.reset(f"{len(cases)}-{turn}", {"to": {"shiftBy": SHIFT}})
                stage.caught_up()
                ours.append(_standstill(stage))
                _scale_reset_scale(stage)
                stage.caught_up()
                tool.append(_standstill(stage))
                print(f"{case}, turn {turn + 1}: {ours[-1]:.2f} s, instead {tool[-1]:.2f} s", flush=True)
        verdict = stage.verdict()
        print(f"{len(stage.runs)} resets: {verdict.missing} records missing, {verdict.targets_lost} targets lost")
        print(stage.stopwatch.table())
    anchor = "scale to 0, kafka-consumer-groups, scale back"
    Report("standstill-pods", "s", anchor, [Row(c, tuple(a), tuple(b)) for c, (a, b) in cases.items()]).publish()


def _standstill(stage: PodStage) -> float:
    """Of the newest run: the median over its partitions, in seconds."""
    newest = len(stage.runs) - 1
    found = [r.standstill_s for r in stage.verdict().resets if r.run == newest and r.standstill_s is not None]
    if len(found) != len(stage.runs[newest].targets):
        raise RuntimeError(f"reset {newest} was not seen in every partition: {stage.verdict().complaints()}")
    return median(found)


def _scale_reset_scale(stage: PodStage) -> None:
    """As people do it; waits for the group to be empty as the tool demands."""
    application, replicas, began = stage.application, stage.application.replicas, time.time()
    application.scale(0)
    printed = stage.kafka.tool(
        TOOL,
        *("--bootstrap-server", stage.kafka.bootstrap, "--group", application.group, "--topic", application.topic),
        *("--reset-offsets", "--shift-by", str(SHIFT), "--execute"),
    )
    rows = [line.split() for line in printed.splitlines() if line.startswith(f"{application.group} ")]
    targets = {(topic, int(partition)): int(offset) for _group, topic, partition, offset in rows}
    if targets.keys() != set(application.partitions):
        raise RuntimeError(f"the tool did not reset every partition:\n{printed}")
    application.scale(replicas)
    stage.runs.append(ResetRun(began, time.time(), targets))
