"""A release tried as its users have it: installed from its files alone, with the tutorial played on it.

The tutorial's own shell commands run, in its order; what it says ``kubectl get`` prints has to be printed.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devstack import prerequisites
from devstack.apiserver import ApiServer
from devstack.errors import StackError
from devstack.kafka import KafkaCluster
from devstack.toolcache import Build, helm_binary, progress, toolcache

TUTORIAL: Final = Path("docs", "tutorials", "first-pause-and-reset.md")
_SECONDS: Final = 600


def try_release(made: Path, source: Path, version: str) -> None:
    """Install what is in `made`, and use it. `source` is the release's tree, whose Python code is not used.

    Raises `StackError` with what failed, and `MissingPrerequisiteError`.
    """
    log = toolcache().root / "logs" / "release-trial.log"
    log.write_text("")
    with tempfile.TemporaryDirectory(prefix="release-trial-", dir=toolcache().root / "tmp") as folder:
        build = Build(Path(folder), log)
        build.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=made)
        with progress("installing the release into an empty environment", "about 20 s"):
            venv = install(build, made, source)
        env = clean_environment(venv / "bin")
        _says(build, ["tidegate", "--version"], version, env)
        plugin = _plugin(build, made)
        _says(build, [str(plugin), "--version"], version, env)
        completing = plugin.resolve().with_name("kubectl_complete-tidegate")
        _says(build, [str(completing), "appr"], "approve\tlet that plan be applied\n:4", env)
        [jar] = made.glob("tidegate-java-agent-*.jar")
        build.run([prerequisites.java().path, f"-javaagent:{jar}", "-version"], env=env)
        with KafkaCluster.start() as kafka, ApiServer.start() as server:
            env |= {"KUBECONFIG": str(server.kubeconfig), "TIDEGATE_BOOTSTRAP": kafka.bootstrap}
            # Not only what starts: what speaks to Kafka is loaded by name, so it may not have been packed.
            build.run([str(plugin), "audit", "--bootstrap-server", kafka.bootstrap, "--watch", "1s"], env=env)
            build.run([str(plugin), "groups", "--bootstrap-server", kafka.bootstrap, "--list"], env=env)
            [crds] = made.glob("tidegate-crds-*.yaml")
            build.run(["kubectl", "apply", "--server-side", "-f", str(crds)], env=env)
            build.run(["kubectl", "wait", "--for=condition=Established", "-f", str(crds)], env=env)
            [chart] = made.glob(f"tidegate-{version}.tgz")
            install_chart = ["install", "tidegate", str(chart), "--dry-run=server", "--set", "crds.enabled=false"]
            build.run([str(helm_binary()), *install_chart], env=env)
            with progress("playing the tutorial on it", "about 60 s"):
                play(source / TUTORIAL, place(build, source, venv), env)


def install(build: Build, made: Path, source: Path) -> Path:
    """An environment with the wheels of operator and agent, and the packages that were tested with them."""
    venv = build.folder / "venv"
    uv = str(prerequisites.uv())
    build.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)])
    wheels = [str(wheel) for wheel in sorted(made.glob("*.whl"))]
    held = ["--constraints", str(source / "requirements.lock")]
    build.run([uv, "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), *held, *wheels])
    return venv


def place(build: Build, source: Path, venv: Path) -> Path:
    """A folder in which the tutorial can be played: with its application, and no code of Tidegate's."""
    folder = build.folder / "reader"
    application = Path("docs", "examples", "application")
    (folder / application).parent.mkdir(parents=True)
    (folder / application).symlink_to(source / application)
    (folder / ".venv").symlink_to(venv)
    return folder


def clean_environment(programs: Path) -> dict[str, str]:
    """Variables with which a folder's programs come first, and to which nothing of this tree leads."""
    left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "KUBECONFIG")
    kept = {
        name: value for name, value in os.environ.items() if name not in left_out and not name.startswith("TIDEGATE_")
    }
    return {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def _plugin(build: Build, made: Path) -> Path:
    """As Krew does it: unpacked into a folder, and called by a link elsewhere."""
    [archive] = made.glob("kubectl-tidegate-*.tar.gz")
    unpacked, linked = build.folder / "krew-store", build.folder / "kubectl-tidegate"
    unpacked.mkdir()
    build.run(["tar", "-xzf", str(archive), "-C", str(unpacked)])
    linked.symlink_to(unpacked / "kubectl-tidegate")
    return linked


def _says(build: Build, command: list[str], expected: str, env: Mapping[str, str]) -> None:
    said = subprocess.run(command, cwd=build.folder, env=dict(env), capture_output=True, text=True, check=False)
    if said.stdout.strip() != expected:
        raise StackError(f"`{shlex.join(command)}` says {said.stdout + said.stderr!r}, not {expected}")


@dataclass(frozen=True, slots=True)
class Block:
    """Shell commands of a document, and the table that it says they print, a line for each row."""

    line: int
    commands: str
    table: tuple[str, ...] = ()


def blocks(text: str) -> list[Block]:
    """A document's shell commands, without those of ``make``, which are about a clone and the stack."""
    found: list[Block] = []
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        language, content = match.groups()
        if language == "sh":
            lines = [line for line in content.splitlines() if not re.match(r'make |eval "\$\(make ', line)]
            if any(lines):
                found.append(Block(text.count("\n", 0, match.start()) + 1, "\n".join(lines) + "\n"))
        elif not language and found:
            found[-1] = Block(found[-1].line, found[-1].commands, tuple(content.splitlines()))
    return found


def play(document: Path, folder: Path, env: Mapping[str, str]) -> None:
    """Run a document's shell commands in `folder`, all in one shell, and compare the tables that they print.

    Raises `StackError` with the block that failed, or that printed another table.
    """
    played = blocks(document.read_text())
    outputs = folder / "printed"
    outputs.mkdir()
    script = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for number, block in enumerate(played):
        script.append(f"{{\n{block.commands}}} >{outputs / str(number)} 2>&1")
    command = ["bash", "-c", "\n".join(script)]
    try:
        done = subprocess.run(
            command, cwd=folder, env=dict(env), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise StackError(f"{document.name} did not end within {_SECONDS} s:\n{_last(outputs, played)}") from None
    if done.returncode != 0:
        raise StackError(f"{document.name} failed:\n{_last(outputs, played)}\n{done.stderr}")
    for number, block in enumerate(played):
        printed = (outputs / str(number)).read_text().splitlines()
        if block.table and not _same(block.table, printed[-len(block.table) :]):
            raise StackError(
                f"{document.name}:{block.line} printed another table:\n" + "\n".join(printed[-len(block.table) :])
            )


def _same(expected: tuple[str, ...], printed: list[str]) -> bool:
    """Whether two tables agree in all but their last column, the age, and the width of the columns."""
    return [line.split()[:-1] for line in expected] == [line.split()[:-1] for line in printed]


def _last(outputs: Path, played: list[Block]) -> str:
    """The block that ran last, and what it printed."""
    number = max((int(path.name) for path in outputs.iterdir()), default=0)
    printed = outputs / str(number)
    text = printed.read_text() if printed.exists() else ""
    return f"line {played[number].line}:\n{played[number].commands}printed:\n{text[-4000:]}"
