"""The tests' Java programs, compiled once against the broker's own jars, and the consumer process's command line."""

from __future__ import annotations

from pathlib import Path

from devstack import prerequisites
from devstack.java_clients import kafka_client
from devstack.toolcache import Build, kafka_libs, toolcache

_FOLDER = Path(__file__).resolve().parent.parent / "java"
_SOURCES = sorted(_FOLDER.glob("*.java"))
_LOGGING = _FOLDER / "log4j2.properties"


def java_classes() -> Path:
    """The folder of the compiled classes, in the cache. Raises devstack's errors where Java or the jars are missing."""
    libs = kafka_libs()

    def build(build: Build) -> None:
        prerequisites.java()
        build.run(["javac", "-d", str(build.folder), "-cp", f"{libs}/*", *map(str, _SOURCES)])

    return toolcache().artifact(
        "java-test-programs", [*_SOURCES, libs.name], build, label="the tests' Java programs", first_time="2 to 5 s"
    )


def java_command(members: int, client_version: str | None = None) -> list[str]:
    """The command, without its JSON argument, for a process with `members` consumers.

    `client_version`: of kafka-clients, if not the broker's own.
    """
    libs = kafka_libs() if client_version is None else kafka_client(client_version).folder()
    return [
        prerequisites.java().path,
        f"-Xmx{128 + 16 * members}m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f"-Dlog4j2.configurationFile={_LOGGING}",
        "-cp",
        f"{java_classes()}:{libs}/*",
        "ConsumerProcess",
    ]
