"""What a command has to make first is told at once, and made side by side; what fails is told with its reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from devstack import tools
from devstack.errors import StackError
from devstack.preparation import (
    COMMANDS,
    Step,
    announcement,
    environment_is_current,
    expected_seconds,
    make,
    make_environment,
    steps,
)
from devstack.toolcache import Tool, time_span, toolcache

PROJECT = Path(__file__).resolve().parents[2]
STACK = PROJECT / "dev" / "stack.py"
SOURCES = ("requirements.lock", "pyproject.toml", "agents/python/pyproject.toml")
SPAN = (10, 30)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose Python environment is current."""
    (tmp_path / "agents" / "python").mkdir(parents=True)
    (tmp_path / ".venv").mkdir()
    for number, name in enumerate((*SOURCES, ".venv/.synced")):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (1000 + number, 1000 + number))
    return tmp_path


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))


def make_there(*made: Tool) -> None:
    """As if these had been made."""
    for tool in made:
        toolcache().artifact(tool.name, tool.made_from, lambda _: None, label=tool.label, first_time="a moment")


def test_the_demo_needs_neither_helm_nor_what_a_node_needs() -> None:
    assert [tool.name for tool in tools.DEMO] == [
        *("kafka-4.3.1", "spark-kafka-connector", "java-agent", "etcd", "kube-apiserver"),
    ]


@pytest.mark.usefixtures("empty_cache")
def test_what_is_not_there_is_told_with_how_long_it_takes(project: Path) -> None:
    (project / ".venv" / ".synced").unlink()

    told = announcement(COMMANDS["demo"], steps(COMMANDS["demo"], project)).splitlines()

    assert told[0] == "To be made first, once, in about 4 to 8 min on two cores:"
    assert [line.split(" (")[0].split()[0] for line in told[1:7]] == [
        *("Python", "Kafka", "Spark-Kafka", "the", "etcd", "kube-apiserver"),
    ]
    assert told[6].endswith(" (3 to 4 min)")
    assert told[7].startswith("The demo starts")


@pytest.mark.usefixtures("empty_cache")
def test_what_is_there_is_not_made_again(project: Path) -> None:
    make_there(tools.KAFKA, tools.KUBE_APISERVER)
    assert [step.label.split()[0] for step in steps(COMMANDS["demo"], project)] == ["Spark-Kafka", "the", "etcd"]

    make_there(tools.SPARK_CONNECTOR, tools.JAVA_AGENT, tools.ETCD)
    assert announcement(COMMANDS["demo"], steps(COMMANDS["demo"], project)).startswith("Everything is there. The demo")


def test_the_environment_is_made_anew_when_what_it_is_made_from_changes(project: Path) -> None:
    assert environment_is_current(project)
    for name in SOURCES:
        before = (project / name).stat().st_mtime
        os.utime(project / name, (2000, 2000))
        assert not environment_is_current(project), name
        os.utime(project / name, (before, before))
    assert environment_is_current(project)


def test_the_environment_is_made_from_the_files_that_the_makefile_names() -> None:
    rule = re.search(r"^\$\(VENV\)/\.synced: (.*?) \|", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    assert rule is not None
    assert tuple(rule.group(1).split()) == SOURCES


def test_what_make_starts_may_keep_what_python_compiles() -> None:
    """Also where the machine says otherwise, as images that build containers do."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-s", "-C", str(PROJECT), "--eval", "told: ; @env", "told"]
    told = subprocess.run(
        command, env={**surroundings, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, check=True
    ).stdout
    assert "PATH=" in told
    assert "PYTHONDONTWRITEBYTECODE" not in told


def test_an_environment_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("setup:\n\t@echo no route to the index >&2; exit 7\n")

    with pytest.raises(StackError, match=r"Python packages could not be installed:\nno route to the index\n"):
        make_environment(tmp_path)


def test_lanes_are_worked_side_by_side_and_a_lanes_steps_in_order() -> None:
    made: list[str] = []
    other_began = {name: threading.Event() for name in ("Maven", "Go")}

    def first(lane: str, other: str) -> None:
        other_began[lane].set()
        assert other_began[other].wait(30), "the other lane waits for this one"
        made.append(f"{lane} 1")

    make(
        [
            Step("jars", "Maven", SPAN, lambda: first("Maven", "Go")),
            Step("etcd", "Go", SPAN, lambda: first("Go", "Maven")),
            Step("kube-apiserver", "Go", SPAN, lambda: made.append("Go 2")),
        ]
    )

    assert sorted(made) == ["Go 1", "Go 2", "Maven 1"]
    assert made.index("Go 1") < made.index("Go 2")


def test_after_a_failure_nothing_more_begins_and_every_reason_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    failed, begun = threading.Event(), threading.Event()
    made: list[str] = []

    def jars() -> None:
        assert begun.wait(30)
        failed.set()
        raise StackError("no network for jars")

    def etcd() -> None:
        begun.set()
        assert failed.wait(30)
        raise StackError("no space for etcd")

    with pytest.raises(StackError) as caught:
        make(
            [
                Step("jars", "Maven", SPAN, jars),
                Step("more jars", "Maven", SPAN, lambda: made.append("more jars")),
                Step("etcd", "Go", SPAN, etcd),
                Step("kube-apiserver", "Go", SPAN, lambda: made.append("kube-apiserver")),
            ]
        )

    assert sorted(str(caught.value).splitlines()) == ["no network for jars", "no space for etcd"]
    assert made == []
    assert "jars failed; what is being made beside it comes to its end first" in capfd.readouterr().err


def test_lanes_share_the_time_they_take() -> None:
    wanted = [
        Step("packages", "Python", (60, 180), print),
        Step("jars", "Maven", (10, 60), print),
        Step("etcd", "Go", (30, 60), print),
        Step("kube-apiserver", "Go", (180, 240), print),
    ]

    assert expected_seconds(wanted) == (210, 300 + (180 + 60) // 2)
    assert expected_seconds(wanted[:1]) == (60, 180)


@pytest.mark.parametrize(
    ("least", "most", "said"),
    [
        (5, 30, "5 to 30 s"),
        (10, 60, "10 s to 1 min"),
        (40, 80, "40 s to 2 min"),
        (180, 240, "3 to 4 min"),
        (210, 420, "4 to 7 min"),
        (61, 120, "2 min"),
    ],
)
def test_a_span_of_time_is_said_as_people_say_it(least: int, most: int, said: str) -> None:
    assert time_span(least, most) == said


def test_it_is_told_what_will_happen_before_what_is_missing_is_looked_for(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "TIDEGATE_CACHE": str(tmp_path), "HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, STACK, "prepare", "demo"], env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    told, _, missing = done.stderr.partition("missing: Java >= 17")
    assert told.startswith("To be made first, once, in about ")
    assert "kube-apiserver" in told
    assert "install it: " in missing
    assert not (tmp_path / "tools").exists()
