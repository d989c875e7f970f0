"""Completion: what is offered, in Cobra's protocol, and a real bash that asks for it."""

from __future__ import annotations

import io
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
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
    assert dict(offer(("audit",)).candidates)["audit"].startswith("report what is about to go wrong")


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
        (("mir",), ["mirror"]),
        (("mirror", ""), ["failback", "failover"]),
        (("mirror", "failo"), ["failover"]),
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
    assert screen.out.getvalue() == "--output\ttext for people (default), or json or yaml for programs\n:4\n"
    assert capsys.readouterr().out == "json\n:4\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_the_program(shell: str) -> None:
    screen = Screen(io.StringIO(), io.StringIO())

    assert run_completion([shell], screen) == 0

    assert isinstance(screen.out, io.StringIO)
    assert "tidegate __complete" in screen.out.getvalue()


LINES = [
    ("tidegate wh", "why"),
    ("tidegate why g --outp", "--output"),
    ("tidegate why g --output y", "yaml"),
    ("tidegate mirror failo", "failover"),
    ("tidegate why g --command-config cli", "client.properties"),
    ("tidegate why g --command-config=cli", "--command-config=client.properties"),
    ("tidegate why g --output=js", "--output=json"),
]
"""What is typed, and the word that becomes of its last one."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With `tidegate` in `PATH`, and a home where a shell has no settings."""
    program = tmp_path / "bin" / "tidegate"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidegate.cli.main "$@"\n')
    program.chmod(0o755)
    (tmp_path / "client.properties").touch()
    paths = {"PYTHONPATH": str(ROOT / "operator"), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    return os.environ | paths | {"HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "TERM": "xterm"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [("tidegate wh", "why"), ("tidegate why g --outp", "--output"), ("tidegate why g --output=js", "json")],
)
def test_bash_completes_a_line(line: str, expected: str, environment: dict[str, str]) -> None:
    words = line.replace("=", " = ").split()
    script = f"""
        source <(tidegate completion bash)
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
        COMP_CWORD={len(words) - 1}
        _tidegate
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """

    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=True)

    assert done.stdout.split() == [expected]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed here")
def test_fish_completes_a_line(environment: dict[str, str], tmp_path: Path) -> None:
    asked = "\n".join(f"complete -C '{line}'; echo ;" for line, _ in LINES)
    script = f"tidegate completion fish | source\n{asked}"

    done = subprocess.run(
        ["fish", "-c", script], capture_output=True, text=True, env=environment, cwd=tmp_path, check=True
    )

    assert [line.split("\t")[0] for line in done.stdout.split("\n") if line] == [word for _, word in LINES]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed here")
@pytest.mark.parametrize("autoloaded", [False, True])
def test_zsh_completes_a_line(environment: dict[str, str], tmp_path: Path, *, autoloaded: bool) -> None:
    """As it is typed in a terminal; `autoloaded`: with the script in a folder of `fpath`, from the first time on."""
    done = tmp_path / "done"
    source = "fpath=(~/functions $fpath)" if autoloaded else ""
    (tmp_path / ".zshrc").write_text(
        f"PS1=READY\n{source}\nautoload -Uz compinit\ncompinit -u\n"
        f"{'' if autoloaded else 'source <(tidegate completion zsh)'}\n"
        f'say() {{ print -r -- "$BUFFER" >> {done}; BUFFER= }}\nzle -N say\nbindkey "^Xp" say\n'
    )
    if autoloaded:
        (tmp_path / "functions").mkdir()
        script = Screen(io.StringIO(), io.StringIO())
        assert run_completion(["zsh"], script) == 0
        assert isinstance(script.out, io.StringIO)
        (tmp_path / "functions" / "_tidegate").write_text(script.out.getvalue())
    terminal, its = pty.openpty()
    with subprocess.Popen(
        ["zsh", "-i"], stdin=its, stdout=its, stderr=its, env=environment, cwd=tmp_path, start_new_session=True
    ) as shell:
        os.close(its)
        try:
            shown = read_until(terminal, lambda shown: b"READY" in shown)
            for number, (line, _) in enumerate(LINES, 1):
                os.write(terminal, f"{line}\t\x18p".encode())
                shown += read_until(terminal, lambda _, n=number: done.exists() and done.read_text().count("\n") == n)
        finally:
            shell.kill()
            os.close(terminal)

    assert [line.split()[-1] for line in done.read_text().splitlines()] == [word for _, word in LINES], shown


def read_until(terminal: int, reached: Callable[[bytes], bool]) -> bytes:
    """What a terminal shows until then, at most for half a minute."""
    shown, end = b"", time.monotonic() + 30
    while not reached(shown):
        assert time.monotonic() < end, shown
        ready, _, _ = select.select([terminal], [], [], 0.05)
        shown += os.read(terminal, 65536) if ready else b""
    return shown
