"""What came of one trial of the campaign, as a line of JSON. Pure, but for `Results`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter

NO_END = "NoEnd"
CHANGED = " with changes"
"""Follows the commit where the tree had changes besides."""
"""The reason of a reset that was not over when nobody waited for it any more."""


class Truth(StrEnum):
    """``TRUE``: everything that was said is so. ``UNTRUE``: the history breaks a rule, or belies a count. ``BROKEN``:
    the trial came to no verdict."""

    TRUE = "true"
    UNTRUE = "untrue"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a reset ended. `phase`: empty where it did not, or was not asked for; `message` says why.

    `way`: as its result names it. `launches`: how many writers it took. `took_s`: from being asked for.
    """

    name: str
    to: str
    carrier: str
    phase: str
    reason: str
    message: str
    way: str = ""
    rounds: int = 0
    redone: int = 0
    launches: int = 0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """`at`: an ISO time in UTC. `commit`: what was tried. `schedule`, `digest`: as `Schedule` tells them.

    `struck`: the faults that did strike, by kind. `findings`: what is wrong. `history`: the file's name in
    ``build/histories``, if so.
    """

    seed: int
    at: str
    commit: str
    digest: str
    client: str
    group: str
    application: str
    schedule: str
    truth: Truth
    runs: tuple[Ended, ...] = ()
    struck: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    history: str = ""
    reread: int = 0
    stale: int = 0
    took_s: float = 0.0

    def __str__(self) -> str:
        ended = ", ".join(f"{run.name} {run.phase or 'no end'} {run.way}".rstrip() for run in self.runs)
        head = f"seed {self.seed}: {self.truth} ({self.took_s:.0f} s); {ended or 'no reset'}"
        return "\n  ".join([head, *self.findings, *([f"history: {self.history}"] if self.findings else [])])


_LINE: TypeAdapter[Outcome] = TypeAdapter(Outcome)


class Results:
    """The outcomes of all trials so far, one line each, in the order of their seeds; of a seed only the newest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._of = {outcome.seed: outcome for outcome in map(_LINE.validate_json, lines)}

    def __iter__(self) -> Iterator[Outcome]:
        return (self._of[seed] for seed in sorted(self._of))

    def has(self, seed: int, digest: str, commit: str) -> bool:
        """Whether this very schedule was tried at this commit, and came to a verdict.

        What was tried with changes that are in no commit cannot be told apart, so it does not count.
        """
        known = self._of.get(seed)
        if known is None or known.truth is Truth.BROKEN:
            return False
        return (known.digest, known.commit) == (digest, commit) and not commit.endswith(CHANGED)

    def add(self, outcome: Outcome) -> None:
        """Keep it, in the file as well: whatever ends the campaign, what was tried is known."""
        self._of[outcome.seed] = outcome
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = self._path.with_suffix(".new")
        written.write_text("".join(f"{_LINE.dump_json(o).decode()}\n" for o in self), encoding="utf-8")
        written.replace(self._path)
