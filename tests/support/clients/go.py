"""The tests' consumers of Go libraries, compiled once."""

from __future__ import annotations

from pathlib import Path

from devstack.toolcache import Build, go_build, toolcache

_FOLDER = Path(__file__).resolve().parent.parent / "go"
_SOURCES = sorted(path for path in _FOLDER.iterdir() if path.is_file())


def go_command() -> list[str]:
    """The command, without its JSON argument, for a process with consumers. Raises devstack's errors without Go."""

    def build(build: Build) -> None:
        go_build(build, _FOLDER, "consumers", ".")

    folder = toolcache().artifact(
        "go-test-programs", [*_SOURCES], build, label="the tests' Go consumers", first_time="10 to 30 s"
    )
    return [str(folder / "consumers")]
