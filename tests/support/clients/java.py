"""The Java consumer process: compiled once against the broker's own jars, and its command line."""

from __future__ import annotations

from pathlib import Path

from devstack import prerequisites
from devstack.toolcache import Build, kafka_libs, toolcache

SOURCE = Path(__file__).resolve().parent.parent / "java" / "ConsumerProcess.java"
_LOGGING = SOURCE.parent / "log4j2.properties"


def java_classes() -> Path:
    """The folder of the compiled class, in the cache. Raises devstack's errors when Java or the jars cannot be had."""
    libs = kafka_libs()

    def build(build: Build) -> None:
        prerequisites.java()
        build.run(["javac", "-d", str(build.folder), "-cp", f"{libs}/*", str(SOURCE)])

    return toolcache().artifact(
        "consumer-process", [SOURCE, libs.name], build, label="the Java test consumer", first_time="2 to 5 s"
    )


def java_command(members: int) -> list[str]:
    """The command, without its JSON argument, for a process with `members` consumers."""
    return [
        prerequisites.java().path,
        f"-Xmx{128 + 16 * members}m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f"-Dlog4j2.configurationFile={_LOGGING}",
        "-cp",
        f"{java_classes()}:{kafka_libs()}/*",
        "ConsumerProcess",
    ]
