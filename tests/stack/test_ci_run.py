"""Continuous integration runs its parts in order; what is built beside the tests fails it, or ends with it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from devstack.processes import eventually

CI_RUN = Path(__file__).resolve().parents[2] / ".ci" / "run"

MAKEFILE = """
.PHONY: prepared test images e2e
prepared test e2e:
	@echo $@ >>order
	@./$@
images:
	@echo "building images"
	@./images
	@echo images >>order
"""


@dataclass
class Project:
    """A tree with `.ci/run` as it is, in which each part is a shell script."""

    root: Path
    uid: int = 0

    def part(self, name: str, script: str) -> None:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "TMPDIR": str(self.root / "tmp"),
        }
        self.part("bin/id", f"echo {self.uid}")
        return subprocess.run(
            [self.root / ".ci" / "run"],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def order(self) -> list[str]:
        return (self.root / "order").read_text().split()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / ".ci").mkdir()
    (tmp_path / "tmp").mkdir()
    shutil.copy(CI_RUN, tmp_path / ".ci" / "run")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    project = Project(tmp_path)
    for name in ("prepared", "test", "images", "e2e", "dev/install-node-prerequisites"):
        project.part(name, "exit 0")
    return project


def test_images_are_built_while_the_tests_run_and_are_there_before_those_in_pods(project: Project) -> None:
    # Tests that end only once the images are begun, and images that are ready only once the tests are over
    project.part("test", "while [ ! -e begun ]; do sleep 0.05; done; touch tested")
    project.part("images", "touch begun; while [ ! -e tested ]; do sleep 0.05; done")

    done = project.run()

    assert done.returncode == 0, done.stderr
    assert project.order == ["prepared", "test", "images", "e2e"]
    assert "building images" not in done.stdout + done.stderr
    assert list((project.root / "tmp").iterdir()) == []


@pytest.mark.parametrize("failing", ["images", "dev/install-node-prerequisites"])
def test_what_cannot_be_built_fails_it_and_says_why(project: Project, failing: str) -> None:
    project.part(failing, "echo no space left >&2; exit 3")

    done = project.run()

    assert done.returncode == 1
    assert "could not be built" in done.stderr
    assert "no space left" in done.stderr
    assert project.order == ["prepared", "test"]


def test_tests_that_fail_end_what_is_built_beside_them(project: Project) -> None:
    project.part("images", "echo $$ >pid; sleep 600")
    project.part("test", "while [ ! -s pid ]; do sleep 0.05; done; exit 1")

    done = project.run()

    assert done.returncode == 2, "make's own"
    assert "building images" not in done.stdout + done.stderr
    assert project.order == ["prepared", "test"]
    builder = Path("/proc", (project.root / "pid").read_text().strip())
    assert eventually(lambda: not builder.exists(), 90)
    assert list((project.root / "tmp").iterdir()) == []


def test_nobody_but_root_runs_anything_in_pods(project: Project) -> None:
    project.uid = 1000

    assert project.run().returncode == 0
    assert project.order == ["test"]
