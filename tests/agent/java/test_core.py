"""The Java agent's core is built, checked, and replays the contract: all of that is Maven's work, and told by it."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from devstack.errors import StackError
from devstack.java_agent import SOURCE, java_agent

JAVA_8 = 52
"""The version of class files that Java 8 reads."""


@pytest.fixture(scope="module")
def jar() -> Path:
    [found] = java_agent().folder().glob("tidegate-agent-core-*.jar")
    return found


def test_it_passes_its_own_tests_and_runs_on_java_8(jar: Path) -> None:
    """Its tests were run when it was built; a build that is cached was of the same sources and the same contract."""
    with zipfile.ZipFile(jar) as archive:
        classes = [name for name in archive.namelist() if name.endswith(".class")]
        versions = {int.from_bytes(archive.read(name)[6:8], "big") for name in classes}
    assert len(classes) > 40
    assert versions == {JAVA_8}


@pytest.mark.nightly
def test_where_it_breaks_the_contract_the_trace_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jar: Path
) -> None:
    """Also that a failure comes through: the build before has passed, so Maven and all that it needs are there."""
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    broken = tmp_path / "broken"
    shutil.copytree(SOURCE, broken, ignore=shutil.ignore_patterns("target"))
    lifecycle = broken / "core/src/main/java/io/tidegate/agent/core/Lifecycle.java"
    text = lifecycle.read_text(encoding="utf-8")
    assert "state.need(Step.SEEK);" in text
    lifecycle.write_text(text.replace("state.need(Step.SEEK);", "state.need(Step.RESUME);"), encoding="utf-8")

    with pytest.raises(StackError, match="a release: it goes on at the committed offset"):
        java_agent(broken).folder()
