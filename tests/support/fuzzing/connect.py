"""Decoders of what Kafka Connect's workers answer, or whatever listens where they should."""

from __future__ import annotations

from typing import Final

from support.fuzzing.mutation import PART
from support.fuzzing.target import Target, as_json, parts
from tidegate.connect.answers import MOST_TASKS, BadAnswer, decode_connector
from tidegate.connect.ports import Connector

_DESCRIBED: Final = {
    "name": "sink",
    "config": {"connector.class": "FileStreamSink", "consumer.override.group.id": "payments"},
    "tasks": [{"connector": "sink", "task": 0}],
    "type": "sink",
}
_STATUS: Final = {
    "name": "sink",
    "connector": {"state": "RUNNING", "worker_id": "10.0.0.1:8083"},
    "tasks": [{"id": 0, "state": "FAILED", "worker_id": "10.0.0.1:8083", "trace": "java.lang.Exception"}],
    "type": "sink",
}


def _connector(data: bytes) -> Connector:
    described, _, status = data.partition(PART)
    return decode_connector("sink", described, status)


def _check(read: Connector) -> None:
    assert read.kind in ("sink", "source", "unknown")
    assert len(read.tasks) <= MOST_TASKS
    assert len(read.group) <= 249
    assert read.group.encode().decode() == read.group
    assert all(state.isascii() and 0 < len(state) <= 32 for state in read.tasks)


TARGETS: Final[tuple[Target, ...]] = (
    Target(
        "connector",
        ("tidegate.connect.answers:decode_connector", "tidegate.connect.answers:_object"),
        (parts(as_json(_DESCRIBED), as_json(_STATUS)), parts(as_json(_DESCRIBED), b"")),
        _connector,
        (BadAnswer,),
        _check,
    ),
)
