"""When an offset is committed again, and when the first one goes, by what was seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.kafka.model import Group, GroupState, GroupType, TopicPartition
from tidegate.kafka.offset_expiry import RetentionSettings
from tidegate.kafka.offset_records import GroupLog, LoggedCommit
from tidegate.kafka.offset_retention import Commit, Commits
from tidegate.retention.last_offsets import Place, Places
from tidegate.retention.plan import DAY_MS, KEPT_FOR_UNKNOWN_MS, Expiry, Seen, decide, expiry

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
WEEK_MS = 7 * DAY_MS
KEPT_MS = 10 * WEEK_MS
NOW_MS = 1000 * DAY_MS
SETTINGS = RetentionSettings(WEEK_MS, 600_000)
PLACE = Place(Commit(5), "topic-id", seen_ms=NOW_MS - DAY_MS)


def seen(kind: GroupType, *, log: GroupLog | None = None, occupied_ms: int | None = None, **rows: Place) -> Seen:
    """A vacant group that stands at 5 in the partitions named by ``rows`` (p0, p1)."""
    places = {{"p0": P0, "p1": P1}[name]: row for name, row in rows.items()}
    return Seen(
        now_ms=NOW_MS,
        group=Group("payments", GroupState.EMPTY, kind),
        commits=Commits({p: row.commit for p, row in places.items()}),
        places=Places(places, NOW_MS, occupied_ms, vacant=True),
        settings=SETTINGS,
        log=log,
        guard=True,
    )


def logged(*, ago_ms: int, explicit_for_ms: int | None = None) -> LoggedCommit:
    committed_ms = NOW_MS - ago_ms
    return LoggedCommit(5, committed_ms, None if explicit_for_ms is None else committed_ms + explicit_for_ms)


@pytest.mark.parametrize("kind", [GroupType.CLASSIC, GroupType.CONSUMER, GroupType.SIMPLE])
@pytest.mark.parametrize("kept_first", [True, False], ids=["kept before", "kept after"])
def test_without_the_log_the_retention_runs_from_the_last_that_is_known(kind: GroupType, kept_first: bool) -> None:
    """That members left, or that somebody committed; or that we kept it, if that was later."""
    earlier_ms, later_ms = NOW_MS - 3 * DAY_MS, NOW_MS - DAY_MS
    kept_ms, other_ms = (earlier_ms, later_ms) if kept_first else (later_ms, earlier_ms)
    look = seen(kind, occupied_ms=other_ms, p0=replace(PLACE, committed_after_ms=other_ms, kept_ms=kept_ms))

    assert expiry(look, P0) == Expiry(later_ms + WEEK_MS, exact=False, own_ms=KEPT_MS)
    assert decide(look).next_due_ms == later_ms + WEEK_MS // 2


def test_what_was_kept_is_committed_again_with_half_of_its_own_retention_left() -> None:
    log = GroupLog(commits={P0: logged(ago_ms=DAY_MS, explicit_for_ms=KEPT_MS)}, complete=True)

    plan = decide(seen(GroupType.SIMPLE, log=log, p0=PLACE))

    assert (plan.kept, plan.exact, dict(plan.due)) == (1, True, {})
    assert plan.next_due_ms == NOW_MS - DAY_MS + KEPT_MS // 2


@pytest.mark.parametrize("own_ms", [WEEK_MS, DAY_MS], ids=["as long", "shorter"])
def test_a_retention_no_longer_than_the_brokers_keeps_nothing(own_ms: int) -> None:
    """As an old client may ask for it."""
    log = GroupLog(commits={P0: logged(ago_ms=0, explicit_for_ms=own_ms)}, complete=True)

    plan = decide(seen(GroupType.SIMPLE, log=log, p0=PLACE))

    assert (plan.kept, plan.exact) == (0, True)
    assert dict(plan.due) == ({P0: Commit(5)} if own_ms < WEEK_MS // 2 else {})


def test_an_offset_is_kept_also_once_the_brokers_retention_was_raised() -> None:
    """It was committed with ten retentions of that time, and lasts longer than others still."""
    own_ms = KEPT_MS // 2
    log = GroupLog(commits={P0: logged(ago_ms=DAY_MS, explicit_for_ms=own_ms)}, complete=True)

    plan = decide(seen(GroupType.SIMPLE, log=log, p0=PLACE))

    assert (plan.kept, plan.exact, dict(plan.due)) == (1, True, {})
    assert plan.next_due_ms == NOW_MS - DAY_MS + own_ms // 2


@pytest.mark.parametrize(("own_ms", "kept"), [(KEPT_FOR_UNKNOWN_MS - 1, 0), (KEPT_FOR_UNKNOWN_MS, 1)])
def test_only_one_as_long_as_ours_counts_while_the_brokers_retention_is_unknown(own_ms: int, kept: int) -> None:
    log = GroupLog(commits={P0: logged(ago_ms=DAY_MS, explicit_for_ms=own_ms)}, complete=True)

    plan = decide(replace(seen(GroupType.SIMPLE, log=log, p0=PLACE), settings=None))

    assert (plan.kept, plan.exact) == (kept, True)


def test_the_first_of_several_counts() -> None:
    log = GroupLog(commits={P0: logged(ago_ms=DAY_MS), P1: logged(ago_ms=2 * DAY_MS)}, complete=True)

    plan = decide(seen(GroupType.SIMPLE, log=log, p0=PLACE, p1=PLACE))

    assert plan.expires_ms == NOW_MS - 2 * DAY_MS + WEEK_MS
    assert plan.next_due_ms == NOW_MS - 2 * DAY_MS + WEEK_MS // 2


def test_what_is_due_does_not_hide_when_the_next_one_is() -> None:
    log = GroupLog(commits={P0: logged(ago_ms=DAY_MS), P1: logged(ago_ms=4 * DAY_MS)}, complete=True)

    plan = decide(seen(GroupType.SIMPLE, log=log, p0=PLACE, p1=PLACE))

    assert dict(plan.due) == {P1: Commit(5)}
    assert plan.next_due_ms == NOW_MS - DAY_MS + WEEK_MS // 2
