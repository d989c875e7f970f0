"""Plans a reset of all groups to the earliest offsets, as the operator plans a fleet with ``engine: Direct``.

``python plan_in_operator.py BOOTSTRAP OUTPUT``: the plans as CSV (group, topic, partition, target).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import FleetRequest, RunRequest
from tidegate.reset.model.targets import ToEarliest
from tidegate.reset.runs.fleet import group_request, roster_of
from tidegate.reset.runs.fleet_planning import patiently, plan_together


def main(bootstrap: str, output: Path) -> None:
    """Raises ``SystemExit`` for a group that can't be planned."""
    clock, connection, target = SystemClock(), Connection(bootstrap), ToEarliest()
    fleet = RunRequest("bench", "bench", "", connection, (), target, fleet=FleetRequest(("*",)))
    kafka = KafkaClient(connection)
    try:
        groups = roster_of(fleet, kafka.group_ids(), clock.now()).groups
        requests = [group_request(fleet, group, target) for group in groups]
        with output.open("w", newline="") as file:
            rows = csv.writer(file)
            plans = patiently(plan_together(kafka), clock)(requests, clock.now(), lambda _searched: None)
            for request, plan in zip(requests, plans, strict=True):
                if not isinstance(plan, Plan):
                    raise SystemExit(f"{request.group_id}: {plan}")
                for row in plan.partitions:
                    rows.writerow([request.group_id, row.topic, row.partition, row.target])
    finally:
        kafka.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
