"""What a command has to make before its first run: told at once, with how long it takes, then made side by side.

Standard library only, since the project's Python environment is one of the things that may have to be made.
"""

import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devstack import prerequisites, tools
from devstack.errors import MissingPrerequisiteError, StackError
from devstack.toolcache import DEV, Tool, progress, say, time_span

PROJECT: Final = DEV.parent
ENVIRONMENT_SECONDS: Final = (60, 180)
_ENVIRONMENT_FROM: Final = ("requirements.lock", "pyproject.toml", "agents/python/pyproject.toml")


@dataclass(frozen=True, slots=True)
class Command:
    """A command that needs preparation: what it does once all is there, and its tools."""

    name: str
    does: str
    tools: tuple[Tool, ...]


COMMANDS: Final = {
    command.name: command
    for command in (
        Command(
            "demo",
            "The demo starts a Kafka broker and a Kubernetes API server on this machine, and resets the offsets of a\n"
            "live consumer group. It takes about 3 min, and ends all that it has started.",
            tools.DEMO,
        ),
        Command("test", "The tests start what they need on this machine, and end it.", tools.TEST),
    )
}


@dataclass(frozen=True, slots=True)
class Step:
    """Something to make. Steps of one `lane` are made one after the other, lanes side by side."""

    label: str
    lane: str
    seconds: tuple[int, int]
    make: Callable[[], object]


def steps(command: Command, project: Path = PROJECT) -> tuple[Step, ...]:
    """What is not there yet."""
    found = [Step(tool.label, tool.made_by, tool.seconds, tool.folder) for tool in command.tools if not tool.is_there]
    if not environment_is_current(project):
        found.insert(
            0, Step("Python packages in .venv", "Python", ENVIRONMENT_SECONDS, lambda: make_environment(project))
        )
    return tuple(found)


def environment_is_current(project: Path) -> bool:
    """Whether ``make setup`` has nothing to do: by the same files and times as in the Makefile."""
    synced = project / ".venv" / ".synced"
    if not synced.exists():
        return False
    made = synced.stat().st_mtime_ns
    return all((project / name).stat().st_mtime_ns <= made for name in _ENVIRONMENT_FROM)


def make_environment(project: Path) -> None:
    """``make setup``. Raises `StackError` with what it says."""
    with progress("installing Python packages", f"{time_span(*ENVIRONMENT_SECONDS)} the first time"):
        done = subprocess.run(
            [os.environ.get("MAKE", "make"), "--no-print-directory", "-C", str(project), "setup"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise StackError(f"the Python packages could not be installed:\n{done.stdout.strip()}")


def expected_seconds(wanted: Sequence[Step]) -> tuple[int, int]:
    """How long all take, at least and at most.

    At least: as long as the longest lane. At most: that lane, and half of the others, which take cores from it.
    """
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    for step in wanted:
        least[step.lane] = least.get(step.lane, 0) + step.seconds[0]
        most[step.lane] = most.get(step.lane, 0) + step.seconds[1]
    longest = max(most.values())
    return max(least.values()), longest + (sum(most.values()) - longest) // 2


def announcement(command: Command, wanted: Sequence[Step]) -> str:
    """What will happen, and how long it takes."""
    if not wanted:
        return f"Everything is there. {command.does}"
    lines = [f"To be made first, once, in about {time_span(*expected_seconds(wanted))} on two cores:"]
    lines += [f"  {step.label} ({time_span(*step.seconds)})" for step in wanted]
    return "\n".join([*lines, command.does])


def prepare(command: Command, project: Path = PROJECT) -> None:
    """Say what will happen, then make what is not there.

    Raises `MissingPrerequisiteError` before anything is made, and `StackError` with what went wrong in each lane.
    """
    wanted = steps(command, project)
    say(announcement(command, wanted))
    if any(step.lane != "Python" for step in wanted) and (lines := prerequisites.missing()):
        raise MissingPrerequisiteError("\n".join(lines))
    make(wanted)


def make(wanted: Sequence[Step]) -> None:
    """Make them, lanes side by side. After a failure no further step begins.

    Raises `StackError` with all that failed.
    """
    lanes: dict[str, list[Step]] = {}
    for step in wanted:
        lanes.setdefault(step.lane, []).append(step)
    failures: list[str] = []
    failed = threading.Event()

    def work(lane: list[Step]) -> None:
        for step in lane:
            if failed.is_set():
                return
            try:
                step.make()
            except StackError as error:
                failures.append(str(error))
                failed.set()
                if len(lanes) > 1:
                    say(f"{step.label} failed; what is being made beside it comes to its end first")

    with ThreadPoolExecutor(max(1, len(lanes))) as pool:
        for future in [pool.submit(work, lane) for lane in lanes.values()]:
            future.result()
    if failures:
        raise StackError("\n".join(failures))
