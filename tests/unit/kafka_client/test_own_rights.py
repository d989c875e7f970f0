"""What brokers are asked about a principal's permissions, and what is made of their answers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest

from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Refused
from tidegate.kafka.rights import Resource, Right
from tidegate.kafka_client.own_rights import lacking
from tidegate.kafka_client.wire import Wire

READ, WRITE = 3, 4
GROUP_REFUSED, ID_REFUSED = 30, 53


class Brokers(Wire):
    """One that knows of each name what is refused, and counts what it is asked."""

    def __init__(self, refused: dict[str, int], allowed: set[int] | None) -> None:
        super().__init__(Connection("127.0.0.1:1"))
        self._refused, self._allowed = refused, allowed
        self.asked = 0

    def ask_any(self, build: Callable[[], Any], *, what: str, deadline: float | None = None) -> Any:  # noqa: ARG002
        self.asked += 1
        request = build()
        if isinstance(request, FindCoordinatorRequest):
            rows = [
                SimpleNamespace(key=key, error_code=self._refused.get(key, 0), node_id=1, host="b", port=1)
                for key in request.coordinator_keys
            ]
            return SimpleNamespace(coordinators=rows)
        rows = [SimpleNamespace(name=t.name, error_code=0, authorized_operations=self._allowed) for t in request.topics]
        return SimpleNamespace(topics=rows)

    def ask_each(self, requests: Any, *, what: str, deadline: float) -> dict[int, Any]:  # noqa: ARG002
        self.asked += len(requests)
        return {
            node: SimpleNamespace(
                groups=[
                    SimpleNamespace(group_id=group, error_code=0, authorized_operations=self._allowed)
                    for group in request.groups
                ]
            )
            for node, request in requests.items()
        }


def rights(count: int) -> list[Right]:
    return [
        Right("Read", Resource.TOPIC, "orders"),
        *(Right("Read", Resource.GROUP, f"g{n}") for n in range(count)),
        *(Right("Write", Resource.TRANSACTIONAL_ID, f"tidegate.g{n}") for n in range(count)),
        Right("Write", Resource.TRANSACTIONAL_ID, "tidegate-control/", prefixed=True),
    ]


def test_many_names_take_few_requests() -> None:
    brokers = Brokers({}, {READ, WRITE})

    assert lacking(brokers, rights(150)) == ()
    assert brokers.asked <= 5


def test_what_is_refused_is_named_and_nothing_else() -> None:
    refused = {"g1": GROUP_REFUSED, "tidegate.g2": ID_REFUSED, "tidegate-control/any": ID_REFUSED}
    asked = rights(3)

    found = lacking(Brokers(refused, {READ}), asked)

    assert [right.name for right in found] == ["g1", "tidegate.g2", "tidegate-control/"]


def test_brokers_that_do_not_tell_what_is_allowed_leave_it_open() -> None:
    assert lacking(Brokers({}, None), rights(2)) == ()


def test_an_answer_of_another_kind_says_nothing_of_rights() -> None:
    with pytest.raises(Refused):
        lacking(Brokers({"g0": 42}, {READ}), rights(1))
