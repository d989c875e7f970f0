"""A trial's history: what happened to one consumer group, as JSON lines, one operation a line.

``HISTORY.md`` documents the format and what is judged by it; `support.history_checker` judges. Pure, but for `read`
and `write`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import ConfigDict, Field, NonNegativeInt, TypeAdapter, ValidationError

from support.deliveries import Partition

_STRICT = ConfigDict(extra="forbid", strict=True)
Seconds: TypeAlias = Annotated[float, Field(allow_inf_nan=False, ge=0)]


class Place(NamedTuple):
    """An offset of a partition."""

    topic: str
    partition: int
    offset: NonNegativeInt

    @property
    def of(self) -> Partition:
        return self.topic, self.partition


class Record(NamedTuple):
    """A record that a member was given. `value`: a digest of its key and value, ``None`` where nobody took it."""

    topic: str
    partition: int
    offset: NonNegativeInt
    value: str | None = None

    @property
    def of(self) -> Partition:
        return self.topic, self.partition


class CommitRow(NamedTuple):
    """One partition's part of a commit. `error`: what was wrong with it alone."""

    topic: str
    partition: int
    offset: int  # librdkafka names partitions without an offset, too: -1001
    error: str | None = None

    @property
    def of(self) -> Partition:
        return self.topic, self.partition


class Untold(StrEnum):
    """What the clients of a trial do not tell."""

    ASSIGNMENTS = "assignments"
    REVOCATIONS = "revocations"
    COMMITS = "commits"
    VALUES = "values"


@dataclass(frozen=True, slots=True)
class Begin:
    """The first line. Times in seconds.

    `precision_s`: how far apart the clocks of those who wrote the history may be. `unaware_s`: how long a member may go
    on without knowing that it is out of its group (a heartbeat interval). `starts`: where the group began; a partition
    that is not named began where its first record was.
    """

    __pydantic_config__ = _STRICT
    t: Seconds
    group: str
    precision_s: Seconds
    unaware_s: Seconds = 0.0
    starts: tuple[Place, ...] = ()
    untold: tuple[Untold, ...] = ()
    op: Literal["begin"] = "begin"


class Outcome(StrEnum):
    """How a send ended. ``UNKNOWN``: there was no answer, or one that names no offset."""

    ACKED = "acked"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Send:
    """A record was sent; `t`: when its answer came, or when it was sent. `offset`: of an acknowledged one."""

    __pydantic_config__ = _STRICT
    t: Seconds
    topic: str
    partition: int
    outcome: Outcome
    offset: NonNegativeInt | None = None
    value: str | None = None
    op: Literal["send"] = "send"

    @property
    def of(self) -> Partition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Poll:
    """A member was given these records, in this order, at `t`."""

    __pydantic_config__ = _STRICT
    t: Seconds
    member: str
    records: tuple[Record, ...]
    op: Literal["poll"] = "poll"


@dataclass(frozen=True, slots=True)
class Commit:
    """A member learned at `t` how a commit had gone. `member`: ``None`` for somebody from outside the group."""

    __pydantic_config__ = _STRICT
    t: Seconds
    member: str | None
    offsets: tuple[CommitRow, ...]
    error: str | None = None
    op: Literal["commit"] = "commit"


@dataclass(frozen=True, slots=True)
class Committed:
    """Somebody looked at the group's committed offsets, at some moment of the `took_s` seconds before `t`."""

    __pydantic_config__ = _STRICT
    t: Seconds
    took_s: Seconds
    offsets: tuple[Place, ...]
    op: Literal["committed"] = "committed"


@dataclass(frozen=True, slots=True)
class Transaction:
    """A member sent these offsets to a transaction without naming itself, so that brokers take them of anybody; or that
    transaction is over, whichever way."""

    __pydantic_config__ = _STRICT
    t: Seconds
    member: str
    offsets: tuple[Place, ...]
    op: Literal["offsets-sent", "offsets-over"]


@dataclass(frozen=True, slots=True)
class Ownership:
    """A member was given partitions, or gave them up, or learned that it had lost them; only what changed."""

    __pydantic_config__ = _STRICT
    t: Seconds
    member: str
    partitions: tuple[tuple[str, int], ...]
    op: Literal["assign", "revoke", "lost"]


@dataclass(frozen=True, slots=True)
class Process:
    """A process began or ended or stood still, and these members in it. ``stop``: graceful; ``kill``: a crash."""

    __pydantic_config__ = _STRICT
    t: Seconds
    process: str | None
    members: tuple[str, ...]
    op: Literal["start", "stop", "kill", "freeze", "thaw"]


@dataclass(frozen=True, slots=True)
class ResetBegin:
    """A reset was asked for; from `t` on it may touch the group. `requested`: what it names besides its targets."""

    __pydantic_config__ = _STRICT
    t: Seconds
    run: str
    targets: tuple[Place, ...]
    requested: tuple[tuple[str, int], ...] = ()
    op: Literal["reset-begin"] = "reset-begin"


