"""An application whose threads gevent has replaced goes on as without the agent, which says that it keeps out."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import tidegate_agent
from devstack import KafkaCluster
from support.gated_applications import Scene
from support.stack_fixtures import MakeTopic, Unique
from tidegate.control.records import Hold, HoldKey

AGENT = Path(tidegate_agent.__file__).parents[1]

APPLICATION = """
from gevent import monkey
monkey.patch_all()
import sys, time
library, bootstrap, topic, group = sys.argv[1:]
seen, until = set(), time.monotonic() + 90
if library == "confluent-kafka":
    from confluent_kafka import Consumer
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while len(seen) < 2 and time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            seen.add(message.partition())
else:
    from kafka import KafkaConsumer
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    while len(seen) < 2 and time.monotonic() < until:
        seen |= {partition.partition for partition in consumer.poll(100)}
consumer.close()
print("read", sorted(seen))
"""


@pytest.mark.parametrize("library", ["confluent-kafka", "kafka-python"])
def test_the_agent_keeps_out_of_what_runs_in_gevent(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, tmp_path: Path, library: str
) -> None:
    topic = make_topic(2)
    (tmp_path / "app.py").write_text(APPLICATION)
    with closing(Scene(kafka.bootstrap, topic, unique())) as scene:
        scene.control.hold({HoldKey(scene.group, topic, 0, "pause/a/1"): Hold()})

        ended = subprocess.run(
            [sys.executable, "-m", "tidegate_agent", "run", "app.py", library, kafka.bootstrap, topic, scene.group],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(AGENT), "TIDEGATE_CONTROL_TOPIC": scene.settings.control_topic},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    assert ended.stdout == "read [0, 1]\n", ended.stderr
    assert ended.stderr.count("gevent has replaced this process's threads") == 1
