"""What the tests' Java applications run from: compiled, or packaged by Maven, and kept in the cache."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from devstack import prerequisites
from devstack.checksums import verify_jars
from devstack.java_clients import kafka_client, smallrye_messaging
from devstack.toolcache import MAVEN_COPY, Build, toolcache

APPLICATIONS: Final = Path(__file__).resolve().parents[1] / "agent" / "java" / "applications"
_DRIVEN: Final = APPLICATIONS / "driven" / "src" / "main" / "java" / "driven"
DRIVEN_MAIN: Final = "driven.DrivenApplication"
_QUARKUS: Final = APPLICATIONS / "quarkus"
_SMALLRYE: Final = APPLICATIONS / "smallrye" / "src" / "main" / "java" / "smallrye"
_CHANNEL: Final = APPLICATIONS / "channel"
"""What SmallRye's channels give their records to, in Quarkus or without it."""
_COMPILED_AGAINST: Final = "2.8.2"


def driven_classes() -> Path:
    """The folder of the compiled application. Raises devstack's errors where Java or the jars are missing."""
    sources = sorted(_DRIVEN.glob("*.java"))
    libs = kafka_client(_COMPILED_AGAINST).folder()

    def build(build: Build) -> None:
        _compile(build, 8, f"{libs}/*", sources)

    return toolcache().artifact(
        "driven-application", [*sources, libs.name], build, label="the driven Java application", first_time="2 to 5 s"
    )


def smallrye_classes() -> Path:
    """The folder of the compiled application over SmallRye. Raises devstack's errors."""
    sources = sorted([*_SMALLRYE.glob("*.java"), *_CHANNEL.rglob("*.java")])
    libs, driven = smallrye_messaging().folder(), driven_classes()

    def build(build: Build) -> None:
        _compile(build, 17, f"{driven}:{libs}/*", sources)

    made_from: list[Path | str] = [*sources, libs.name, driven.name]
    label = "the Java application over SmallRye"
    return toolcache().artifact("smallrye-application", made_from, build, label=label, first_time="2 to 5 s")


def _compile(build: Build, release: int, classes: str, sources: Sequence[Path]) -> None:
    prerequisites.java()
    # Annotations of libraries name classes that only their own builds have.
    lint = "-Xlint:all,-options,-classfile,-processing"
    javac = ["javac", "--release", str(release), lint, "-Werror", "-d", str(build.folder), "-proc:none"]
    build.run([*javac, "-cp", classes, *map(str, sources)])


def packaged() -> Path:
    """The folder of ``relocated.jar``, ``boot.jar`` and ``streams.jar``. Raises devstack's errors."""
    sums = APPLICATIONS / "jars.sha256"
    sources = sorted(
        path
        for path in APPLICATIONS.rglob("*")
        if path.suffix in (".java", ".xml") and not {_SMALLRYE, _CHANNEL, _QUARKUS} & {*path.parents}
    )

    def build(build: Build) -> None:
        with _sources() as copied:
            fetched = copied / "fetched"
            given = ["-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
            build.run([*_maven(copied), "package", MAVEN_COPY, *given])
            verify_jars(fetched, sums)
            for name in ("relocated", "boot", "streams"):
                shutil.copy(copied / name / "target" / f"{name}.jar", build.folder)

    made_from: list[Path | str] = [*sources, sums, MAVEN_COPY]
    label = "the packaged Java applications"
    return toolcache().artifact("java-applications", made_from, build, label=label, first_time="10 to 60 s")


def quarkus_application() -> Path:
    """The folder of ``quarkus-run.jar`` and what it runs. Raises devstack's errors."""
    sums = _QUARKUS / "jars.sha256"
    given = [path for folder in (_QUARKUS, _CHANNEL) for path in folder.rglob("*") if path.is_file()]
    driven = driven_classes()

    def build(build: Build) -> None:
        with _sources() as copied:
            build.run([*_maven(copied / "quarkus"), f"-Ddriven.classes={driven}", "package"])
            made = copied / "quarkus" / "target" / "quarkus-app"
            fetched = copied / "fetched"
            fetched.mkdir()
            for jar in made.glob("lib/*/*.jar"):
                shutil.copy(jar, fetched)
            verify_jars(fetched, sums)
            shutil.copytree(made, build.folder, dirs_exist_ok=True)

    made_from: list[Path | str] = [*sorted(given), APPLICATIONS / "pom.xml", driven.name]
    label = "the Java application packaged by Quarkus"
    return toolcache().artifact("quarkus-application", made_from, build, label=label, first_time="30 to 90 s")


@contextmanager
def _sources() -> Iterator[Path]:
    """A copy of the applications, to build in."""
    prerequisites.java()
    with tempfile.TemporaryDirectory(prefix="java-applications-") as copied:
        shutil.copytree(APPLICATIONS, copied, dirs_exist_ok=True)
        yield Path(copied)


def _maven(folder: Path) -> list[str]:
    return [prerequisites.maven().path, "-q", "-B", "-ntp", "-C", "-Dstyle.color=never", "-f", str(folder)]
