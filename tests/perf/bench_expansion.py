"""How many records does a group at ``latest`` lose when its topic gets new partitions?

Ours: with an ``OffsetResetPolicy``, ten expansions by one partition each, under a producer that writes to the new
partition from its first moment on. Anchor: the same without Tidegate. Counted are acknowledged records of new
partitions that no consumer was ever given. ``managed``: the consumers run the agent, with the policy's maximum age.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from perf.report import Report, Row
from perf.stage import Stage, set_stage, wait
from support.clients import ConsumerFleet
from support.clients.producer import SteadyProducer
from support.deliveries import Partition
from support.policy_memory import remembered_topics

EXPANSIONS = 10
RECORDS_PER_SECOND = 2000.0
FIRST = 2
MEMBERS = 2
REFRESH_MS = 5000
"""How old a client's metadata may be: with the default of five minutes the anchor would lose so much more."""
AFTERWARDS_S = 2.0
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of group."""

    kind: str
    protocol: str
    managed: bool = False
    config: Mapping[str, str | int | float | bool | list[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        protocol = "KIP-848" if self.protocol == "consumer" else "classic"
        return f"{self.kind} {protocol}, {'managed' if self.managed else 'unmanaged'}"


_LIBRDKAFKA = {"topic.metadata.refresh.interval.ms": REFRESH_MS}
_JAVA = {"metadata.max.age.ms": REFRESH_MS}
CASES = (
    Case("librdkafka", "classic", config=_LIBRDKAFKA),
    Case("librdkafka", "consumer", config=_LIBRDKAFKA),
    Case("librdkafka", "classic", managed=True, config=_LIBRDKAFKA),
    Case("librdkafka", "consumer", managed=True, config=_LIBRDKAFKA),
    Case("java", "classic", config=_JAVA),
    Case("java", "consumer", config=_JAVA),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``lost``: records never delivered; ``repaired``: new partitions that were sent back to their start."""

    written: int
    lost: int
    again: int
    repaired: int = 0


def main(arguments: list[str]) -> None:
    """``--expansions N --rate N --case TEXT``: only cases whose name has the text in it."""
    parser = argparse.ArgumentParser("expansion", description=__doc__)
    parser.add_argument("--expansions", type=int, default=EXPANSIONS)
    parser.add_argument("--rate", type=float, default=RECORDS_PER_SECOND)
    parser.add_argument("--case", default="")
    options = parser.parse_args(arguments)
    rows = []
    with set_stage() as stage:
        for case in (c for c in CASES if options.case in c.name):
            without = measure(stage, case, options, guarded=False)
            guarded = measure(stage, case, options, guarded=True)
            extra = {
                "expansions": options.expansions,
                "written": guarded.written,
                "repaired": guarded.repaired,
                "read again": guarded.again,
                "written without": without.written,
            }
            rows.append(Row(case.name, (guarded.lost,), (without.lost,), extra))
            print(f"{case.name}: lost {guarded.lost} of {guarded.written}, without {without.lost}; {extra}", flush=True)
    Report("expansion", "records lost", "without", rows).publish()


def measure(stage: Stage, case: Case, options: argparse.Namespace, *, guarded: bool) -> Outcome:
    """All expansions of one topic."""
    topic = group = f"expand-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": stage.bootstrap})
    admin.create_topics([NewTopic(topic, FIRST)])[topic].result(30)
    if guarded:
        guard(stage, case, group, topic)
    acked: dict[Partition, frozenset[int]] = {}
    agent: dict[str, Any] = {}
    if case.managed and guarded:
        agent = {"agent": True, "environment": {"TIDEGATE_LATEST_MAX_AGE": "3600000", "TIDEGATE_GROUP": group}}
    with ConsumerFleet(
        case.kind,
        stage.bootstrap,
        group,
        [topic],
        MEMBERS,
        protocol=case.protocol,
        auto_offset_reset="latest",
        config=case.config,
        **agent,
    ) as fleet:
        fleet.wait_assigned([(topic, n) for n in range(FIRST)])
        for number in range(FIRST, FIRST + options.expansions):
            new = (topic, number)
            admin.create_partitions([NewPartitions(topic, number + 1)])[topic].result(30)
            with SteadyProducer(stage.bootstrap, topic, [number], options.rate) as producer:
                fleet.wait_flowing([new], timeout=PATIENCE_S)
                if guarded:
                    wait(lambda n=number: settled(stage, group) > n, f"{new} is settled", PATIENCE_S)  # type: ignore[misc]
                time.sleep(AFTERWARDS_S)
                acked |= producer.stop()
            fleet.wait_read_to({new: max(acked[new]) + 1}, PATIENCE_S)
        delivered = [(d.topic, d.partition, d.offset) for d in fleet.records() if (d.topic, d.partition) in acked]
    seen = set(delivered)
    repaired = status(stage, group).get("backfilled", 0) if guarded else 0
    if guarded:
        stage.delete("offsetresetpolicies", group)
    return Outcome(
        written=sum(map(len, acked.values())),
        lost=sum((*p, offset) not in seen for p, offsets in acked.items() for offset in offsets),
        again=len(delivered) - len(seen),
        repaired=repaired,
    )


def guard(stage: Stage, case: Case, group: str, topic: str) -> None:
    """The policy, once it has made its first discovery."""
    spec: dict[str, Any] = {"connectionRef": {"name": "kafka"}, "group": group, "topics": [topic], "discovery": {}}
    if case.managed:
        spec["latest"] = {"maxAge": "1h"}
    stage.create("offsetresetpolicies", "OffsetResetPolicy", group, spec)
    wait(lambda: status(stage, group).get("initialDiscoveryFinished"), "the first discovery is finished")


def status(stage: Stage, policy: str) -> dict[str, Any]:
    found: dict[str, Any] = stage.get("offsetresetpolicies", policy).get("status", {}).get("discovery", {})
    return found


def settled(stage: Stage, policy: str) -> int:
    topics = remembered_topics(stage.core, stage.get("offsetresetpolicies", policy))
    return int(topics[0]["settled"]) if topics else 0


if __name__ == "__main__":
    main(sys.argv[1:])
