"""What is shown while a command waits: drawn anew on a terminal that can do so, lines for everybody else."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.fake_kafka import FakeClock
from tidegate.cli.following import follow, pause_step, reset_step
from tidegate.cli.progress import Row, is_live
from tidegate.cli.screen import Screen
from tidegate.kube.ports import RESETS
from unit.cli.test_incident_commands import RESET, Story, condition, status

ESCAPE = "\x1b"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "live"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_lines_are_drawn_anew_only_where_that_is_understood(environment: dict[str, str], live: bool) -> None:
    assert is_live(Terminal(), environment) is live
    assert not is_live(io.StringIO(), environment)


def fleet(done: int) -> dict[str, Any]:
    return status("Applying", condition("Complete", "Unknown", f"{done} of 3"), fleet={"groups": 3, "reset": done})


PLANNING = status("Planning", condition("Complete", "Unknown", "it is planned"))
DONE = status("Succeeded", condition("Complete", "True", "3 groups reset\x1b[2J"))


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": ""}])
def test_no_escape_goes_to_who_has_not_asked_for_any(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    err = Terminal()
    kube = Story(RESETS, RESET, PLANNING, fleet(1), fleet(2), DONE)
    assert follow(kube, RESETS, kube.made, reset_step, FakeClock(), 60, Screen(io.StringIO(), err))
    assert err.getvalue().splitlines() == [
        "Planning: it is planned",
        "Applying: 1 of 3",
        "Applying: 2 of 3",
        "Succeeded: 3 groups reset\\x1b[2J",
    ]


def test_on_a_terminal_the_last_of_each_phase_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    err = Terminal()
    kube = Story(RESETS, RESET, PLANNING, fleet(1), fleet(2), DONE)
    assert follow(kube, RESETS, kube.made, reset_step, FakeClock(), 60, Screen(io.StringIO(), err))

    drawn = err.getvalue()
    assert ESCAPE in drawn
    text = ANSI.sub("", drawn).replace("\r", "\n")
    stays = [line for line in text.splitlines() if re.match(r"(Planning|Applying|Succeeded): ", line)]
    assert stays == ["Planning: it is planned", "Applying: 2 of 3", "Succeeded: 3 groups reset\\x1b[2J"]
    assert f"{ESCAPE}[2J" not in drawn, "what a resource says drives no terminal"


def test_a_fleet_and_a_pause_say_how_far_they_are() -> None:
    search = {"recordsRead": 40, "recordsTotal": 100, "recordsPerSecond": 7, "percent": 40}
    rows = [
        {"topic": topic, "partition": n, "phase": phase}
        for topic, n, phase in (("b", 0, "Paused"), ("a", 0, "Paused"), ("a", 1, "Pausing"))
    ]
    pausing = {"metadata": {"generation": 1}, "status": {"phase": "Pausing", "partitions": rows}}
    many = {"phase": "Pausing", "partitions": rows, "partitionsOmitted": 9, "partitionsPaused": 2}
    assert reset_step({"status": fleet(2)}).rows == (Row("groups", 2, 3),)
    assert reset_step({"status": {**PLANNING, "search": search}}).rows == (Row("records", 40, 100),)
    assert reset_step({"status": PLANNING}).rows == ()
    assert pause_step(with_generation(pausing)).rows == (Row("a", 1, 2), Row("b", 1, 1))
    assert pause_step(with_generation({**pausing, "status": {**many, "partitionsTotal": 12}})).rows == (
        Row("partitions", 2, 12),
    )


def with_generation(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "status": {**body["status"], "observedGeneration": 1}}


SCRIPT = """
import sys
from tidegate.cli.progress import Row, shown
from tidegate.cli.screen import Screen
import os
with shown(Screen(sys.stdout, sys.stderr), os.environ) as progress:
    progress.tell("Pausing: 1 of 2", [Row("orders", 1, 2)])
print("rich" in sys.modules)
"""


@pytest.mark.parametrize(("on_terminal", "imports"), [(True, "True"), (False, "False")])
def test_rich_is_imported_for_a_terminal_only(on_terminal: bool, imports: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "operator"), "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    ours, theirs = pty.openpty()
    try:
        err = theirs if on_terminal else subprocess.DEVNULL
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            stdout=subprocess.PIPE,
            stderr=err,
            env=environment,
            text=True,
            timeout=60,
            check=False,
        )
        drawn = os.read(ours, 65536).decode() if on_terminal else ""
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, done.stdout.strip()) == (0, imports)
    assert ("Pausing  orders" in drawn and "1/2" in drawn) is on_terminal
