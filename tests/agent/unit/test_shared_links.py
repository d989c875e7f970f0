"""Consumers that reach their brokers in one way share a link, however often one is made: a link has threads and
connections of its own. It lasts as long as the process, or with a function in its settings as long as they do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tidegate_agent import process
from tidegate_agent.adapters import aiokafka, kafka_python
from tidegate_agent.adapters.consumer_gate import Link, Unreachable
from tidegate_agent.gates import Known

OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}


class Provider:
    """Of tokens, as each of the client libraries wants it."""

    def token_of(self, _config: str) -> tuple[str, float]:
        return "t", 1e9

    def token(self) -> str:
        return "t"


@pytest.fixture(autouse=True)
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_process", process._Process())


def test_a_method_that_gives_tokens_is_the_same_each_time_that_it_is_named() -> None:
    one, other = Provider(), Provider()
    links = [process.link({"bootstrap.servers": "k:1", "oauth_cb": who.token_of}) for who in (one, one, other)]
    assert links[0] is links[1]
    assert links[0] is not links[2]


class Opened:
    """In place of a ``ControlLink``."""

    def __init__(self, *_: object) -> None:
        self.known, self.listeners, self.closed = Known(), 0, threading.Event()

    def listen(self, _changed: object) -> None:
        self.listeners += 1

    def unlisten(self, _changed: object) -> None:
        self.listeners -= 1

    def ask(self, _topics: object = ()) -> int:
        return 1

    def settle(self, _until: float) -> None:
        """Nothing is on its way."""

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    """All links that were opened."""
    found: list[Opened] = []

    def open_link(*_: object) -> Opened:
        found.append(Opened())
        return found[-1]

    monkeypatch.setattr(process, "ControlLink", open_link)
    return found


def test_a_link_with_a_function_of_its_own_ends_with_its_last_consumer(opened: list[Opened]) -> None:
    def config() -> dict[str, Any]:
        return {"bootstrap.servers": "k:1", "oauth_cb": lambda _: ("t", 1e9)}

    for _ in range(3):
        settings = config()
        first, second = process.link(settings), process.link(settings)
        assert first is second
        first.listen(print)
        second.listen(print)
        first.unlisten(print)
        assert not opened[-1].closed.is_set()
        opened[-1].known = replace(Known(), answered=7)
        second.unlisten(print)
        assert opened[-1].closed.wait(30)
        assert second.known.answered == 7, "what a consumer that is being closed commits would not be looked at"
        assert process.link(settings) is not first
        process._process.links.clear()

    assert [link.listeners for link in opened] == [0, 0, 0]


def test_one_that_was_made_and_listens_only_now_has_a_link_that_is_open(opened: list[Opened]) -> None:
    link = process.link({"bootstrap.servers": "k:1", "oauth_cb": Provider().token_of})
    link.listen(print)
    opened[0].known = replace(Known(), answered=7)
    link.unlisten(print)
    link.listen(print)
    assert link.known.answered == 0, "an answer to somebody else's question"
    assert link.ask() == 1
    assert [each.closed.wait(30) if each is opened[0] else each.closed.is_set() for each in opened] == [True, False]


def test_other_links_last_as_long_as_the_process(opened: list[Opened]) -> None:
    link = process.link({"bootstrap.servers": "k:1"})
    link.listen(print)
    link.unlisten(print)
    assert process.link({"bootstrap.servers": "k:1"}) is link
    assert not opened[0].closed.is_set()


def test_what_cannot_be_compared_has_a_link_of_its_own() -> None:
    class Unhashable(Provider):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    one, other = Unhashable(), Unhashable()
    links = [process.link({"bootstrap.servers": "k:1", "oauth_cb": who}) for who in (one, one, other)]
    assert links[0] is links[1]
    assert links[0] is not links[2]


def test_consumers_of_a_pure_python_client_with_one_provider_share_a_link() -> None:
    opened: list[Mapping[str, Any]] = []

    def open_link(config: Mapping[str, Any]) -> Link:
        opened.append(config)
        return Unreachable()

    arguments = {**OAUTH, "sasl_oauth_token_provider": Provider()}
    loop = asyncio.new_event_loop()
    try:
        for _ in range(2):
            aiokafka._link(arguments, loop, open_link)
        for _ in range(2):
            kafka_python._link(arguments, open_link)
    finally:
        loop.close()

    assert opened[0] == opened[1]
    assert opened[2] == opened[3]
    assert hash(opened[0]["oauth_cb"]) == hash(opened[1]["oauth_cb"])
    assert process.link(opened[0]) is process.link(opened[1])
    assert process.link(opened[2]) is process.link(opened[3])
    assert process.link(opened[0]) is not process.link(opened[2])
