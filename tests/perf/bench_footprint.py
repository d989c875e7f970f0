"""What does the operator's pod take: memory at rest and with 100 resources, and writes to the API server at rest?

There is nothing that a user would run instead; the anchor is the pod that serves one connection and one policy.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter

from perf.report import Report, Row
from support.operator_process import Body, until
from support.pod_stage import ACCOUNT, APPLICATION_NAMESPACE, TIDEGATE_NAMESPACE, PodStage, pod_stage

RESOURCES = 100
SETTLED_S = 45
WRITES = ("create", "update", "patch", "delete", "deletecollection")


def main(arguments: list[str]) -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser("footprint", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of rest, over which writes are counted")
    options = parser.parse_args(arguments)
    with pod_stage() as stage:
        stage.application.deploy()
        alone = _at_rest(stage, options.seconds, "one connection, one policy, one live group")
        stage.kubectl.apply(*(_resource(stage, number) for number in range(RESOURCES)))
        until(lambda: _all_ready(stage), f"{RESOURCES} resources are Ready", timeout_s=180, pause_s=1)
        crowded = _at_rest(stage, options.seconds, f"{RESOURCES} resources more")
    Report(
        "footprint",
        "MiB",
        "one policy",
        [Row("resident memory of the operator's pod", (crowded[0],), (alone[0],), {"writes/min": crowded[1]})],
    ).publish()


def _at_rest(stage: PodStage, seconds: float, case: str) -> tuple[float, float]:
    """(resident memory in MiB, writes to the API server a minute), once it has come to rest."""
    seen, changed = _writes(stage), time.monotonic()

    def is_quiet() -> bool:
        nonlocal seen, changed
        newest = _writes(stage)
        if newest != seen:
            seen, changed = newest, time.monotonic()
        return time.monotonic() - changed >= SETTLED_S

    # Longer than anything that is looked at again at rest: a count in a status may follow its group a little later.
    until(is_quiet, f"no writes for {SETTLED_S} s", timeout_s=600, pause_s=1)
    time.sleep(seconds)
    new = _writes(stage) - seen
    per_minute = new.total() * 60 / seconds
    memory = _resident_mib(stage)
    print(f"{case}: {memory:.0f} MiB, {per_minute:.1f} writes a minute {dict(new)}", flush=True)
    return memory, per_minute


def _resident_mib(stage: PodStage) -> float:
    (pod,) = stage.kubectl.pods(TIDEGATE_NAMESPACE, "app.kubernetes.io/component=operator")
    shown = stage.kubectl("exec", "-n", TIDEGATE_NAMESPACE, pod["metadata"]["name"], "--", "cat", "/proc/1/status")
    found = re.search(r"(?m)^VmRSS:\s+(\d+) kB$", shown)
    if found is None:
        raise RuntimeError(f"/proc/1/status has no VmRSS:\n{shown}")
    return int(found[1]) / 1024


def _writes(stage: PodStage) -> Counter[str]:
    """By verb and resource, all that the operator's service account has written so far."""
    counts: Counter[str] = Counter()
    user = f"system:serviceaccount:{TIDEGATE_NAMESPACE}:{ACCOUNT}"
    with stage.node.audit_log.open() as lines:
        for line in lines:
            if user in line and (entry := json.loads(line))["user"]["username"] == user and entry["verb"] in WRITES:
                reference = entry["objectRef"]
                counts[f"{entry['verb']} {reference['resource']}/{reference.get('subresource', '')}"] += 1
    return counts


def _resource(stage: PodStage, number: int) -> Body:
    """Half of them pauses, half of them policies, each of a group of its own that nobody is a member of."""
    group = f"quiet-{number}"
    spec: Body = {"connectionRef": {"name": "kafka"}, "group": group}
    if number % 2:
        kind, more = "ConsumerGroupPause", {"partitions": [{"topic": stage.application.topic}]}
    else:
        kind, more = "OffsetResetPolicy", {"topics": [stage.application.topic], "retention": {"guard": True}}
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": group, "namespace": APPLICATION_NAMESPACE},
        "spec": spec | more,
    }


def _all_ready(stage: PodStage) -> bool:
    for kind in ("consumergrouppauses", "offsetresetpolicies"):
        for body in stage.kubectl.get(kind, "-n", APPLICATION_NAMESPACE)["items"]:
            status = body.get("status", {})
            conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", [])}
            if conditions.get("Ready") != "True" or status["observedGeneration"] != body["metadata"]["generation"]:
                return False
    return True
