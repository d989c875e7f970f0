"""What ``make nightly`` runs, says and keeps."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest

from support.scripts import loaded

SOURCE = Path(__file__).resolve().parents[2] / "nightly.py"


@pytest.fixture(scope="module")
def nightly() -> ModuleType:
    return loaded(SOURCE)


def test_all_parts_run_or_those_that_are_named(nightly: ModuleType) -> None:
    available = nightly.parts(date(2026, 11, 22))

    assert [part.name for part in nightly.chosen(available, [])] == [
        *("tests", "java", "retention", "seeds", "fuzz", "mutants", "pods", "release")
    ]
    assert [part.name for part in nightly.chosen(available, ["pods", "tests"])] == ["tests", "pods"]
    with pytest.raises(
        ValueError,
        match="there is no part sedes; there are tests, java, retention, seeds, fuzz, mutants, pods, release",
    ):
        nightly.chosen(available, ["sedes", "pods"])


def test_each_day_has_seeds_of_its_own_which_are_told(nightly: ModuleType) -> None:
    def seeds(day: int) -> tuple[set[str], str]:
        part = next(part for part in nightly.parts(date(2026, 11, day)) if part.name == "seeds")
        return set(part.environment["TIDEGATE_PROPERTY_SEED"].split(",")), part.what

    today, told = seeds(22)
    tomorrow, _ = seeds(23)
    assert len(today) == 60
    assert not today & tomorrow
    assert today == seeds(22)[0]
    assert told == f"random sequences, seeds {min(today)} to {max(today)}"


@pytest.mark.parametrize(
    ("script", "passed", "said"),
    [
        ("print('=== 2 failed, 10 passed, 1 warning in 75.25s (0:01:15) ===')\nraise SystemExit(1)", False,
         "2 failed, 10 passed, 1 warning"),
        ("print('12 passed in 3.10s')", True, "12 passed"),
        ("print('no tests ran in 0.01s')\nraise SystemExit(5)", False, "exit code 5"),
        ("import os\nprint(os.environ['SAID'])", True, "exit code 0"),
    ],
)  # fmt: skip
def test_a_part_says_how_it_ended(nightly: ModuleType, tmp_path: Path, script: str, passed: bool, said: str) -> None:
    part = nightly.Part("seeds", "random", [sys.executable, "-c", script], {"SAID": "something"})

    outcome = nightly.run(part, tmp_path / "logs")

    assert (outcome.passed, outcome.said) == (passed, said)
    word = "passed" if passed else "**failed**"
    assert outcome.cells == ("seeds", "random", f"{word}: {said}", "0.0")
    assert (tmp_path / "logs" / "seeds.log").read_text()


def test_the_newest_run_is_kept_before_the_others(nightly: ModuleType) -> None:
    part = nightly.Part("pods", "in pods", ["make", "e2e"])
    first = nightly.with_run("", "2026-11-21, aaaaaaa", [nightly.Outcome(part, "9 passed", True, 90.0)])
    page = nightly.with_run(first, "2026-11-22, bbbbbbb", [nightly.Outcome(part, "1 failed", False, 30.0)])

    assert page.startswith(nightly.HEAD)
    assert page.count(nightly.HEAD) == 1
    below = page.removeprefix(nightly.HEAD).splitlines()
    assert [line for line in below if line] == [
        "## 2026-11-22, bbbbbbb",
        "| part | what | outcome | minutes |",
        "| --- | --- | --- | --- |",
        "| pods | in pods | **failed**: 1 failed | 0.5 |",
        "## 2026-11-21, aaaaaaa",
        "| part | what | outcome | minutes |",
        "| --- | --- | --- | --- |",
        "| pods | in pods | passed: 9 passed | 1.5 |",
    ]


def test_the_parts_name_files_that_there_are(nightly: ModuleType) -> None:
    for part in nightly.parts(date(2026, 11, 22)):
        files = [word for word in part.command if word.startswith("tests")]
        assert all((nightly.PROJECT / name).exists() for name in files), part
