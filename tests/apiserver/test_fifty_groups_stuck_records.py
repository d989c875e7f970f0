"""Fifty live groups of all kinds: for half an hour no false alarm, and then a planted record is found in time.

``TIDEGATE_STUCK_MINUTES`` says how long the quiet part takes, instead of 30 minutes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from devstack import KafkaCluster
from support.operator_process import Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique
from support.stuck_groups import Flow, Reader, running

pytestmark = pytest.mark.nightly

QUIET_S = 60.0 * float(os.environ.get("TIDEGATE_STUCK_MINUTES", "30"))
FOUND_WITHIN_S = 30.0

KINDS: dict[str, int] = {"steady": 15, "auto": 10, "slow": 8, "idle": 7, "bursty": 5, "undecided": 3, "restarted": 2}
READERS: dict[str, dict[str, Any]] = {
    "auto": {"auto_commit_s": 5.0},
    "slow": {"batch": 50},
    "bursty": {"takes_s": 0.02, "batch": 10},
}


@contextmanager
def repeated(every_s: float, call: Callable[[], None]) -> Iterator[None]:
    ends = threading.Event()

    def run() -> None:
        while not ends.wait(every_s):
            call()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(120)
        assert not thread.is_alive()


class Restarted:
    """A reader whose place another one takes again and again."""

    def __init__(self, make: Callable[[], Reader]) -> None:
        self._make, self._reader = make, make()

    def start(self) -> None:
        self._reader.start()

    def again(self) -> None:
        self._reader.stop()
        self._reader = self._make()
        self._reader.start()

    def stop(self) -> None:
        self._reader.stop()


def test_no_false_alarm_and_a_planted_record_is_found(
    shared: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    prefix = unique("fifty")
    groups = {f"{prefix}-{kind}-{n}": (kind, make_topic(2)) for kind, count in KINDS.items() for n in range(count)}
    assert len(groups) == 50

    def reader(group: str) -> Reader:
        kind, topic = groups[group]
        return Reader(kafka.bootstrap, group, topic, **READERS.get(kind, {}))

    flowing = {topic: 2 for kind, topic in groups.values() if kind not in ("idle", "bursty")}
    flow = Flow(kafka.bootstrap, flowing, every_s=0.5)
    idle = [topic for kind, topic in groups.values() if kind in ("idle", "bursty")]
    restarted = [Restarted(lambda group=g: reader(group)) for g, (kind, _) in groups.items() if kind == "restarted"]
    readers = [reader(group) for group, (kind, _) in groups.items() if kind != "restarted"]
    bursts = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    waiting = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": unique("tx"), "log_level": 0})
    waiting.init_transactions(30)

    def burst() -> None:
        for topic in [topic for kind, topic in groups.values() if kind == "bursty"]:
            for number in range(600):
                bursts.produce(topic, b"burst", partition=number % 2)
        assert bursts.flush(60) == 0

    def transaction() -> None:
        waiting.begin_transaction()
        for topic in [topic for kind, topic in groups.values() if kind == "undecided"]:
            for partition in range(2):
                waiting.produce(topic, b"undecided", partition=partition)
        time.sleep(45)  # it is open for so long: what this is about
        waiting.commit_transaction(60)

    shared.policy("fifty", [f"{prefix}-*"], stuckRecords={})
    for topic in idle:
        flow.plant(topic, 0, b"one record")

    def status() -> dict[str, Any]:
        found: dict[str, Any] = shared.get_policy("fifty").get("status", {})
        return found

    def alarms() -> list[str]:
        return [message for reason, message in shared.events("fifty") if reason in ("RecordStuck", "MoreEvents")]

    with (
        running(flow, *readers, *restarted),
        repeated(60, burst),
        repeated(30, transaction),
        repeated(20, lambda: [each.again() for each in restarted] and None),
    ):
        # All that flows, and that is read by members that live long enough.
        until(lambda: (status().get("stuckRecords") or {}).get("judged", 0) >= 60, "most are judged", timeout_s=300)
        ends_s = time.monotonic() + QUIET_S
        while time.monotonic() < ends_s:
            assert not alarms()
            assert not (status().get("stuckRecords") or {}).get("stuck")
            time.sleep(5)  # between two looks
        seconds: dict[str, float] = {}
        for group in [f"{prefix}-steady-0", f"{prefix}-steady-1", f"{prefix}-auto-0"]:
            offset = flow.plant(groups[group][1], 1)
            planted_s, record = time.monotonic(), f"{groups[group][1]}-1@{offset}"
            until(lambda record=record: any(record in message for message in alarms()), f"{record} is found")
            seconds[group] = time.monotonic() - planted_s
        print("found after", {group: round(took, 1) for group, took in seconds.items()}, "seconds;", status())
        assert len(alarms()) == 3
        assert condition_of(shared.get_policy("fifty"), "RecordStuck")["status"] == "True"
    assert max(seconds.values()) <= FOUND_WITHIN_S
