"""An application that is given another password tells its client so: the agent's own clients have to use it as well."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import confluent_kafka.admin
import pytest

from tidegate_agent import ack_writer, control
from tidegate_agent.control import ControlLink
from tidegate_agent.gates import Partition
from tidegate_agent.own_clients import OwnClients
from tidegate_agent.topic_description import Topic

WITHIN_S = 20.0


class Client:
    """Any of the agent's own: it remembers which password it was made with, and told."""

    def __init__(self, made: list[Client], settings: dict[str, Any]) -> None:
        self.password = settings["sasl.password"]
        made.append(self)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        assert username == "app"
        self.password = password

    def assign(self, _partitions: Any) -> None: ...

    def poll(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def close(self) -> None: ...


def test_a_new_password_reaches_whatever_client_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Client] = []

    all_made = threading.Event()

    class Producer(Client):
        def produce(self, *_record: Any, **_named: Any) -> None:
            all_made.set()

    def plain(kind: Any) -> Callable[..., Client]:
        return lambda settings, **_named: (Producer if kind is ack_writer.Producer else Client)(made, settings)

    monkeypatch.setattr(confluent_kafka.admin, "AdminClient", plain(None))
    monkeypatch.setattr(control, "plain", plain)
    monkeypatch.setattr(ack_writer, "plain", plain)
    monkeypatch.setattr(ControlLink, "_look", lambda _link, _admin: Topic("id", 0))
    monkeypatch.setattr(ControlLink, "_is_lost", lambda _link, _admin, _topic: False)
    link = ControlLink({"sasl.username": "app", "sasl.password": "old"}, "__tidegate", "__tidegate_acks")
    read = threading.Event()
    link.listen(lambda: read.set() if link.known.answered else None)
    try:
        link.ask()
        assert read.wait(WITHIN_S)
        link.send_acks("g", "m", {Partition("orders", 0): (1, 0)}, 1, lambda _written: None)
        assert all_made.wait(WITHIN_S)
        assert [client.password for client in made] == ["old"] * 3

        link.set_credentials("app", "new")

        assert [client.password for client in made] == ["new"] * 3
    finally:
        link.close()


def test_a_client_that_is_being_made_meanwhile_has_the_new_password() -> None:
    made: list[Client] = []
    clients = OwnClients({"sasl.username": "app", "sasl.password": "old"}, threading.Condition())

    def build(settings: dict[str, Any]) -> Client:
        client = Client(made, settings)
        clients.set_credentials("app", "new")
        return client

    clients.make("reader", build)

    assert made[0].password == "new"
