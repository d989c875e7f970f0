"""Artifacts are built once, whole, and again when what they are made from changes."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from devstack.errors import StackError
from devstack.toolcache import Build, Toolcache, kafka_broker

STACK = Path(__file__).resolve().parents[2] / "dev" / "stack.py"


def _artifact(cache: Toolcache, made_from: str, builds: list[str], content: str = "ok") -> Path:
    def build(build: Build) -> None:
        builds.append(made_from)
        build.run([sys.executable, "-c", f"open('file', 'w').write({content!r})"], cwd=build.folder)

    return cache.artifact("thing", [made_from], build, label="thing", first_time="a moment")


def test_an_artifact_is_built_once_for_each_content(tmp_path: Path) -> None:
    cache, builds = Toolcache(tmp_path), list[str]()
    first = _artifact(cache, "a", builds)
    assert _artifact(cache, "a", builds) == first
    other = _artifact(cache, "b", builds)
    assert other != first
    assert builds == ["a", "b"]
    assert (first / "file").read_text() == "ok"


def test_each_release_of_kafka_has_jars_of_its_own() -> None:
    old, new = kafka_broker("3.9.2"), kafka_broker("4.4.0")
    assert (old.name, new.name) == ("kafka-3.9.2", "kafka-4.4.0")
    assert old.made_from != new.made_from


def test_builds_at_the_same_time_make_it_once(tmp_path: Path) -> None:
    cache, builds = Toolcache(tmp_path), list[str]()
    threads = [threading.Thread(target=_artifact, args=(cache, "a", builds)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert builds == ["a"]


def test_a_failed_build_names_its_log_and_leaves_nothing(tmp_path: Path) -> None:
    cache = Toolcache(tmp_path)

    def build(build: Build) -> None:
        (build.folder / "half").write_text("")
        build.run([sys.executable, "-c", "import sys; sys.exit('no such module')"])

    with pytest.raises(StackError, match=r"no such module") as caught:
        cache.artifact("thing", ["a"], build, label="thing", first_time="a moment")
    assert str(tmp_path / "logs" / "build-thing.log") in str(caught.value)
    assert list((tmp_path / "tools").iterdir()) == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_missing_prerequisites_are_named_in_one_line_each(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "TIDEGATE_CACHE": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, STACK, "build"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert [line.split(" (")[0] for line in lines] == [
        "missing: Java >= 17",
        "missing: JDK >= 17",
        "missing: Maven >= 3.6.3",
        "missing: Go >= 1.26.0",
        "missing: OpenSSL >= 1.1",
    ]
    assert all("install it: " in line for line in lines)


def test_a_java_runtime_is_no_jdk(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.9\" 2023-10-17' >&2\n")
    java.chmod(0o755)
    environment = {"PATH": str(tmp_path), "TIDEGATE_CACHE": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, STACK, "build"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr.startswith("missing: JDK >= 17 (its javac compiles the Java agent); install it: ")


def test_a_tool_that_is_too_old_is_named_with_its_version(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "JAVA_HOME": ""}
    done = subprocess.run(
        [sys.executable, STACK, "build"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"too old: {java} is Java 11.0.2, needed is Java >= 17")
