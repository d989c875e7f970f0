"""The tests' kafkajs consumers: a Node.js program, whose library comes from the npm registry, as its lock file says."""

from __future__ import annotations

import shutil
from pathlib import Path

from devstack.toolcache import Build, toolcache

_FOLDER = Path(__file__).resolve().parent.parent / "node"
_SOURCES = sorted(path for path in _FOLDER.iterdir() if path.is_file())


def has_node() -> bool:
    """Whether the program can be run here."""
    return all(shutil.which(program) is not None for program in ("node", "npm"))


def node_command(program: str = "consumers.js") -> list[str]:
    """The command, without its arguments: by default, of a process with consumers. Raises devstack's errors without
    npm."""

    def build(build: Build) -> None:
        for source in _SOURCES:
            shutil.copyfile(source, build.folder / source.name)
        build.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=build.folder)

    folder = toolcache().artifact(
        "node-test-programs", [*_SOURCES], build, label="the tests' kafkajs consumers", first_time="2 to 10 s"
    )
    return ["node", str(folder / program)]
