"""What an audit asks of Kafka, in which order, how much of it, and what it says that it could not see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import pytest

from contract.kafka_worlds import FakeWorld
from support.fake_survey import SETTINGS, FakeSurvey
from support.stopped_streams import METADATA_2
from tidegate.inspection import gather
from tidegate.inspection.findings import FindingKind
from tidegate.inspection.gather import Asked, Audit
from tidegate.inspection.report import Report
from tidegate.inspection.resetting import Possible
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import GroupType, ListedGroup, LogBounds, TopicPartition
from tidegate.kafka.needed_rights import needs_of_audit
from tidegate.kafka.offset_records import GroupLog
from tidegate.resources.reset import Way

ONCE = timedelta(0)
SETTLED = Asked(exact=0)


class Stage:
    """A topic ``contract-0`` of two partitions with 100 records each."""

    def __init__(self) -> None:
        self.world = FakeWorld()
        self.survey = FakeSurvey(self.world.kafka)
        self.topic = self.world.create_topic(2)
        self.world.kafka.fill(self.topic, 100)
        self.world.kafka.calls.clear()

    def at(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    def group(self, name: str, offset: int = 40) -> None:
        self.world.kafka.commit_directly(name, {self.at(0): offset, self.at(1): offset})

    def audit(self, asked: Asked = SETTLED) -> Report:
        return Audit(self.world.kafka, self.survey, self.world.clock, asked).report()

    def later(self, seconds: float, happens: Callable[[], object]) -> None:
        self.world.clock.after(seconds, lambda: happens() and None)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def groups_of(report: Report, kind: FindingKind) -> set[str | None]:
    return {finding.group for finding in report.findings if finding.kind is kind}


def test_the_looks_are_as_far_apart_as_asked_and_see_what_happens_between_them(stage: Stage) -> None:
    stage.group("idle")
    stage.later(5, lambda: stage.world.kafka.fill(stage.topic, 10))
    began = stage.world.clock.monotonic()

    report = stage.audit()

    assert stage.world.clock.monotonic() - began == 20
    assert groups_of(report, FindingKind.NOT_CONSUMED) == {"idle"}
    [finding] = [f for f in report.findings if f.kind is FindingKind.NOT_CONSUMED]
    assert [p.grown for p in finding.partitions] == [10, 10]
    assert "20 s apart" in finding.known


def test_one_look_neither_waits_nor_compares(stage: Stage) -> None:
    stage.group("idle")
    began = stage.world.clock.monotonic()
    report = stage.audit(Asked(watch=ONCE, exact=0))
    assert stage.world.clock.monotonic() == began
    assert report.watched is None
    assert groups_of(report, FindingKind.NOT_CONSUMED) == set()


def test_it_only_looks_and_probes_only_when_it_is_asked_to(stage: Stage) -> None:
    stage.group("idle")
    stage.world.consumer("live", [stage.topic])
    stage.world.kafka.calls.clear()

    stage.audit()
    assert set(stage.world.kafka.calls) <= {
        *("cluster", "capabilities without a probe", "topics", "groups", "committed_of", "log_bounds"),
        *("subscription_versions", "lacking", "committed_by_streams"),
    }
    stage.audit(Asked(watch=ONCE, probe=True))
    assert "capabilities" in stage.world.kafka.calls


def test_many_groups_are_asked_for_together(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "BATCH", 100)
    for number in range(250):
        stage.group(f"group-{number:03}")

    report = stage.audit()

    assert report.groups == 250
    calls = Counter(stage.world.kafka.calls)
    assert calls["committed_of"] == 6, "three batches, in each look"


def test_only_so_many_offsets_are_kept_for_comparing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "BATCH", 2)
    monkeypatch.setattr(gather, "MOST_COMPARED", 4)
    for name in ("a", "b", "c"):
        stage.group(name)
    stage.later(5, lambda: stage.world.kafka.fill(stage.topic, 10))

    report = stage.audit()

    assert groups_of(report, FindingKind.NOT_CONSUMED) == {"a", "b"}
    assert "whether 1 groups make progress" in {left.what for left in report.unseen}
    assert groups_of(report, FindingKind.OFFSETS_EXPIRE) == {"a", "b", "c"}, "the rest is looked at once"


@pytest.mark.parametrize(
    ("patterns", "seen"),
    [((), ["orders-a", "orders-b", "other"]), (("orders-*",), ["orders-a", "orders-b"]), (("other", "no"), ["other"])],
)
def test_which_groups(patterns: tuple[str, ...], seen: list[str], stage: Stage) -> None:
    for name in ("orders-a", "orders-b", "other", "tidegate.orders-a"):
        stage.group(name)
    assert [v.group for v in stage.audit(Asked(groups=patterns, watch=ONCE)).verdicts] == seen


def test_groups_of_other_kinds_are_judged_by_their_listing(stage: Stage) -> None:
    stage.survey.also_listed = [
        ListedGroup("workers", "connect", "classic", "Stable"),
        ListedGroup("wordcount", "streams", "streams", "Stable"),
        ListedGroup("queue", "share", "share", "Stable"),
    ]
    report = stage.audit()
    assert {v.group: v.possible for v in report.verdicts} == dict.fromkeys(
        ("workers", "wordcount", "queue"), Possible.NO
    )
    assert {"groups", "committed_of"}.isdisjoint(stage.world.kafka.calls), "nobody asks for what can't be told"


def test_strategies_are_chosen_by_what_members_say(stage: Stage) -> None:
    stage.world.consumer("eager", [stage.topic])
    stage.world.consumer("cooperative", [stage.topic], assignor="cooperative-sticky")
    stage.world.consumer("modern", [stage.topic], protocol=GroupType.CONSUMER)
    report = stage.audit(Asked(watch=ONCE))
    assert {v.group: v.way for v in report.verdicts} == {
        "eager": Way.BARRIER,
        "cooperative": Way.HANDOVER,
        "modern": Way.HANDOVER,
    }


def test_a_partition_without_a_leader_is_said_and_the_others_are_seen(stage: Stage) -> None:
    stage.group("idle")
    stage.world.kafka.take_offline(stage.at(1))
    stage.later(5, lambda: stage.world.kafka.fill(stage.topic, 10))

    report = stage.audit()

    [finding] = [f for f in report.findings if f.kind is FindingKind.NOT_CONSUMED]
    assert [p.partition for p in finding.partitions] == [0]
    assert f"the logs of 1 partitions, such as {stage.at(1)}" in {left.what for left in report.unseen}


def test_an_end_that_grew_since_another_batch_read_it_is_read_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the later group would seem to be past it."""
    monkeypatch.setattr(gather, "BATCH", 1)
    stage.group("a")
    stage.group("b", offset=100)

    class Growing(FakeSurvey):
        """The log grows right after its end was read, and the second group commits the new records as read."""

        reads = 0

        def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
            told = super().bounds(partitions)
            Growing.reads += 1
            if Growing.reads == 1:
                stage.world.kafka.fill(stage.topic, 10)
                stage.group("b", offset=110)
            return told

    stage.survey = Growing(stage.world.kafka)
    assert groups_of(stage.audit(Asked(watch=ONCE, exact=0)), FindingKind.PAST_LOG_END) == set()
    assert Growing.reads > 2

    stage.group("b", offset=111)
    assert groups_of(stage.audit(Asked(watch=ONCE, exact=0)), FindingKind.PAST_LOG_END) == {"b"}


