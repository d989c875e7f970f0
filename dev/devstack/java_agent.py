"""The Java agent: built, checked and tested by Maven, beside the tree; kept in the cache until something changes."""

import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from devstack import prerequisites
from devstack.checksums import verify_jars
from devstack.errors import StackError
from devstack.toolcache import DEV, MAVEN_COPY, Build, Tool

SOURCE: Final = DEV.parent / "agents" / "java"
CONTRACT: Final = DEV.parent / "agents" / "contract"
_SUMS: Final = SOURCE / "jars.sha256"
_VECTORS: Final = (CONTRACT / "vectors.json", CONTRACT / "traces.json")
_MOST_LINES: Final = 60


def sources(folder: Path = SOURCE) -> tuple[Path, ...]:
    """What Maven builds it from, without what an earlier build has left."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return tuple(sorted(path for path in files if "target" not in path.relative_to(folder).parts))


def java_agent(folder: Path = SOURCE) -> Tool:
    """The agent of these sources; its folder has its jars. Making it runs all of its tests and checks."""
    made_from: tuple[Path | str, ...] = (*sources(folder), *_VECTORS, MAVEN_COPY)

    def build(build: Build) -> None:
        prerequisites.java()
        with tempfile.TemporaryDirectory(dir=build.folder.parent, prefix="java-agent-source-") as copied:
            shutil.copytree(folder, copied, dirs_exist_ok=True, ignore=shutil.ignore_patterns("target"))
            fetched = Path(copied, "fetched")
            given = [f"-Dcontract.folder={CONTRACT}", "-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
            given += ["-DexcludeGroupIds=io.tidegate.agent"]
            mvn = [prerequisites.maven().path, "-B", "-ntp", "-C", "-Dstyle.color=never"]
            jvm = f"-XX:TieredStopAtLevel=1 {os.environ.get('MAVEN_OPTS', '')}".strip()
            command = [*mvn, "-f", str(Path(copied, "pom.xml")), "verify", MAVEN_COPY, *given]
            build.run(command, env={"MAVEN_OPTS": jvm}, excerpt=_wrong)
            verify_jars(fetched, _SUMS)
            for jar in (*fetched.glob("*.jar"), *Path(copied).glob("*/target/*.jar")):
                shutil.copy(jar, build.folder)

    return Tool("java-agent", "the Java agent, with its tests", "Maven", (15, 60), made_from, build)


def agent_jar() -> Path:
    """The jar for ``-javaagent``. Raises `StackError` where there is none."""
    folder = java_agent().folder()
    found = [jar for jar in sorted(folder.glob("*.jar")) if _is_agent(jar)]
    if len(found) != 1:
        raise StackError(f"{folder} has {len(found)} jars that name a Premain-Class, not one: {found}")
    return found[0]


def _is_agent(jar: Path) -> bool:
    with zipfile.ZipFile(jar) as archive:
        return b"Premain-Class:" in archive.read("META-INF/MANIFEST.MF")


def _wrong(log: str) -> str:
    """What Maven says is wrong; what follows that is how to run it again."""
    said = log.split("[ERROR] -> [Help 1]")[0].splitlines()
    wrong = [line for line in said if line.startswith(("[ERROR]", "[WARNING]"))]
    return "\n".join(wrong[:_MOST_LINES] or said[-_MOST_LINES:])
