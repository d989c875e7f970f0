"""Whether gevent or eventlet has replaced a process's threads."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import tidegate_agent
from tidegate_agent import green_threads
from tidegate_agent.troubles import Troubles

AGENT = Path(tidegate_agent.__file__).parents[1]


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        ("pass", "None"),
        ("from gevent import monkey", "None"),
        ("from gevent import monkey; monkey.patch_all(thread=False)", "None"),
        ("from gevent import monkey; monkey.patch_all()", "gevent"),
    ],
)
def test_gevent_is_noticed_where_threads_are_its_own(done: str, expected: str) -> None:
    script = f"from tidegate_agent import green_threads; {done}; print(green_threads.whose())"
    environment = os.environ | {"PYTHONPATH": str(AGENT)}

    told = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)

    assert told.stdout.strip() == expected, told.stderr


def test_the_agent_keeps_out_of_eventlets_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(green_threads, "_troubles", Troubles())
    patched: set[str] = set()
    monkeypatch.setitem(sys.modules, "eventlet.patcher", SimpleNamespace(is_monkey_patched=patched.__contains__))
    assert not green_threads.keep_out()
    patched.add("thread")

    with caplog.at_level(logging.WARNING):
        assert green_threads.keep_out()
        assert green_threads.keep_out()

    [line] = caplog.messages
    assert line.startswith("eventlet has replaced this process's threads")