def test_an_end_that_nobody_tells_again_is_none_that_an_offset_could_be_past(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "BATCH", 1)
    stage.group("a")
    stage.group("b", offset=100)

    class LosesItsLeader(FakeSurvey):
        """Right after the end was read, the log grows, the second group goes on, and then a leader is away."""

        reads = 0

        def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
            told = super().bounds(partitions)
            LosesItsLeader.reads += 1
            if LosesItsLeader.reads == 1:
                stage.world.kafka.fill(stage.topic, 10)
                stage.group("b", offset=110)
                stage.world.kafka.take_offline(stage.at(1))
            return told

    stage.survey = LosesItsLeader(stage.world.kafka)
    report = stage.audit(Asked(watch=ONCE, exact=0))

    assert groups_of(report, FindingKind.PAST_LOG_END) == set()
    assert f"the logs of 1 partitions, such as {stage.at(1)}" in {left.what for left in report.unseen}
    assert report.partitions == 1


def test_how_a_log_ended_says_nothing_of_that_of_a_topic_made_again_meanwhile(stage: Stage) -> None:
    stage.group("payments")
    kafka = stage.world.kafka
    for number in (0, 1):
        kafka.delete_records(stage.at(number), 30)

    def made_again() -> None:
        kafka.delete_topic(stage.topic)
        kafka.create_topic(stage.topic, 2)
        kafka.fill(stage.topic, 20)
        stage.group("payments", offset=7)
        kafka.create_topic("added", 1)
        kafka.commit_directly("payments", {TopicPartition("added", 0): 0})

    stage.later(5, made_again)

    report = stage.audit()

    assert groups_of(report, FindingKind.LOST_TO_RETENTION) == set()
    assert report.partitions == 3, "what was made meanwhile is looked at, too"


@contextmanager
def refusing(stage: Stage, call: str, failure: Exception) -> Iterator[None]:
    before = getattr(stage.survey, call)

    def refuse(*_: object) -> None:
        raise failure

    setattr(stage.survey, call, refuse)
    yield
    setattr(stage.survey, call, before)


