"""Consumers that reach their brokers in one way share a link, however often one is made: a link has threads and
connections of its own, and lasts as long as the process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tidegate_agent import process
from tidegate_agent.adapters import aiokafka, kafka_python
from tidegate_agent.adapters.consumer_gate import Link, Unreachable

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
