"""Brokers behind ``tidegate.kafka_client.connections``, by script: their answers are written in the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace as Row
from typing import Any

from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka_client.connections import Connections
from tidegate.kafka_client.wire import Wire

PATIENCE_MS = 300
Answer = Callable[[int, Any], Any]


class ByScript(Connections):
    """Brokers 0 to 2: ``answers`` by the request's name, each told the broker and the request."""

    def __init__(self, **answers: Answer) -> None:
        super().__init__(Connection("127.0.0.1:1"))
        self.answers = answers
        self.asked: list[tuple[str, int, Any]] = []
        self.closed = 0

    def nodes(self, timeout_s: float | None = None) -> list[int]:  # noqa: ARG002
        return [0, 1, 2]

    def close(self) -> None:
        self.closed += 1

    def call_all(self, requests: Mapping[int, Sequence[Any]], **_: Any) -> dict[int, list[Any] | KafkaFailure]:
        told: dict[int, list[Any] | KafkaFailure] = {}
        for node, some in requests.items():
            try:
                told[node] = [self._answer(node, request) for request in some]
            except KafkaFailure as failure:
                told[node] = failure
        return told

    def _answer(self, node: int, request: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self.asked.append((name, node, request))
        return self.answers[name](node, request)

    def nodes_asked(self, name: str) -> list[int]:
        return [node for asked, node, _ in self.asked if asked == name]


def wire_to(brokers: ByScript) -> Wire:
    wire = Wire(Connection("127.0.0.1:1", properties={"socket.timeout.ms": str(PATIENCE_MS)}))
    wire._connections = brokers
    return wire


def each(*answers: Any) -> Answer:
    """One after the other, the last one from then on; failures are raised."""
    left: Iterator[Any] = iter(answers[:-1])

    def answer(*_: Any) -> Any:
        found = next(left, answers[-1])
        if isinstance(found, KafkaFailure):
            raise found
        return found

    return answer


def coordinators(*nodes: int, code: int = 0) -> Answer:
    """Of every group: the next node at each look, the last one from then on."""
    node = each(*nodes)

    def answer(_: int, request: Any) -> Any:
        now = node()
        rows = [Row(key=k, node_id=now, host="h", port=1, error_code=code) for k in request.coordinator_keys]
        return Row(coordinators=rows)

    return answer
