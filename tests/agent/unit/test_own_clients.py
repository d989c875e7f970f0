"""The clients of a link's own: how they are made while others use the link."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tidegate_agent.control import ControlLink
from tidegate_agent.own_clients import OwnClients

WITHIN_S = 20.0


class Ending:
    """A client whose end waits for a thread, and that for the lock."""

    def __init__(self, changed: threading.Condition, ends: list[bool]) -> None:
        self._changed, self._ends = changed, ends

    def __del__(self) -> None:
        def look() -> None:
            self._ends.append(self._changed.acquire(timeout=1.0))
            if self._ends[-1]:
                self._changed.release()

        looking = threading.Thread(target=look)
        looking.start()
        looking.join()


def test_a_client_that_another_one_follows_ends_without_the_lock() -> None:
    changed = threading.Condition()
    ends: list[bool] = []
    clients = OwnClients({}, changed)
    clients.make("keeper", lambda _settings: Ending(changed, ends))

    clients.make("keeper", lambda _settings: object())

    assert ends == [True]


def test_a_fork_waits_for_a_client_that_is_being_made() -> None:
    link = ControlLink({}, "__tidegate", "__tidegate_acks")
    settled: list[bool] = []

    def build(_settings: dict[str, Any]) -> object:
        settled.append(link._is_settled())
        return object()

    link._clients.make("keeper", build)

    assert (settled, link._is_settled()) == ([False], True)


def test_threads_that_cannot_be_started_are_at_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a process has as many as it may have."""
    link = ControlLink({}, "__tidegate", "__tidegate_acks")
    begun = threading.Event()

    def work() -> None:
        begun.set()
        link._rest(WITHIN_S)

    monkeypatch.setattr(link, "_keep", work)
    monkeypatch.setattr(link, "_read", work)
    start = threading.Thread.start

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    link.ask()
    assert link._threads == []
    monkeypatch.setattr(threading.Thread, "start", start)

    link.ask()

    assert begun.wait(WITHIN_S)
    assert len(link._threads) == 2
    link.close()


def test_one_that_cannot_be_made_is_not_waited_for() -> None:
    clients = OwnClients({}, threading.Condition())

    def build(_settings: dict[str, Any]) -> object:
        raise ValueError("no such setting")

    with pytest.raises(ValueError, match="no such setting"):
        clients.make("keeper", build)

    assert clients.being_made == 0
