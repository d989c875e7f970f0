"""How long from applying a pause until the partitions stand still?

Ours: a ``ConsumerGroupPause`` is created, and the time taken until the last owner's ack is on the ack topic, and until
the status says Paused. Anchor: what a user would do instead, stop the group's consumers and wait until the group is
Empty. A real broker, a real API server, the operator at its default ticks, librdkafka consumers that run the agent.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from statistics import median

from confluent_kafka.admin import AdminClient, NewTopic

from perf.report import Report, Row
from perf.stage import LIMIT_S, Stage, set_stage, wait
from support.clients import ConsumerFleet
from support.clients.producer import SteadyProducer
from support.obeyed import acked
from tidegate.kafka.model import TopicPartition

PARTITIONS = (1, 10, 100)
CONSUMERS = (1, 10, 50)
RUNS = 9
RECORDS_PER_SECOND = 2.0
GROUP = "payments"
TOPIC = "orders"


def main(arguments: list[str]) -> None:
    """``--runs N --partitions N… --consumers N…``."""
    parser = argparse.ArgumentParser("ack", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS)
    parser.add_argument("--consumers", type=int, nargs="+", default=CONSUMERS)
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    with set_stage() as stage:
        admin = AdminClient({"bootstrap.servers": stage.bootstrap})
        admin.create_topics([NewTopic(TOPIC, max(PARTITIONS))])[TOPIC].result(30)
        for consumers in options.consumers:
            rows += measure(stage, consumers, options)
    Report("ack", "s", "stop the consumers", rows).publish()


def measure(stage: Stage, consumers: int, options: argparse.Namespace) -> list[Row]:
    """All numbers of partitions for one number of consumers; the anchor is the same for them."""
    partitions = [TopicPartition(TOPIC, n) for n in range(max(PARTITIONS))]
    names = [(p.topic, p.partition) for p in partitions]
    stops: list[float] = []
    acked: dict[int, list[float]] = {n: [] for n in options.partitions}
    told: dict[int, list[float]] = {n: [] for n in options.partitions}
    with SteadyProducer(stage.bootstrap, TOPIC, max(PARTITIONS), RECORDS_PER_SECOND):
        for run in range(max(2, options.runs // 3)):
            with fleet(stage, consumers) as members:
                members.wait_assigned(names, timeout=120)
                for count in [count for _ in range(options.runs) for count in options.partitions] if run == 0 else ():
                    acked_s, told_s = pause(stage, partitions[:count])
                    acked[count].append(acked_s)
                    told[count].append(told_s)
                began = time.monotonic()
                members.stop()
                wait(lambda: not stage.client.groups([GROUP])[GROUP].members, "the group is Empty")
                stops.append(time.monotonic() - began)
    rows = []
    for count in options.partitions:
        print(
            f"{count} partitions, {consumers} consumers: "
            f"acked {median(acked[count]):.3f} s, at most {max(acked[count]):.3f}; "
            f"Paused in the status {median(told[count]):.3f} s, at most {max(told[count]):.3f}",
            flush=True,
        )
        extra = {
            "acked max": round(max(acked[count]), 3),
            "Paused median": round(median(told[count]), 3),
            "Paused max": round(max(told[count]), 3),
        }
        rows.append(Row(f"{count} partitions, {consumers} consumers", tuple(acked[count]), tuple(stops), extra))
    return rows


def fleet(stage: Stage, consumers: int) -> ConsumerFleet:
    return ConsumerFleet(
        "librdkafka",
        stage.bootstrap,
        GROUP,
        [TOPIC],
        members=consumers,
        processes=min(consumers, 5),
        agent=True,
    )


def pause(stage: Stage, partitions: list[TopicPartition]) -> tuple[float, float]:
    """Seconds from before the creation until all were acked, and until the status said so; resumed afterwards."""
    name = f"pause-{secrets.token_hex(4)}"
    spec = {
        "connectionRef": {"name": "kafka"},
        "group": GROUP,
        "partitions": [{"topic": TOPIC, "partitions": [f"0-{len(partitions) - 1}"]}],
    }
    began = time.monotonic()
    stage.create("consumergrouppauses", "ConsumerGroupPause", name, spec)
    acked_s: float | None = None
    while acked_s is None:
        gates = stage.client.control.read([GROUP], wait_s=0.02)
        if all(acked(gates, GROUP, p) for p in partitions):
            acked_s = time.monotonic() - began
        if time.monotonic() - began > LIMIT_S:
            status = stage.get("consumergrouppauses", name).get("status")
            raise SystemExit(f"not acked within {LIMIT_S:.0f} s: {status}")
    wait(lambda: stage.get("consumergrouppauses", name).get("status", {}).get("phase") == "Paused", f"{name} is Paused")
    told_s = time.monotonic() - began
    epochs = {p: gates.epoch(GROUP, p) or 0 for p in partitions}
    stage.delete("consumergrouppauses", name)
    wait(lambda: opened(stage, epochs), f"{name} is let go")
    return acked_s, told_s


def opened(stage: Stage, epochs: dict[TopicPartition, int]) -> bool:
    """Whether nobody holds them any more, and their owners have said so after the holds of these epochs."""
    gates = stage.client.control.read([GROUP])
    return all(
        gates.epoch(GROUP, p) is None and acked(gates, GROUP, p, epoch + 1) is not None for p, epoch in epochs.items()
    )


if __name__ == "__main__":
    main(sys.argv[1:])