class Phase(StrEnum):
    """How a reset ended."""

    SUCCEEDED = "Succeeded"
    ROLLED_BACK = "RolledBack"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class ResetEnd:
    """A reset said of itself that it is over; from `t` on this has to be true."""

    __pydantic_config__ = _STRICT
    t: Seconds
    run: str
    phase: Phase
    message: str = ""
    op: Literal["reset-end"] = "reset-end"


@dataclass(frozen=True, slots=True)
class Hold:
    """Partitions were reported as paused, or it was asked that they flow again."""

    __pydantic_config__ = _STRICT
    t: Seconds
    partitions: tuple[tuple[str, int], ...]
    op: Literal["pause", "resume"]


@dataclass(frozen=True, slots=True)
class End:
    """The last line. `ends`: the offsets after the last record of each partition. `drained`: nothing more was produced,
    and the group was given the time to read everything."""

    __pydantic_config__ = _STRICT
    t: Seconds
    ends: tuple[Place, ...]
    drained: bool
    op: Literal["end"] = "end"


Operation: TypeAlias = (
    Send | Poll | Commit | Committed | Transaction | Ownership | Process | ResetBegin | ResetEnd | Hold | Begin | End
)
_LINE: TypeAdapter[Operation] = TypeAdapter(Annotated[Operation, Field(discriminator="op")])


class HistoryError(ValueError):
    """A history that does not keep to the format; names the file and the line."""


@dataclass(frozen=True, slots=True)
class History:
    """The operations, a line each: the line number of ``operations[i]`` is ``i + 1``.

    Raises `HistoryError` unless there is one `Begin`, at the start, at most one `End`, at the end, no time goes back,
    and what ends had begun.
    """

    operations: tuple[Operation, ...]
    name: str = "history"

    def __post_init__(self) -> None:
        if not self.operations or not isinstance(self.operations[0], Begin):
            raise HistoryError(f"{self.name}:1: a history begins with a begin")
        for line, (before, after) in enumerate(pairwise(self.operations), 2):
            if isinstance(after, Begin):
                raise HistoryError(f"{self.name}:{line}: a second begin")
            if isinstance(before, End):
                raise HistoryError(f"{self.name}:{line}: something after the end")
            if after.t < before.t:
                raise HistoryError(f"{self.name}:{line}: its time, {after.t!r}, is before that of the line before")
        self._refuse_dangling()

    def _refuse_dangling(self) -> None:
        begun: set[str] = set()
        ended: set[str] = set()
        for line, operation in self.lines():
            if isinstance(operation, ResetBegin):
                if operation.run in begun:
                    raise HistoryError(f"{self.name}:{line}: the reset {operation.run} begins a second time")
                begun.add(operation.run)
            elif isinstance(operation, ResetEnd):
                if operation.run not in begun or operation.run in ended:
                    raise HistoryError(f"{self.name}:{line}: the reset {operation.run} ends and is not running")
                ended.add(operation.run)
            elif isinstance(operation, Send) and (operation.outcome is Outcome.ACKED) != (operation.offset is not None):
                raise HistoryError(f"{self.name}:{line}: an acknowledged send, and only that, has an offset")

    @property
    def begin(self) -> Begin:
        first = self.operations[0]
        assert isinstance(first, Begin)
        return first

    @property
    def end(self) -> End | None:
        last = self.operations[-1]
        return last if isinstance(last, End) else None

    def lines(self) -> Iterator[tuple[int, Operation]]:
        """The operations and their line numbers."""
        return enumerate(self.operations, 1)


_RANK = {Begin: 0, End: 2}


def in_order(operations: Iterable[Operation], name: str = "history") -> History:
    """The operations by their time; those of one time in the order they are given, `Begin` first and `End` last."""
    return History(tuple(sorted(operations, key=lambda o: (_RANK.get(type(o), 1), o.t))), name)


def to_lines(operations: Iterable[Operation]) -> Iterator[str]:
    """Each operation's line, without its end."""
    for operation in operations:
        yield _LINE.dump_json(operation, exclude_defaults=False).decode()


def from_lines(lines: Sequence[str], name: str = "history") -> History:
    """Read lines back. Raises `HistoryError` at the first one that is not exactly an operation."""
    operations = []
    for number, line in enumerate(lines, 1):
        try:
            operations.append(_LINE.validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise HistoryError(f"{name}:{number}: {where + ': ' if where else ''}{first['msg']}") from error
    return History(tuple(operations), name)


def write(path: Path, history: History) -> None:
    """Write a history, and the folder it is in. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in to_lines(history.operations))


def read(path: Path) -> History:
    """Read a history. Raises ``OSError`` and `HistoryError`, the latter also where the last line is cut off."""
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    if lines.pop():
        raise HistoryError(f"{path}:{len(lines) + 1}: the line has no end")
    return from_lines(lines, str(path))
