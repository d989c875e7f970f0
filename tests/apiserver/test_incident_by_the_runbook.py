"""One night, as docs/how-to/look-into-an-incident.md has it: a record that nobody gets past, wrong resets, no operator.

Every step is a command of the runbook, run as a person runs it; the application is one of its own process that only
runs the agent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from apiserver.offsets import committed, produce
from apiserver.own_topics import Own
from devstack import ApiServer
from support.operator_process import OperatorProcess, condition_of, until
from support.shell import ROOT, Shell
from support.stack_fixtures import MakeTopic, Unique
from support.stuck_groups import Flow, running

PARTITIONS = 2
APPLICATION = """
    import sys
    from confluent_kafka import Consumer, TopicPartition

    bootstrap, group, topic = sys.argv[1:]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                         "enable.auto.commit": False})
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        if message.value() == b"poison":
            consumer.seek(TopicPartition(topic, message.partition(), message.offset()))
            continue
        print(message.partition(), message.offset(), flush=True)
        consumer.commit(message, asynchronous=False)
"""


class Application:
    """Runs the agent, and writes down what it has handled."""

    def __init__(self, folder: Path, *arguments: str, control_topic: str) -> None:
        script = folder / "application.py"
        script.write_text(textwrap.dedent(APPLICATION))
        self._log = folder / "handled.log"
        self._command = [sys.executable, "-m", "tidegate_agent", "run", str(script), *arguments]
        self._environment = os.environ | {
            "PYTHONPATH": str(ROOT / "agents" / "python"),
            "TIDEGATE_CONTROL_TOPIC": control_topic,
        }

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self._log.open("w") as log, subprocess.Popen(self._command, stdout=log, env=self._environment) as process:
            try:
                yield
            finally:
                process.send_signal(signal.SIGKILL)

    def handled(self, partition: int) -> list[int]:
        """Offsets, in the order in which the application was given them."""
        whole = self._log.read_text().rpartition("\n")[0]
        rows = (line.split() for line in whole.splitlines())
        return [int(offset) for number, offset in rows if int(number) == partition]


def stuck_records(own: Own) -> dict[str, Any]:
    found: dict[str, Any] = own.resources.get_policy("watch").get("status", {}).get("stuckRecords") or {}
    return found


def ends(bootstrap: str, topic: str) -> list[int]:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "log_level": 0})) as consumer:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)[1] for number in range(PARTITIONS)
        ]


@pytest.fixture
def shell(apiserver: ApiServer) -> Shell:
    return Shell({"KUBECONFIG": str(apiserver.kubeconfig)})


@pytest.mark.nightly
def test_a_night_by_the_runbook(
    own: Own,
    operator: OperatorProcess,
    apiserver: ApiServer,
    make_topic: MakeTopic,
    unique: Unique,
    shell: Shell,
    tmp_path: Path,
) -> None:
    if apiserver.attached:
        pytest.skip("somebody else's API server is not ours to kill")
    group, topic = unique("group"), make_topic(PARTITIONS)
    resources, of = own.resources, ("-n", own.resources.namespace)
    by_kafka = ("--bootstrap-server", own.bootstrap, "--control-topic", own.control_topic)
    assert own.control.ensure() == ()
    resources.policy("watch", group, stuckRecords={"after": "5s", "prepareSkip": True})
    flow = Flow(own.bootstrap, {topic: PARTITIONS})
    application = Application(tmp_path, own.bootstrap, group, topic, control_topic=own.control_topic)

    def at(partition: int) -> int | None:
        return committed(own.bootstrap, group, topic, PARTITIONS).get(partition)

    with application.running():
        with running(flow):
            until(lambda: stuck_records(own).get("judged") == PARTITIONS, "both are seen to be read", timeout_s=60)
            bad = flow.plant(topic, 1)
            stuck = until(lambda: stuck_records(own).get("records"), "the record is found", timeout_s=60)
        skip = until(
            lambda: stuck_records(own)["records"][0].get("skip"),
            "a skip is prepared",
        )
        resources.wait_phase(skip, "AwaitingApproval")
        end, end_1 = ends(own.bootstrap, topic)
        until(lambda: at(0) == end, "partition 0 is read to its end")

        # 1. Ask why.
        why = shell("why", group, "-c", "kafka", *of)
        assert f"{topic}-1@{bad}" in condition_of(resources.get_policy("watch"), "RecordStuck")["message"]
        assert [(each["partition"], each["offset"]) for each in stuck] == [(1, bad)]
        assert skip in why

        # To keep the record from being read meanwhile.
        paused = shell(
            *("pause", group, "-c", "kafka", "--name", "inc", "--topic", f"{topic}:1", "--reason", "INC-4711", *of)
        )
        assert "Paused 1/1" in paused

        # A wrong reset that waits is cancelled; the other one has ended, and is undone.
        before = {partition: at(partition) for partition in range(PARTITIONS)}
        shell("reset", group, "-c", "kafka", "--name", "too-far", "--to-latest", "--manual", "--no-wait", *of)
        resources.wait_phase("too-far", "AwaitingApproval")
        cancelled = shell("cancel", "too-far", *of)
        assert "offsetreset.tidegate.io/too-far deleted" in cancelled
        assert {partition: at(partition) for partition in range(PARTITIONS)} == before

        wrong = shell(
            *("reset", group, "-c", "kafka", "--name", "wrong", "--topic", f"{topic}:0", "--to-offset", "5"),
            *of,
        )
        assert "Succeeded: " in wrong
        until(lambda: application.handled(0)[end:] == list(range(5, end)), "partition 0 was read again")
        undone = shell("undo", "wrong", "--name", "right", *of)
        assert "Succeeded: " in undone
        assert at(0) == end

        # The right one: the skip that was prepared.
        plan = shell("plan", skip, *of)
        assert f"{bad + 1}" in plan
        said = next(line for line in why.splitlines() if "To approve it: " in line)
        shell(*said.partition("tidegate ")[2].split())
        resources.wait_phase(skip, "Succeeded")
        resumed = shell("resume", "inc", *of)
        assert "consumergrouppause.tidegate.io/inc deleted" in resumed
        until(lambda: application.handled(1)[-1] == end_1 - 1, "partition 1 is read to its end")
        assert application.handled(1) == [n for n in range(end_1) if n != bad]

        # With operator and API server dead, while a partition is held.
        shell("pause", group, "-c", "kafka", "--name", "again", "--topic", f"{topic}:1", "--reason", "INC-4712", *of)
        operator.kill()
        apiserver.kill()
        try:
            told = shell("why", group, *by_kafka, "--no-kubernetes")
            listed = shell("groups", *by_kafka, "--all-groups", "--release-all")
            produce(own.bootstrap, topic, PARTITIONS, 10)
            until(lambda: application.handled(0)[-1] == end + 9, "partition 0 flows")
            assert application.handled(1)[-1] == end_1 - 1
            released = shell("groups", *by_kafka, "--group", group, "--release-all", "--execute")
            until(lambda: application.handled(1)[-1] == end_1 + 9, "partition 1 flows again", timeout_s=60)
        finally:
            apiserver.restart()

    assert "1 partition of 2 is held" in told
    assert "INC-4712" in listed
    assert "1 hold(s) released." in released
    assert own.holders() == set()
    assert application.handled(0) == [*range(end), *range(5, end), *range(end, end + 10)]
    assert application.handled(1) == [n for n in range(end_1 + 10) if n != bad]
