"""Where the event loop that an application's consumer is in gives the tokens, nothing of the agent may make it wait: a
client of librdkafka waits for its first token where it is made.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tidegate_agent.ack_writer import AckWriter
from tidegate_agent.adapters import aiokafka
from tidegate_agent.adapters.client_settings import OAuth
from tidegate_agent.control import ControlLink
from tidegate_agent.gates import Partition
from tidegate_agent.own_clients import OwnClients
from tidegate_agent.time_outs import TIME_OUTS
from tidegate_agent.troubles import Troubles

WITHIN_S = 20.0


class Tokens:
    """An application's provider; ``meanwhile`` is what its loop does as well before it has the token."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._meanwhile = meanwhile

    async def token(self) -> str:
        self._meanwhile()
        return "token"


class Given:
    """What became of each time that librdkafka asked for a token, from whichever thread."""

    def __init__(self, provider: Tokens, loop: asyncio.AbstractEventLoop) -> None:
        self._ask = aiokafka._Token(provider, loop)
        self._loop = loop
        self.outcomes: list[str] = []
        self.one = threading.Event()

    def __call__(self) -> str:
        if self._loop.is_closed():
            raise RuntimeError("the test is over, and its client goes on asking")
        try:
            token = self._ask()
            self.outcomes.append("given")
            return token
        except TIME_OUTS:
            self.outcomes.append("late")
            raise
        finally:
            self.one.set()


def settings(tokens: Given) -> dict[str, Any]:
    return {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": OAuth(tokens, time.time),
    }


@pytest.fixture(autouse=True)
def _soon_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiokafka, "TOKEN_S", 3.0)


def test_a_loop_that_is_closed_gives_no_token_and_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    loop = asyncio.new_event_loop()
    loop.close()

    with pytest.raises(RuntimeError, match="closed"):
        aiokafka._Token(Tokens(), loop)()
    gc.collect()

    assert not [str(warning.message) for warning in recwarn]


def test_acks_may_be_sent_from_the_loop() -> None:
    async def scene() -> tuple[list[str], list[bool]]:
        tokens = Given(Tokens(), asyncio.get_running_loop())
        changed = threading.Condition()
        writer = AckWriter(OwnClients(settings(tokens), changed), "acks", changed, Troubles())
        answers: list[bool] = []
        writer.send("g", "m", {Partition("orders", 0): (1, 2)}, lambda: True, answers.append)
        assert await asyncio.to_thread(tokens.one.wait, WITHIN_S)
        return tokens.outcomes, answers

    assert asyncio.run(scene()) == (["given"], [])


def test_questions_may_be_asked_from_the_loop() -> None:
    async def scene() -> str:
        link: ControlLink
        tokens = Given(Tokens(lambda: link.ask(())), asyncio.get_running_loop())
        link = ControlLink(settings(tokens), "__tidegate", "__tidegate_acks")
        link.ask()
        assert await asyncio.to_thread(tokens.one.wait, WITHIN_S)
        await asyncio.to_thread(link.close)
        return tokens.outcomes[0]

    assert asyncio.run(scene()) == "given"
