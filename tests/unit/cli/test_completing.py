"""Completion: what is offered, in Cobra's protocol, and a real bash that asks for it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.cli.commands import COMMANDS
from tidegate.cli.completing import FILES, NO_FILES, complete, offer, run_completion
from tidegate.cli.main import main
from tidegate.cli.screen import Screen

ROOT = Path(__file__).resolve().parents[3]


def offered(*words: str) -> list[str]:
    return [text for text, _ in offer(words).candidates]


def test_commands_are_offered_first() -> None:
    assert {c.words[0] for c in COMMANDS} | {"groups", "--help", "--version"} == set(offered(""))
    assert offered("a") == ["acls", "approve", "audit"]
    assert offered("nonsense", "") == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("why", "g", "--out"), ["--output"]),
        (("why", "g", "--output", ""), ["text", "json", "yaml"]),
        (("why", "g", "-o", "y"), ["yaml"]),
        (("why", "g", "--output=j"), ["--output=json"]),
        (("why", "g", "--output", "=", "j"), ["json"]),
        (("why", "g", "--output", "json", "--out"), []),
        (("groups", "--group", "a", "--gr"), ["--group"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("audit", ""), ["log"]),
        (("audit", "log", "--foll"), ["--follow"]),
        (("audit", "--fol"), []),
        (("why", ""), []),
    ],
)
def test_what_may_come_next(words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*words) == expected


def test_files_are_completed_where_one_is_asked_for() -> None:
    assert offer(["why", "g", "--command-config", ""]).directive == FILES
    assert offer(["why", "g", "--connection", ""]).directive == NO_FILES


def test_every_command_can_be_completed_and_tells_its_options() -> None:
    for command in COMMANDS:
        assert "--help" in offered(*command.words, "--"), command.words
        assert command.parser().prog == f"tidegate {' '.join(command.words)}"


def test_the_protocol_is_cobras(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(io.StringIO(), io.StringIO())

    assert complete(["why", "g", "--outp"], screen) == 0
    assert main(["__complete", "plan", "x", "--output", "j"]) == 0

    assert isinstance(screen.out, io.StringIO)
    assert screen.out.getvalue() == "--output\tfor a person, or for programs\n:4\n"
    assert capsys.readouterr().out == "json\n:4\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_the_program(shell: str) -> None:
    screen = Screen(io.StringIO(), io.StringIO())

    assert run_completion([shell], screen) == 0

    assert isinstance(screen.out, io.StringIO)
    assert "tidegate __complete" in screen.out.getvalue()


@pytest.mark.parametrize(
    ("line", "expected"),
    [("tidegate wh", "why"), ("tidegate why g --outp", "--output"), ("tidegate why g --output=js", "json")],
)
def test_bash_completes_a_line(line: str, expected: str, tmp_path: Path) -> None:
    program = tmp_path / "tidegate"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidegate.cli.main "$@"\n')
    program.chmod(0o755)
    words = line.replace("=", " = ").split()
    script = f"""
        source <(tidegate completion bash)
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
        COMP_CWORD={len(words) - 1}
        _tidegate
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT / "operator"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=True)

    assert done.stdout.split() == [expected]