def test_settings_that_may_not_be_read_are_said_and_no_time_is_told(stage: Stage) -> None:
    stage.group("idle")
    with refusing(stage, "broker_settings", NotAuthorized("no")):
        report = stage.audit()
    assert "DescribeConfigs on cluster" in {left.right for left in report.unseen}
    assert report.settings == {}
    [finding] = [f for f in report.findings if f.kind is FindingKind.OFFSETS_EXPIRE]
    assert "it is not known when they expire" in finding.what
    assert stage.audit().settings["offsets.retention.minutes"] == (SETTINGS["offsets.retention.minutes"],)


def test_subscriptions_that_were_not_told_leave_the_strategy_open(stage: Stage) -> None:
    stage.world.consumer("eager", [stage.topic])
    stage.world.kafka.commit_directly("eager", {stage.at(0): 1, stage.at(1): 1})
    with refusing(stage, "subscriptions", Unavailable("the coordinator is moving")):
        report = stage.audit(Asked(watch=ONCE))
    [verdict] = report.verdicts
    assert (verdict.possible, verdict.way) == (Possible.YES, None)
    assert "the subscriptions of 1 groups" in {left.what for left in report.unseen}


def test_capabilities_that_were_not_told_are_said(stage: Stage) -> None:
    stage.world.kafka.fail("capabilities without a probe", Unavailable("no broker"))
    report = stage.audit()
    assert report.capabilities == {}
    assert "what the brokers allow a reset" in {left.what for left in report.unseen}


def test_a_coordinator_that_is_away_hides_its_groups_and_nothing_else(stage: Stage) -> None:
    stage.group("idle")
    stage.world.kafka.fail("committed_of", Unavailable("no coordinator"))
    report = stage.audit()
    assert report.groups == 0
    assert any(left.what == "1 of 1 groups, such as idle" and left.why == "no coordinator" for left in report.unseen)


@pytest.mark.parametrize(("exact", "told"), [(0, 0), (1, 1), (5, 2)])
def test_only_so_many_groups_get_exact_times(exact: int, told: int, stage: Stage) -> None:
    stage.group("a")
    stage.group("b")
    report = stage.audit(Asked(watch=ONCE, exact=exact))
    assert sum(f.known.startswith("Exact") for f in report.findings) == told
    left = [left for left in report.unseen if left.what.startswith("exactly when")]
    assert [row.what for row in left] == (
        [f"exactly when the offsets of {2 - told} more groups without members expire"] if told < 2 else []
    )


def test_logs_are_read_for_so_long_and_no_longer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is never read to its end keeps nobody waiting for ever."""
    for name in ("a", "b"):
        stage.group(name)

    def endless(_: str, since: GroupLog) -> GroupLog:
        stage.world.clock.sleep(9)
        return since

    monkeypatch.setattr(stage.world.kafka.retention, "log", endless)
    began = stage.world.clock.monotonic()
    report = stage.audit(Asked(watch=ONCE, exact=5))

    assert stage.world.clock.monotonic() - began < gather.LOGS_S + 10
    assert all(f.known.startswith("Estimated") for f in report.findings if f.kind is FindingKind.OFFSETS_EXPIRE)
    assert any(
        left.what == "exactly when the offsets of 2 more groups without members expire" for left in report.unseen
    )


def test_a_cluster_that_is_not_there_is_a_failure(stage: Stage) -> None:
    stage.world.kafka.fail("cluster", Unavailable("nobody answers"))
    with pytest.raises(Unavailable, match="nobody answers"):
        stage.audit()


def test_the_rights_that_are_documented_are_read_only() -> None:
    needs = needs_of_audit(("payments-*", "orders"), ("orders",))
    assert [str(need.right) for need in needs] == [
        "Describe on groups that begin with payments-",
        "Describe on group orders",
        "Describe on topic orders",
        "DescribeConfigs on cluster",
        "Read on topic __consumer_offsets",
    ]
    assert [bool(need.unless) for need in needs] == [False, False, False, True, True]


def test_an_audit_goes_on_where_it_is_not_known_which_groups_are_streams_applications(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.group("idle")

    def refuse(_: Collection[str]) -> frozenset[str]:
        raise Unavailable("coordinator 1 does not answer")

    monkeypatch.setattr(stage.world.kafka, "committed_by_streams", refuse)
    report = stage.audit()

    assert report.groups == 1
    [unseen] = [each for each in report.unseen if "Kafka Streams" in each.what]
    assert unseen.why == "coordinator 1 does not answer"


def test_what_a_stopped_streams_application_has_left_is_looked_for(stage: Stage) -> None:
    stage.world.kafka.commit_directly("shop", {TopicPartition(stage.topic, 0): 0}, METADATA_2)
    stage.world.kafka.create_topic("shop-count-changelog", 1)

    [found] = [each for each in stage.audit().verdicts if each.group == "shop"]
    assert (found.possible, found.way) == (Possible.NO, None)
    assert "shop-count-changelog" in found.because
