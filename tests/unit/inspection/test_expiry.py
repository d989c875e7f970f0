"""When committed offsets expire, as far as it is known, and how well."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from support.audited import DAY, NOW_MS, SETTINGS, cluster, findings, group, member, seen
from tidegate.inspection.findings import Finding, FindingKind, Severity
from tidegate.inspection.seen import ClusterSeen, GroupSeen
from tidegate.kafka.model import GroupState, GroupType, Subscription, TopicPartition
from tidegate.kafka.offset_records import GroupLog, LoggedCommit

DAY_MS = DAY // timedelta(milliseconds=1)


def expiring(what: GroupSeen, of: ClusterSeen | None = None) -> list[Finding]:
    return [finding for finding in findings(what, of) if finding.kind is FindingKind.OFFSETS_EXPIRE]


def log(
    committed_days_ago: float, *, emptied_days_ago: float | None = None, explicit_ms: int | None = None
) -> GroupLog:
    commit = LoggedCommit(40, int(NOW_MS - committed_days_ago * DAY_MS), explicit_ms)
    emptied = None if emptied_days_ago is None else int(NOW_MS - emptied_days_ago * DAY_MS)
    return GroupLog(100, complete=True, commits={TopicPartition("orders", 0): commit}, emptied_ms=emptied)


@pytest.mark.parametrize(
    ("logged", "severity", "what"),
    [
        (log(1, emptied_days_ago=6.5), Severity.CRITICAL, "expires at 2026-11-26T15:00:00Z"),
        (log(9, emptied_days_ago=2), Severity.WARNING, "expires at 2026-12-01T03:00:00Z"),
        (log(9, emptied_days_ago=8), Severity.CRITICAL, "has been due for removal since 2026-11-25T03:00:00Z"),
    ],
    ids=["soon", "later", "due"],
)
def test_exact_where_the_coordinators_log_was_read(logged: GroupLog, severity: Severity, what: str) -> None:
    [found] = expiring(seen(group(), {0: 40}, log=logged))

    assert found.severity is severity
    assert found.what == f"no members; 1 committed offset, of which the first {what}"
    assert found.known.startswith("Exact")
    assert found.partitions[0].expires_ms is not None


def test_a_kip_848_group_counts_from_the_commit() -> None:
    [found] = expiring(seen(group(kind=GroupType.CONSUMER), {0: 40}, log=log(6.5)))
    assert found.severity is Severity.CRITICAL


def test_offsets_with_a_longer_retention_of_their_own_are_no_finding() -> None:
    kept = log(1, emptied_days_ago=6.5, explicit_ms=NOW_MS + 60 * DAY_MS)
    assert expiring(seen(group(), {0: 40}, log=kept)) == []


@pytest.mark.parametrize(
    "logged",
    [
        None,
        replace(log(1, emptied_days_ago=6.5), complete=False),
        replace(log(1, emptied_days_ago=6.5), unreadable=1),
        GroupLog(complete=True),
        replace(log(1), commits={TopicPartition("orders", 0): LoggedCommit(39, NOW_MS)}),
    ],
    ids=["not read", "not to its end", "not understood", "without this commit", "of an earlier commit"],
)
def test_otherwise_only_the_latest_possible_time_is_told(logged: GroupLog | None) -> None:
    [found] = expiring(seen(group(), {0: 40}, log=logged))

    assert found.severity is Severity.WARNING
    assert found.what.endswith("each of which expires at some time before 2026-12-03T03:00:00Z")
    assert found.known.startswith("Estimated")


def test_without_the_brokers_settings_no_time_is_told() -> None:
    [found] = expiring(seen(group(), {0: 40}, log=log(1)), cluster({}))
    assert found.what == "no members; 1 committed offset, and it is not known when they expire"


def test_the_shortest_retention_of_any_broker_counts() -> None:
    short = {**SETTINGS, "offsets.retention.minutes": "1440"}
    [found] = expiring(seen(group(), {0: 40}), cluster(SETTINGS, short))
    assert "before 2026-11-27T03:00:00Z" in found.what
    assert "The retention is 1 day" in found.known


@pytest.mark.parametrize("kind", [GroupType.CLASSIC, GroupType.CONSUMER], ids=str)
def test_nothing_that_members_subscribe_to_expires(kind: GroupType) -> None:
    assert findings(seen(group(member("c1", 0), kind=kind), {0: 40}, log=log(30))) == ()


def test_a_group_without_members_whose_offsets_move_is_in_use() -> None:
    what = seen(group(kind=GroupType.SIMPLE), {0: 41}, before={0: 40}, ends={0: (0, 50)}, ends_before={0: (0, 50)})
    assert expiring(what) == []


def test_topics_that_were_unsubscribed_are_told_and_how_it_is_known() -> None:
    what = replace(
        seen(group(member("c1", 0))),
        committed={TopicPartition("orders", 0): 1, TopicPartition("refunds", 0): 1},
    )
    of = cluster(more=("refunds",))
    [found] = [f for f in findings(what, of) if f.kind is FindingKind.UNSUBSCRIBED]
    assert (found.severity, found.what) == (Severity.INFO, "1 committed offset of 1 topic: refunds")
    assert found.known == "By OffsetFetch and the members' subscriptions"

    said = {"c1-4f1c": Subscription(frozenset({"orders", "refunds"}))}
    assert findings(replace(what, subscriptions=said), of) == (), "subscribed, and it owns nothing of it"
    [found] = findings(replace(what, subscriptions={}, group=group(member("c1", 0), kind=GroupType.CONSUMER)), of)
    assert "they may subscribe to a topic" in found.known
    moving = replace(group(member("c1", 0)), state=GroupState.COMPLETING_REBALANCE)
    assert FindingKind.UNSUBSCRIBED not in {f.kind for f in findings(replace(what, group=moving), of)}


def test_offsets_of_topics_that_are_gone_say_nothing() -> None:
    what = replace(seen(group()), committed={TopicPartition("gone", 0): 40})
    assert findings(what) == ()
