"""What takes too long for continuous integration: ``make nightly``, or some of it, ``make nightly PARTS="seeds pods"``.

Each part is a command; its output goes to ``build/nightly/<part>.log``. A run's outcome is kept in
``docs/benchmarks/nightly.md``, newest first, with the commit that it was of. Exit code 1 when a part failed, 2 where a
part is named that there is not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[1]
LOGS: Final = PROJECT / "build" / "nightly"
KEPT: Final = PROJECT / "docs" / "benchmarks" / "nightly.md"
SEEDS: Final = 60
FUZZ_S: Final = 600
MUTANTS: Final = 400

HEAD: Final = """\
# What runs outside continuous integration

`make nightly` runs everything that takes too long for `.ci/run`, and keeps the outcome here, newest first. It is
run before a release. `make nightly PARTS="seeds pods"` runs only some of its parts.
"""

_PYTEST: Final = (sys.executable, "-m", "pytest", "-q")
_BESIDE: Final = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
_JAVA: Final = "tests/agent/java"
_SUMMARY: Final = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s")


@dataclass(frozen=True, slots=True)
class Part:
    """A command of the run, what it shows, and what it finds in its environment besides."""

    name: str
    what: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a part ended."""

    part: Part
    said: str
    passed: bool
    seconds: float

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Its row: part, what, outcome, minutes."""
        word = "passed" if self.passed else "**failed**"
        return (self.part.name, self.part.what, f"{word}: {self.said}", f"{self.seconds / 60:.1f}")


def parts(today: date) -> tuple[Part, ...]:
    """All there are. The seeds are others every day, and the same all day."""
    first = (today - date(1970, 1, 1)).days * 100
    seeds = range(first, first + SEEDS)
    return (
        Part(
            "tests",
            "tests marked `nightly`",
            [*_PYTEST, *_BESIDE, "-m", "nightly and not e2e_cluster", f"--ignore={_JAVA}", "tests"],
        ),
        Part("java", "Java's consumers, in pairs of all that they run on", [*_PYTEST, "-m", "nightly", _JAVA]),
        Part(
            "retention",
            "offsets kept for three retentions",
            [*_PYTEST, "-m", "nightly or not nightly", "tests/kafka/test_retention.py"],
            {"TIDEGATE_RETENTIONS": "3"},
        ),
        Part(
            "seeds",
            f"random sequences, seeds {seeds[0]} to {seeds[-1]}",
            [*_PYTEST, "tests/property/test_random_sequences.py"],
            {"TIDEGATE_PROPERTY_SEED": ",".join(map(str, seeds))},
        ),
        Part(
            "fuzz",
            f"{FUZZ_S // 60} minutes of hostile input to every decoder, seed {first}",
            [*_PYTEST, "tests/security/test_decoders.py", "-k", "test_fuzz"],
            {"TIDEGATE_FUZZ_SECONDS": str(FUZZ_S), "TIDEGATE_FUZZ_SEED": str(first)},
        ),
        Part(
            "mutants",
            f"{MUTANTS} changes of the code one by one, seed {first}: do the tests notice?",
            ["make", "mutants", f"SEED={first}", f"COUNT={MUTANTS}"],
        ),
        Part(
            "pods",
            "`make e2e`, with the tests in pods that are marked `nightly`",
            ["make", "e2e", "ARGS=-m 'e2e_cluster and (nightly or not nightly)'"],
        ),
        Part(
            "release",
            "a release made, and the tutorial played on it in a cluster and in a browser",
            [*_PYTEST, "-m", "e2e_cluster and nightly", "tests/release"],
        ),
    )


def chosen(available: Sequence[Part], names: Sequence[str]) -> list[Part]:
    """The parts of these names, or all, in their own order. Raises ``ValueError`` for a name there is not."""
    known = {part.name for part in available}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"there is no part {', '.join(unknown)}; there are {', '.join(p.name for p in available)}")
    return [part for part in available if not names or part.name in names]


def run(part: Part, logs: Path) -> Outcome:
    """Run it to its end. pytest's exit code 5 (no test was selected) is a failure as well."""
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{part.name}.log"
    started = time.monotonic()
    with log.open("w") as output:
        done = subprocess.run(
            part.command,
            cwd=PROJECT,
            env={**os.environ, **part.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    said = summary(log.read_text(errors="replace")) or f"exit code {done.returncode}"
    return Outcome(part, said, done.returncode == 0, time.monotonic() - started)


def summary(log: str) -> str | None:
    """How many tests passed and failed, in pytest's last words on it; ``None`` where it says nothing of that."""
    found = [match.group(1) for line in log.splitlines() if (match := _SUMMARY.match(line))]
    return found[-1] if found else None


def with_run(kept: str, heading: str, outcomes: Sequence[Outcome]) -> str:
    """The page with this run's table before all earlier ones."""
    earlier = kept.removeprefix(HEAD).strip()
    rows = [("part", "what", "outcome", "minutes"), ("---", "---", "---", "---"), *(o.cells for o in outcomes)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([HEAD, f"## {heading}", "", table, *(["", earlier] if earlier else []), ""])


def commit() -> str:
    """What the run is of: the commit, and whether the tree differs from it apart from the page that is written."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(PROJECT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", f":!{KEPT.relative_to(PROJECT)}")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def main(names: Sequence[str]) -> int:
    """Run the parts of these names, or all."""
    now = datetime.now(UTC)
    try:
        wanted = chosen(parts(now.date()), names)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    heading = f"{now:%Y-%m-%d}, {commit()}"
    outcomes: list[Outcome] = []
    for part in wanted:
        outcomes.append(run(part, LOGS))
        print("  ".join(outcomes[-1].cells), flush=True)
        if not outcomes[-1].passed:
            print(f"its log: {LOGS / part.name}.log", flush=True)
    KEPT.write_text(with_run(KEPT.read_text() if KEPT.exists() else HEAD, heading, outcomes))
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
