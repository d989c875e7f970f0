"""``tidegate audit log``: which records are shown, and what is said of those that are not."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate.audit.records import Action, Actor, Change, Part, State
from tidegate.cli.auditing import Filter, _since, audit_parser, run_audit, show
from tidegate.cli.errors import UsageError
from tidegate.cli.screen import Screen
from tidegate.kafka.errors import Unavailable
from tidegate.kafka_client.audit_reader import Left, Read

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
FOUND = [
    Read(Part(Change(str(n), Action.RESET, State.COMMITTED, group, Actor("OffsetReset", name, "ns"), {})), n, 1000 * n)
    for n, (group, name) in enumerate([("a", "one"), ("b", "one"), ("a", "two")])
]


def shown(left: Left | None = None, **wanted: Any) -> tuple[int, list[int], str]:
    """The code, the offsets of what is shown, and what is said beside it."""
    screen = Screen(io.StringIO(), io.StringIO())
    code = show(FOUND, left or Left(), Filter(**wanted), screen)
    assert isinstance(screen.out, io.StringIO)
    assert isinstance(screen.err, io.StringIO)
    return code, [json.loads(text)["offset"] for text in screen.out.getvalue().splitlines()], screen.err.getvalue()


@pytest.mark.parametrize(
    ("wanted", "offsets"),
    [
        ({}, [0, 1, 2]),
        ({"groups": frozenset({"a"})}, [0, 2]),
        ({"groups": frozenset({"a", "b"})}, [0, 1, 2]),
        ({"names": frozenset({"one"})}, [0, 1]),
        ({"names": frozenset({"ns/two"})}, [2]),
        ({"names": frozenset({"other/two"})}, []),
        ({"groups": frozenset({"a"}), "names": frozenset({"one"})}, [0]),
    ],
)
def test_what_is_wanted_is_shown(wanted: dict[str, Any], offsets: list[int]) -> None:
    assert shown(**wanted) == (0, offsets, "")


def test_what_is_missing_is_said() -> None:
    _, _, said = shown(Left(unreadable=3, newer=1, undecided=2))
    assert [text.split()[0] for text in said.splitlines()] == ["3", "1", "2"]
    assert "transaction is open" in said


def test_a_log_that_breaks_off_is_told_apart_from_its_end() -> None:
    def found() -> Iterator[Read]:
        yield FOUND[0]
        raise Unavailable("nobody answers")

    screen = Screen(io.StringIO(), io.StringIO())
    assert show(found(), Left(), Filter(), screen) == 1
    assert isinstance(screen.err, io.StringIO)
    assert "could not be read to its end: nobody answers" in screen.err.getvalue()


def test_interrupting_is_how_following_ends() -> None:
    def found() -> Iterator[Read]:
        yield FOUND[0]
        raise KeyboardInterrupt

    assert show(found(), Left(), Filter(), Screen(io.StringIO(), io.StringIO())) == 0


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (None, None),
        ("168h", NOW - timedelta(days=7)),
        ("2026-11-20T14:00:00Z", datetime(2026, 11, 20, 14, tzinfo=UTC)),
        ("2026-11-20T14:00:00+02:00", datetime(2026, 11, 20, 12, tzinfo=UTC)),
    ],
)
def test_since(text: str | None, at: datetime | None) -> None:
    assert _since(text, NOW) == at


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-20T14:00:00", "-1d"])
def test_a_time_that_is_none_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(UsageError, match="must be a time with a zone, such as"):
        _since(text, NOW)


@pytest.mark.parametrize("arguments", [[], ["--group", "a"], ["logs"]])
def test_what_is_no_command_is_refused(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        run_audit(arguments, Screen(io.StringIO(), io.StringIO()))
    assert "audit log" in audit_parser().format_usage()
