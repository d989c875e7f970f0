"""The tools that must be on the machine: found, or named in one line each with what to install."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from devstack.errors import MissingPrerequisiteError

JAVA_AT_LEAST = (17,)
MAVEN_AT_LEAST = (3, 6, 3)
GO_AT_LEAST = (1, 26, 0)
# From 1.21 on, go fetches the toolchain that a go.mod asks for by itself, unless GOTOOLCHAIN=local forbids it.
GO_THAT_UPGRADES_ITSELF = (1, 21, 0)


@dataclass(frozen=True, slots=True)
class Tool:
    """A program found on the machine, in a version that will do."""

    path: str
    version: tuple[int, ...]


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def _version(text: str, pattern: str) -> tuple[int, ...]:
    found = re.search(pattern, text)
    return tuple(int(part) for part in found.group(1).split(".") if part.isdigit()) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _checked(
    name: str, path: str | None, version: tuple[int, ...], at_least: tuple[int, ...], purpose: str, install: str
) -> Tool:
    wanted = f"{name} >= {_dotted(at_least)}"
    if path is None or not version:
        raise MissingPrerequisiteError(f"missing: {wanted} ({purpose}); install it: {install}")
    if version < at_least:
        raise MissingPrerequisiteError(
            f"too old: {path} is {name} {_dotted(version)}, needed is {wanted} ({purpose}); install it: {install}"
        )
    return Tool(path, version)


def linux() -> None:
    """Refuse other systems: the stack's processes are watched through Linux's pidfd and /proc."""
    if sys.platform != "linux":
        raise MissingPrerequisiteError(f"missing: Linux (this is {sys.platform}); run it in a Linux VM or container")


def java() -> Tool:
    """Java of ``JAVA_HOME``, or else of ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    in_home = Path(home, "bin", "java") if home else None
    path = str(in_home) if in_home and in_home.is_file() else shutil.which("java")
    version = _version(_output([path, "-version"]), r'version "(\d+(?:\.\d+)*)') if path else ()
    return _checked(
        "Java", path, version, JAVA_AT_LEAST, "runs Kafka and Spark", "e.g. apt-get install openjdk-17-jre-headless"
    )


def maven() -> Tool:
    """Maven, which fetches the jars of Kafka and of the Spark connector."""
    path = shutil.which("mvn")
    version = _version(_output([path, "-v"]), r"Apache Maven (\d+(?:\.\d+)*)") if path else ()
    return _checked("Maven", path, version, MAVEN_AT_LEAST, "fetches Kafka's jars", "e.g. apt-get install maven")


def go() -> Tool:
    """Go, which builds etcd and kube-apiserver."""
    path = shutil.which("go")
    version = _version(_output([path, "version"]), r"go(\d+(?:\.\d+)*)") if path else ()
    fixed = path is None or _output([path, "env", "GOTOOLCHAIN"]).strip() == "local"
    at_least = GO_AT_LEAST if fixed else GO_THAT_UPGRADES_ITSELF
    return _checked("Go", path, version, at_least, "builds etcd and kube-apiserver", "see https://go.dev/doc/install")


def openssl() -> Tool:
    """OpenSSL, which makes the certificates of one run."""
    path = shutil.which("openssl")
    version = _version(_output([path, "version"]), r"(?:OpenSSL|LibreSSL) (\d+(?:\.\d+)*)") if path else ()
    return _checked("OpenSSL", path, version, (1, 1), "makes test certificates", "e.g. apt-get install openssl")


def missing() -> list[str]:
    """One line for each prerequisite that is not there; empty when all are."""
    lines: list[str] = []
    checks: tuple[Callable[[], object], ...] = (linux, java, maven, go, openssl)
    for check in checks:
        try:
            check()
        except MissingPrerequisiteError as error:
            lines.append(str(error))
    return lines
