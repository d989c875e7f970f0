"""Whether gevent or eventlet has replaced a process's threads."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

import tidegate_agent
from tidegate_agent import green_threads
from tidegate_agent.start import Rule, Start
from tidegate_agent.troubles import Troubles

AGENT = Path(tidegate_agent.__file__).parents[1]
RULE = Rule(Start.EARLIEST, 1000)


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
    assert not green_threads.keep_out(RULE)
    patched.add("thread")

    with caplog.at_level(logging.WARNING):
        assert green_threads.keep_out(None)
        assert [line.partition(",")[0] for line in caplog.messages] == ["eventlet has replaced this process's threads"]
        assert green_threads.keep_out(RULE)
        assert green_threads.keep_out(RULE)

    [_, line] = caplog.messages
    assert line.startswith("auto.offset.reset.latest.max.age and auto.offset.reset.new.partitions have no effect")


def _other(_module: str, _more: object) -> bool:
    return True


def _fails(_module: str) -> bool:
    raise KeyError("saved")


@pytest.mark.parametrize(
    "module",
    [
        None,
        SimpleNamespace(),
        SimpleNamespace(is_module_patched=MagicMock()),
        SimpleNamespace(is_module_patched=_other),
        SimpleNamespace(is_module_patched=_fails),
    ],
    ids=["none", "half imported", "a mock", "another module", "failing"],
)
def test_what_is_not_gevent_or_not_yet_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    monkeypatch.setitem(sys.modules, "gevent.monkey", module)

    assert green_threads.whose() is None
