"""Which parts of the stack a test needs, as markers: by its folder, by the fixtures it uses, by markers of its own.

A test without any of the parts is marked ``pure``, and fails where it starts one after all. In a folder of tests that
need a part, a test says by ``pytest.mark.pure`` that it does not.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
PARTS: Final = ("kafka", "apiserver", "spark", "helm", "maven", "e2e", "e2e_cluster")
PURE: Final = "pure"

_FOLDERS: Final = {
    "agent/java": "maven",
    "apiserver": "apiserver",
    "chart": "helm",
    "e2e": "e2e",
    "e2e/cluster": "e2e_cluster",
    "kafka": "kafka",
    "spark": "spark",
}
_PROGRAMS: Final = {
    "java": "kafka",
    "etcd": "apiserver",
    "kube-apiserver": "apiserver",
    "spark-submit": "spark",
    "helm": "helm",
    "kube-score": "helm",
    "mvn": "maven",
}

_Fixture = TypeVar("_Fixture", bound=Callable[..., Any])
_STARTS: Final = "starts_part"


def starts(part: str) -> Callable[[_Fixture], _Fixture]:
    """Say of a fixture which of `PARTS` it starts; stands below ``pytest.fixture``. Its name does not matter."""
    if part not in PARTS:
        raise ValueError(f"{part} is none of the parts {', '.join(PARTS)}")

    def mark(function: _Fixture) -> _Fixture:
        setattr(function, _STARTS, part)
        return function

    return mark


def mark_needs(item: pytest.Item) -> None:
    """Mark a test by the parts that it needs, or as pure where it needs none.

    Raises ``pytest.UsageError`` where a test says of itself that it is pure and uses a fixture that starts a part.
    """
    started = set(_started_by_fixtures(item))
    if item.get_closest_marker(PURE) is not None:
        if started:
            raise pytest.UsageError(
                f"{item.nodeid} is marked pure, and its fixtures start {', '.join(sorted(started))}"
            )
        return
    for part in sorted(started | set(_needed_in_folder(item.path))):
        item.add_marker(part)
    if not any(item.get_closest_marker(part) for part in PARTS):
        item.add_marker(PURE)


def _needed_in_folder(path: Path) -> Iterator[str]:
    folders = path.relative_to(TESTS).parts[:-1] if path.is_relative_to(TESTS) else ()
    for depth in (1, 2):
        part = _FOLDERS.get("/".join(folders[:depth]))
        if part is not None:
            yield part


def _started_by_fixtures(item: pytest.Item) -> Iterator[str]:
    """The parts started by each fixture as this test sees it; an overridden one counts only where it is still used."""
    info = getattr(item, "_fixtureinfo", None)
    if info is None:
        return
    for name in info.names_closure:
        for definition in reversed(info.name2fixturedefs.get(name, ())):
            part = getattr(definition.func, _STARTS, None)
            if part is not None:
                yield part
            if name not in definition.argnames:
                break


@contextmanager
def starting_nothing(item: pytest.Item) -> Iterator[None]:
    """Fail a pure test that starts a part of the stack; other threads than the test's own may still do so.

    Those may belong to a fixture of other tests that works in the background.
    """
    if item.get_closest_marker(PURE) is None:
        yield
        return
    _watch()
    _forbidden_in.add(threading.get_ident())
    try:
        yield
    finally:
        _forbidden_in.discard(threading.get_ident())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Watch what a pure test's fixtures start."""
    with starting_nothing(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Watch what a pure test starts."""
    with starting_nothing(item):
        return (yield)


_forbidden_in: set[int] = set()
_watching: list[bool] = []


def _watch() -> None:
    """Look at every process that is started, once for all tests: an audit hook cannot be removed."""
    if not _watching:
        _watching.append(True)
        sys.addaudithook(_forbid)


def _forbid(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "subprocess.Popen" or threading.get_ident() not in _forbidden_in:
        return
    executable, words = arguments[0], arguments[1]
    part = _PROGRAMS.get(Path(os.fsdecode(executable)).name)
    if part is not None and not _asks_version(words):
        pytest.fail(
            f"a test without the marker `{part}` starts {os.fsdecode(executable)}: mark it, or use a fixture that "
            "says by support.needs.starts what it starts",
            pytrace=False,
        )


def _asks_version(words: str | Sequence[str]) -> bool:
    return not isinstance(words, str) and [*words][1:] == ["-version"]
