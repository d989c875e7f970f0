"""Outcomes of the campaign are kept line by line, and told on a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from devstack import KafkaCluster
from support.campaign import __main__ as command
from support.campaign.__main__ import main, seeds
from support.campaign.outcome import NO_END, Ended, Outcome, Results, Truth
from support.campaign.page import page
from support.campaign.schedule import FaultKind, draw
from support.campaign.trial import Performance

SUCCEEDED = Ended("r0", "shiftBy -40", "job", "Succeeded", "Applied", "4 partitions", "Handover", 1, 0, 1, 3.2)
PUT_BACK = Ended(
    "r1", "earliest", "job", "RolledBack", "Overwritten", "after | 8 rounds\nowners", "Handover", 8, 5, 1, 60
)
GOOD = Outcome(
    seed=7,
    at="2026-11-23T18:00:00Z",
    commit="abc1234",
    digest="00000007",
    client="franz-go",
    group="classic range",
    application="sync commit",
    schedule="seed 7: franz-go classic range → r0",
    truth=Truth.TRUE,
    runs=(SUCCEEDED, PUT_BACK),
    struck=(FaultKind.CONSUMER_KILLED, FaultKind.CONSUMER_KILLED),
    reread=3,
)
UNTRUE = replace(
    GOOD,
    seed=8,
    truth=Truth.UNTRUE,
    runs=(SUCCEEDED,),
    struck=(),
    findings=("lost-write: t-0 at 4: …",),
    history="h.jsonl",
)


def test_what_was_tried_is_known_to_the_next_campaign(tmp_path: Path) -> None:
    path = tmp_path / "docs" / "campaign.jsonl"
    results = Results(path)
    results.add(UNTRUE)
    results.add(GOOD)

    again = Results(path)

    assert list(again) == [GOOD, UNTRUE]
    assert len(path.read_text().splitlines()) == 2
    assert again.has(7, "00000007", "abc1234")
    assert not again.has(9, "00000007", "abc1234")


@pytest.mark.parametrize(
    "known",
    [replace(GOOD, digest="ffffffff"), replace(GOOD, commit="abc1234 with changes"), replace(GOOD, truth=Truth.BROKEN)],
    ids=["another schedule", "another commit", "no verdict"],
)
def test_a_seed_is_tried_again_where_it_is_not_the_same(tmp_path: Path, known: Outcome) -> None:
    results = Results(tmp_path / "campaign.jsonl")
    results.add(known)

    assert not results.has(GOOD.seed, GOOD.digest, GOOD.commit)


def test_what_was_tried_with_changes_is_tried_again(tmp_path: Path) -> None:
    results = Results(tmp_path / "campaign.jsonl")
    results.add(replace(GOOD, commit="abc1234 with changes"))

    assert not results.has(GOOD.seed, GOOD.digest, "abc1234 with changes")


def test_only_the_newest_outcome_of_a_seed_is_kept(tmp_path: Path) -> None:
    results = Results(tmp_path / "campaign.jsonl")
    results.add(replace(UNTRUE, seed=7))
    results.add(GOOD)

    assert list(results) == [GOOD]


def test_the_page_tells_what_came_of_it() -> None:
    said = page([GOOD, UNTRUE, replace(GOOD, seed=10)])

    assert "**3 trials**, 5 resets (3 Succeeded, 2 RolledBack), 4 faults that struck: 2 verdicts true, 1 untrue" in said
    assert "| abc1234 | 7-8, 10 | 2026-11-23 | 2026-11-23 |" in said
    assert "| franz-go | Handover | 3 | 3 | 2 | 0 | 0 | 10 | 4 | 1 |" in said
    assert f"| {FaultKind.CONSUMER_KILLED} | 4 | 2 | 0 |" in said
    assert "| 7 | franz-go | Handover | RolledBack | Overwritten | after \\| 8 rounds owners | yes |" in said
    assert "### Seed 8, untrue, abc1234" in said
    assert "* lost-write: t-0 at 4: …" in said
    assert "`h.jsonl`" in said


def test_what_did_not_end_is_told_and_is_not_said_to_have_changed_nothing() -> None:
    endless = replace(SUCCEEDED, phase="", reason=NO_END, way="", message="not over after 12 writer(s)")
    said = page([replace(UNTRUE, runs=(endless,))])

    assert "| 8 | franz-go |  | (none) | NoEnd | not over after 12 writer(s) | untrue: see below |" in said
    assert "| franz-go | none | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 1 |" in said


def test_the_page_of_nothing() -> None:
    assert "**0 trials**, 0 resets (none)" in page([])


def test_seeds_are_named_in_ranges() -> None:
    assert seeds("0-3,7,2") == [0, 1, 2, 3, 7]
    for bad in ("", "a", "3-", "5-2"):
        with pytest.raises(ValueError, match=r"seeds|invalid literal"):
            seeds(bad)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """Of a project of its own, in which everything was tried at this commit."""
    monkeypatch.setattr(command, "PROJECT", tmp_path)
    monkeypatch.setattr(command, "PAGE", tmp_path / "campaign.md")
    monkeypatch.setattr(command, "RESULTS", tmp_path / "campaign.jsonl")
    monkeypatch.setattr(command, "tried_commit", lambda: GOOD.commit)
    results = Results(command.RESULTS)
    for outcome in (GOOD, UNTRUE):
        results.add(replace(outcome, digest=draw(outcome.seed).digest))
    return results


def test_an_untrue_verdict_is_an_error_of_the_command(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["7"]) == 0
    assert main(["7-8"]) == 1

    said = capsys.readouterr().out
    assert "1 of 1 seeds tried, 1 verdicts true; campaign.md" in said
    assert "2 of 2 seeds tried, 1 verdicts true; campaign.md" in said
    assert "lost-write: t-0 at 4" in said
    assert command.PAGE.read_text() == page(results)


def test_seeds_that_cannot_be_read_are_refused(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["5-2"]) == 2
    assert "SEEDS: no seeds in '5-2'" in capsys.readouterr().err


def test_the_schedules_are_shown_without_being_tried(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["900-901", "--show"]) == 0
    assert capsys.readouterr().out == f"{draw(900)}\n{draw(901)}\n"


def test_a_trial_that_fails_is_broken() -> None:
    schedule = draw(3)
    outcome = Performance(schedule, KafkaCluster.attach("127.0.0.1:1"), "abc1234").broken(ValueError("no broker"))

    assert (outcome.truth, outcome.findings, outcome.history) == (Truth.BROKEN, ("ValueError: no broker",), "")
    assert (outcome.seed, outcome.schedule, outcome.digest) == (3, str(schedule), schedule.digest)
