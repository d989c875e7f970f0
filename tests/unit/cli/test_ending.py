"""How commands end that are interrupted, or whose output nobody takes: in a process of their own, by real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import tidegate

OPERATOR: Final = Path(tidegate.__file__).resolve().parents[1]

PROPERTIES: Final = """\
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.certificates=-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----
"""

ENDED: Final = """
import os, pathlib, sys, tempfile
from tidegate.cli import topics
from tidegate.cli.main import main

class Ended:
    def __init__(self, connection):
        print("secrets", len(list(pathlib.Path(tempfile.gettempdir()).glob("tidegate-*/*"))), flush=True)
        os.kill(os.getpid(), int(sys.argv[1]))

    def topics(self):
        raise SystemExit(7)

    def close(self):
        pass

topics.KafkaClient = Ended
sys.exit(main(["topics", "--bootstrap-server", "k:1", "--describe", "--command-config", sys.argv[2]]))
"""

CALLED: Final = "import sys; from tidegate.cli.main import main; sys.exit(main(sys.argv[1:]))"


def as_by_a_shell() -> None:
    """Whoever runs the tests may ignore signals, as ``nohup`` and what a script puts into the background do."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def run(script: str, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(OPERATOR)} | more.pop("env", {})
    given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 60}
    given |= {"preexec_fn": as_by_a_shell} | more
    return subprocess.run([sys.executable, "-c", script, *arguments], check=False, env=environment, **given)


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "client.properties").write_text(PROPERTIES)
    (tmp_path / "files").mkdir()
    return str(tmp_path / "client.properties")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_no_secret_stays_in_a_file_where_a_command_is_ended(config: str, tmp_path: Path, number: int) -> None:
    done = run(ENDED, str(int(number)), config, env={"TMPDIR": str(tmp_path / "files")})

    assert done.stdout == "secrets 1\n", done.stderr
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")
    assert list((tmp_path / "files").iterdir()) == []


def test_what_is_started_by_nohup_goes_on_when_its_terminal_is_closed(config: str, tmp_path: Path) -> None:
    def nohup() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    done = run(ENDED, str(int(signal.SIGHUP)), config, env={"TMPDIR": str(tmp_path / "files")}, preexec_fn=nohup)

    assert done.returncode == 7, done.stderr


@pytest.mark.parametrize(
    ("command", "unbuffered"), [("--help", ""), ("--help", "1"), ("groups --help", ""), ("completion bash", "1")]
)
def test_a_reader_that_is_gone_gets_no_traceback_and_the_code_of_a_pipe(command: str, unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(CALLED, *command.split(), stdout=writing, env={"PYTHONUNBUFFERED": unbuffered})
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_was_not_written_is_no_success(unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = run(CALLED, "--help", stdout=full, env={"PYTHONUNBUFFERED": unbuffered})

    assert (done.returncode, done.stderr) == (1, "tidegate: the output could not be written: No space left on device\n")


def test_a_command_needs_no_standard_output() -> None:
    done = run(CALLED, "--version", preexec_fn=lambda: os.close(1), stdout=None)

    assert (done.returncode, done.stderr) == (0, "")


POLICY: Final = """\
kind: OffsetResetPolicy
metadata: {name: keep}
spec: {connectionRef: {name: prod}, group: grün, latest: {maxAge: 1h}}
"""


def test_a_name_is_not_given_to_a_script_as_another_one(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")

    done = run(CALLED, "env", "keep", "-f", str(tmp_path / "policy.yaml"), env={"PYTHONIOENCODING": "ascii"})

    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "tidegate: '\\xfc' can't be written to standard output, because its encoding is ascii: use UTF-8\n"
    )
