"""What is found about a group's partitions, and what is not: nothing that was not seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.audited import Ends, cluster, findings, group, member, seen
from tidegate.inspection.findings import MOST_PARTITIONS, Finding, FindingKind, Severity
from tidegate.inspection.seen import GroupSeen
from tidegate.kafka.model import Group, GroupState, GroupType, ListedGroup

GROWS: Ends = {0: (0, 110), 1: (0, 110)}
GREW: Ends = {0: (0, 100), 1: (0, 100)}


def of_kind(what: GroupSeen, kind: FindingKind) -> list[Finding]:
    return [finding for finding in findings(what) if finding.kind is kind]


def kinds(what: GroupSeen) -> set[FindingKind]:
    return {finding.kind for finding in findings(what)}


def twice(described: Group, before: dict[int, int], after: dict[int, int]) -> GroupSeen:
    return seen(described, after, before=before, ends=GROWS, ends_before=GREW)


def test_a_partition_whose_owner_commits_elsewhere_is_stuck() -> None:
    [found] = of_kind(twice(group(member("c1", 0, 1)), {0: 40, 1: 90}, {0: 40, 1: 105}), FindingKind.NO_PROGRESS)

    assert found.severity is Severity.CRITICAL
    assert found.what == (
        "1 partition of c1 at 10.0.0.7 (member c1-4f1c): nothing committed while 10 records arrived, 70 records to read"
    )
    assert found.known.startswith("By two looks 20 s apart")
    assert found.known.endswith("The same member committed on 1 other partition meanwhile")
    [partition] = found.partitions
    assert (partition.committed, partition.log_end, partition.grown, partition.lag) == (40, 110, 10, 70)
    assert partition.owner == "c1 at 10.0.0.7 (member c1-4f1c)"


def test_an_owner_that_commits_nothing_at_all_may_only_be_slow() -> None:
    [found] = of_kind(twice(group(member("c1", 0, 1)), {0: 40, 1: 90}, {0: 40, 1: 90}), FindingKind.NO_PROGRESS)

    assert found.severity is Severity.WARNING
    assert found.partition_count == 2
    assert "it is also possible that it commits less often" in found.known


def test_each_owner_is_told_for_itself() -> None:
    described = group(member("c1", 0), member("c2", 1))
    found = of_kind(twice(described, {0: 40, 1: 90}, {0: 40, 1: 90}), FindingKind.NO_PROGRESS)
    assert [f.partitions[0].owner for f in found] == [
        "c1 at 10.0.0.7 (member c1-4f1c)",
        "c2 at 10.0.0.7 (member c2-4f1c)",
    ]


@pytest.mark.parametrize(
    ("before", "after", "ends_before", "ends"),
    [
        ({0: 40}, {0: 41}, (0, 100), (0, 110)),
        ({0: 100}, {0: 100}, (0, 100), (0, 110)),
        ({0: 40}, {0: 40}, (0, 100), (0, 100)),
        ({}, {0: 40}, (0, 100), (0, 110)),
        ({0: 60}, {0: 40}, (0, 100), (0, 110)),
    ],
    ids=["moved", "had nothing to read", "has not grown", "new commit", "went back"],
)
def test_what_is_no_standstill(
    before: dict[int, int], after: dict[int, int], ends_before: tuple[int, int], ends: tuple[int, int]
) -> None:
    what = seen(group(member("c1", 0)), after, before=before, ends={0: ends}, ends_before={0: ends_before})
    assert FindingKind.NO_PROGRESS not in kinds(what)


def test_one_look_tells_nothing_of_progress() -> None:
    assert kinds(seen(group(member("c1", 0)), {0: 40}, ends={0: (0, 100)})) == set()


def test_an_end_that_was_not_told_is_no_end() -> None:
    what = seen(group(member("c1", 0)), {0: 40}, before={0: 40}, ends={}, ends_before={0: (50, 100)})
    assert kinds(what) == {FindingKind.LOST_TO_RETENTION}, "the start was told, the end was not"
    assert kinds(seen(group(member("c1", 0)), {0: 40}, before={0: 40})) == set()


def test_a_partition_without_an_owner_beside_others_that_have_one() -> None:
    [found] = of_kind(twice(group(member("c1", 0)), {0: 90, 1: 40}, {0: 105, 1: 40}), FindingKind.NOT_OWNED)

    assert found.severity is Severity.CRITICAL
    assert found.what == "1 partition without an owner, 70 records to read"


@pytest.mark.parametrize("state", [s for s in GroupState if s is not GroupState.STABLE], ids=str)
def test_who_owns_what_is_only_told_by_a_stable_group(state: GroupState) -> None:
    moving = replace(group(member("c1", 0)), state=state)
    assert FindingKind.NOT_OWNED not in kinds(twice(moving, {0: 90, 1: 40}, {0: 105, 1: 40}))


def test_a_topic_that_no_member_reads_is_nobodys_on_purpose() -> None:
    described = group(member("c1", 0, topic="refunds"))
    assert kinds(twice(described, {0: 40}, {0: 40})) == {FindingKind.UNSUBSCRIBED, FindingKind.WITHOUT_COMMIT}


def test_a_group_without_members_whose_topics_grow() -> None:
    [found] = of_kind(twice(group(), {0: 40, 1: 90}, {0: 40, 1: 90}), FindingKind.NOT_CONSUMED)

    assert found.severity is Severity.WARNING
    assert found.what == "no members; 20 records arrived in 2 partitions, 90 records to read"


@pytest.mark.parametrize(("members", "severity"), [((), Severity.WARNING), ((0,), Severity.CRITICAL)])
def test_records_that_were_lost_are_worse_where_somebody_reads(members: tuple[int, ...], severity: Severity) -> None:
    described = group(*([member("c1", *members)] if members else []))
    [found] = of_kind(
        seen(described, {0: 40}, before={0: 40}, ends={0: (70, 110)}, ends_before={0: (50, 100)}),
        FindingKind.LOST_TO_RETENTION,
    )

    assert found.severity is severity
    assert found.what.startswith("1 partition: 10 offsets between"), "by the start that was read before the offset"


def test_a_log_that_moved_on_after_the_offset_was_read_has_lost_nothing_for_certain() -> None:
    what = seen(group(member("c1", 0)), {0: 60}, before={0: 40}, ends={0: (70, 110)}, ends_before={0: (50, 100)})
    assert FindingKind.LOST_TO_RETENTION not in kinds(what)


def test_an_offset_past_the_end() -> None:
    [found] = of_kind(seen(group(member("c1", 0)), {0: 111}, ends={0: (0, 110)}), FindingKind.PAST_LOG_END)
    assert (found.severity, found.what) == (Severity.CRITICAL, "1 partition: committed up to 1 offset past the end")
    assert found.partitions[0].lag == 0
    assert of_kind(seen(group(), {0: 110}, ends={0: (0, 110)}), FindingKind.PAST_LOG_END) == []


def test_partitions_that_were_added_and_have_records() -> None:
    ends: Ends = {0: (0, 10), 1: (0, 10), 2: (0, 7), 3: (0, 0)}
    [found] = of_kind(seen(group(member("c1", 0, 1, 2)), {0: 10, 1: 10}, ends=ends), FindingKind.WITHOUT_COMMIT)

    assert [p.partition for p in found.partitions] == [2], "the last one has no record that could be skipped"
    assert found.what == (
        "1 partition with records and no committed offset, 1 of them owned by a member: 7 records in the logs now"
    )
    assert "as is the case for partitions that were added" in found.known


def test_a_partition_whose_records_are_all_gone_has_none_that_could_be_skipped() -> None:
    ends: Ends = {0: (0, 10), 1: (7, 7)}
    assert FindingKind.WITHOUT_COMMIT not in kinds(seen(group(member("c1", 0, 1)), {0: 10}, ends=ends))


def test_a_gap_between_committed_partitions_is_told_from_added_ones() -> None:
    ends: Ends = dict.fromkeys(range(4), (0, 10))
    [found] = of_kind(seen(group(), {0: 10, 2: 10}, ends=ends), FindingKind.WITHOUT_COMMIT)
    assert "numbers above those of all partitions with a committed offset: 1 of 2" in found.known


def test_a_group_that_rebalances_at_both_looks() -> None:
    joining = Group("payments", GroupState.PREPARING_REBALANCE, GroupType.CLASSIC, "range", (member("c1"),))
    listed = ListedGroup("payments", "consumer", "classic", "CompletingRebalance")
    what = seen(joining, {0: 40}, before={0: 40}, ends=GROWS, ends_before=GREW, listed=listed)
    assert FindingKind.REBALANCING in kinds(what)
    assert FindingKind.REBALANCING not in kinds(replace(what, listed=replace(listed, state="Stable")))
    assert FindingKind.REBALANCING not in kinds(replace(what, before=None)), "one look"


def test_many_partitions_are_counted_and_those_with_most_to_read_kept() -> None:
    count = MOST_PARTITIONS + 5
    before: Ends = {n: (0, 100 + n) for n in range(count)}
    ends: Ends = {n: (0, 200 + n) for n in range(count)}
    offsets = dict.fromkeys(range(count), 50)
    what = seen(group(), offsets, before=offsets, ends=ends, ends_before=before)
    [found] = [f for f in findings(what, cluster(partitions=count)) if f.kind is FindingKind.NOT_CONSUMED]

    assert found.partition_count == count
    assert [p.partition for p in found.partitions] == list(range(count - 1, 4, -1))


def test_a_group_that_cannot_be_described_has_no_owner_and_no_claim() -> None:
    listed = ListedGroup("payments", "consumer", "streams", "Stable")
    assert kinds(seen(None, {0: 40}, before={0: 40}, ends=GROWS, ends_before=GREW, listed=listed)) == {
        FindingKind.WITHOUT_COMMIT,
        FindingKind.NOT_RESETTABLE,
    }
