from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from tidegate.resources import conditions
from tidegate.resources.conditions import Condition, ConditionStatus, find_condition, is_true, with_condition

NOW = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def reset(now: datetime, *, status: bool | None, generation: int = 1, message: str = "m") -> tuple[Condition, ...]:
    before = with_condition((), "Reset", False, reason="Planning", message="m", generation=1, now=NOW)
    return with_condition(before, "Reset", status, reason="Done", message=message, generation=generation, now=now)


def test_transition_time_stays_while_the_status_stays() -> None:
    (condition,) = reset(LATER, status=False, generation=2)

    assert condition.last_transition_time == NOW.replace(microsecond=0)
    assert (condition.reason, condition.observed_generation) == ("Done", 2)


def test_transition_time_moves_with_the_status() -> None:
    (condition,) = reset(LATER, status=True)

    assert condition.last_transition_time == LATER.replace(microsecond=0)


def test_unknown_is_a_status() -> None:
    assert reset(NOW, status=None)[0].status is ConditionStatus.UNKNOWN


def test_setting_the_same_again_changes_nothing() -> None:
    once = conditions.stalled((), reason="NoGroup", message="m", generation=3, now=NOW)

    assert conditions.stalled(once, reason="NoGroup", message="m", generation=3, now=LATER) == once


def test_the_three_kstatus_states_exclude_each_other() -> None:
    moving = conditions.reconciling((), reason="Planning", message="m", generation=1, now=NOW)
    stuck = conditions.stalled(moving, reason="Refused", message="m", generation=1, now=NOW)
    done = conditions.ready(stuck, reason="Succeeded", message="m", generation=1, now=LATER)

    assert [(c.type, c.status.value) for c in moving] == [("Ready", "False"), ("Reconciling", "True")]
    assert [(c.type, c.status.value) for c in stuck] == [("Ready", "False"), ("Stalled", "True")]
    assert [(c.type, c.status.value) for c in done] == [("Ready", "True")]
    assert is_true(done, "Ready")
    assert not is_true(done, "Stalled")
    assert find_condition(done, "Reset") is None


def test_other_conditions_are_left_alone() -> None:
    domain = reset(NOW, status=True)

    assert conditions.ready(domain, reason="R", message="m", generation=1, now=LATER)[0] == domain[0]


def test_written_as_kubernetes_writes_it() -> None:
    (condition,) = reset(LATER, status=True)

    assert condition.to_json() == {
        "type": "Reset",
        "status": "True",
        "reason": "Done",
        "message": "m",
        "lastTransitionTime": "2026-11-20T12:01:00Z",
        "observedGeneration": 1,
    }


def test_a_long_message_is_cut_and_a_reason_is_a_word() -> None:
    assert len(reset(NOW, status=True, message="x" * 40_000)[0].message) == conditions.MAX_MESSAGE
    with pytest.raises(ValidationError, match="reason"):
        with_condition((), "Reset", True, reason="not a word", message="", generation=1, now=NOW)
