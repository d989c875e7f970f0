"""What alerts ask of counters: that these are there before the first event, for every label that they can get."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidegate.discovery.starts import Outcome
from tidegate.inject.metrics import InjectionMetrics
from tidegate.offset_reset.ends import RUN_ENDS
from tidegate.reset.planning import plan, refusals
from tidegate.reset.runs import fleet, reasons, request
from tidegate.resources.reset import ResetPhase
from tidegate.service.metrics import Metrics

CHART = Path(__file__).parents[3] / "charts" / "tidegate"
ALERTS = (CHART / "templates" / "prometheusrule.yaml").read_text()
INCREASING = sorted(set(re.findall(r"(?:increase|rate)\((tidegate_\w+)", ALERTS)))


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics()
    made.runs_may_end(RUN_ENDS)
    InjectionMetrics(made.registry)
    return made


def labels_of(metrics: Metrics, name: str) -> set[tuple[str, ...]]:
    """The label values of the series that are there, all at 0."""
    found = [s for family in metrics.registry.collect() for s in family.samples if s.name == name]
    assert {sample.value for sample in found} <= {0}
    return {tuple(sample.labels.values()) for sample in found}


def test_the_alerts_on_counters_are_known() -> None:
    assert INCREASING == [
        "tidegate_new_partitions_total",
        "tidegate_runs_finished_total",
        "tidegate_webhook_admissions_total",
    ]


def test_what_alerts_count_is_there_before_the_first_event(metrics: Metrics) -> None:
    """``increase()`` of a series that appears with its first event is 0: that event would never be alerted of."""
    partitions = {(outcome.value,) for outcome in Outcome} | {("Backfilled",), ("TooOld",)}
    assert labels_of(metrics, "tidegate_new_partitions_total") == partitions
    assert labels_of(metrics, "tidegate_runs_finished_total") == set(RUN_ENDS)
    assert ("Failed",) in labels_of(metrics, "tidegate_webhook_admissions_total")


def test_every_label_that_an_alert_selects_is_one_that_there_is(metrics: Metrics) -> None:
    phases = labels_of(metrics, "tidegate_runs") | labels_of(metrics, "tidegate_pauses")
    known = {value for name in INCREASING for labels in labels_of(metrics, name) for value in labels}
    known |= {value for labels in phases for value in labels}
    asked = {v for values in re.findall(r'\b(?:phase|outcome)[!=~]+"([^"{]+)"', ALERTS) for v in values.split("|")}

    assert {"Degraded", "Overtaken", "Succeeded"} <= asked <= known


def test_a_runs_end_is_one_of_the_final_phases() -> None:
    assert {outcome for outcome, _ in RUN_ENDS} == {
        p.value for p in (ResetPhase.SUCCEEDED, ResetPhase.FAILED, ResetPhase.ROLLED_BACK)
    }
    assert len(set(RUN_ENDS)) == len(RUN_ENDS)


def test_the_resources_that_are_not_observed_are_counted_and_then_not() -> None:
    metrics = Metrics()
    metrics.unobserved(2)
    assert metrics.registry.get_sample_value("tidegate_unobserved_resources") == 2
    metrics.unobserved(0)
    assert metrics.registry.get_sample_value("tidegate_unobserved_resources") == 0


def test_each_reason_of_resets_ends_a_run_or_is_known_not_to() -> None:
    named = {
        value
        for module in (fleet, plan, refusals, request, reasons)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str) and re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][a-z]*)*", value)
    }

    assert named - {reason for _, reason in RUN_ENDS} == {
        *(
            "InvalidSpec",
            "UndoRunNotFound",
            "NothingToUndo",
        ),  # no run begins
        *("WaitingForConnection", "WaitingForReset", "WaitingForQuota", "Suspended"),
        *("UndoneResetNotEnded", "NotAskedFor", "UnreadableStatus"),  # it may begin later
        *("Approved", "AnnotationApprovesNothing"),  # Events of a plan that waits
        *("Reading", "NotKnownYet", "NotLookedAt"),  # about the condition ReadFromTarget
    }


@pytest.mark.parametrize("kind", ["pause", "run"])
def test_a_pass_without_news_counts_nothing_again(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    metrics, counted = Metrics(), Metrics()
    tell = {"pause": lambda of: of.pause_is("u", "Paused", 3), "run": lambda of: of.run_is("u", "Planning")}[kind]
    tell(metrics)
    name, phase = {"pause": ("tidegate_pauses", "Paused"), "run": ("tidegate_runs", "Planning")}[kind]
    assert metrics.registry.get_sample_value(name, {"phase": phase}) == 1
    monkeypatch.setattr("tidegate.service.metrics.Tally", None)

    tell(metrics)

    with pytest.raises(TypeError):
        tell(counted)


def oldest_run_s(metrics: Metrics) -> float:
    age = metrics.registry.get_sample_value("tidegate_oldest_run_age_seconds")
    assert age is not None
    return age


def test_the_oldest_run_is_not_hidden_by_others_that_end(metrics: Metrics) -> None:
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert oldest_run_s(metrics) == 0
    metrics.run_is("stuck", "Applying", since=hour_ago)
    metrics.run_is("quick", "Planning", since=datetime.now(UTC))
    metrics.run_is("quick", "Succeeded")
    metrics.run_is("stuck", "Verifying", since=hour_ago)
    assert 3600 <= oldest_run_s(metrics) < 3700

    metrics.run_is("stuck", "RolledBack")
    assert oldest_run_s(metrics) == 0


@pytest.mark.parametrize(("phase", "waiting"), [("AwaitingApproval", False), ("Replaying", False), ("Planning", True)])
def test_a_run_that_waits_is_not_in_progress(metrics: Metrics, phase: str, waiting: bool) -> None:
    """And once it goes on, it has been in progress from then on."""
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    metrics.run_is("u", phase, waiting=waiting, since=hour_ago)
    assert oldest_run_s(metrics) == 0
    metrics.run_is("u", "Applying", since=hour_ago)
    assert oldest_run_s(metrics) < 100
    metrics.run_is("u", None)
    assert oldest_run_s(metrics) == 0
