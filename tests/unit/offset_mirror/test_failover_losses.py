"""What a failover waits for, and what it says was not copied: never less than that, and nothing that is not known."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from support.mirror.fake_cluster import FakeTarget
from support.mirror.passes import World, failed_back, failed_over
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import MIRRORS, EventType
from tidegate.mirror.model import Appended, Interrupted, Refusal, Tail
from tidegate.mirror.ports import GroupOffset, Target
from tidegate.offset_mirror import status as mirror_status
from tidegate.offset_mirror.copying import Copying

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.spec["topics"] = {"include": ["t", "u"]}
    world.one_pass()
    world.there._numbers = itertools.count(1000)
    world.copied()
    yield world
    world.close()


def warned_of(world: World) -> str:
    """The Event of the failover, which has to be a warning."""
    [happening] = [each for each in world.kube.happenings_of("m") if each.reason == "FailedOver"]
    assert happening.type is EventType.WARNING
    return happening.message


# --- what is waited for -----------------------------------------------------------------------------------------------


def test_a_topic_that_is_still_being_prepared_is_waited_for(world: World) -> None:
    world.here.create_topic("u", 1, {})
    world.here.write("u", 4)
    found = failed_over(world)

    assert [(topic.name, topic.ends, topic.lacks) for topic in found.topics] == [
        ("t", (20, 5), (0, 0)),
        ("u", (4,), (0,)),
    ]
    assert world.there.log("u").visible() == world.here.log("u").visible()


def test_a_failover_does_not_end_by_what_was_seen_before(world: World) -> None:
    """Topics that are there since are not known of while the clusters can't be looked at."""

    def nobody(_: Any) -> Any:
        raise Unavailable("nobody is there")

    settings, world.there.settings = world.there.settings, nobody  # type: ignore[method-assign]
    world.spec["failover"] = {}
    for _ in range(3):
        assert world.one_pass().reason == "FailoverDraining"
    assert "nobody is there" in world.condition("Ready").message
    assert "Stop the producers" not in world.condition("Ready").message

    world.there.settings = settings  # type: ignore[method-assign]
    assert failed_over(world).not_copied == 0


def test_what_keeps_a_copy_from_being_written_stays_to_be_seen(world: World) -> None:
    world.there.log("t").foreign()
    world.here.write("t", 5)
    world.passes(lambda: world.condition("Drifted").status == "True")
    world.spec["failover"] = {}
    said = world.one_pass()

    assert said.reason == "CopiesDrifted"
    assert world.condition("Stalled").reason == "CopiesDrifted"
    assert "such as t-0: a batch for offset 20 was written at 21" in said.message
    assert "The failover waits: only 1 of 2 copies are in sync; to fail over anyway, set spec" in said.message
    assert world.status.failover is None


def somebody_else_wrote(world: World) -> str:
    world.there.write("t", 3)
    return "the copy of t-0 ends at offset 23 at the target instead of 20"


def the_target_lost_records(world: World) -> str:
    """By an unclean election."""
    log = world.there.log("t")
    log.log = [one for one in log.log if one.until <= 15]
    return f"the copy of t-0 ends at offset {log.end} at the target instead of 20"


def the_copy_has_no_leader(world: World) -> str:
    world.there.headless = {TopicPartition("t", 0)}
    return "t-0 has no leader"


@pytest.mark.parametrize("happens", [somebody_else_wrote, the_target_lost_records, the_copy_has_no_leader])
def test_a_drain_looks_at_the_target_before_it_ends(happens: Callable[[World], str], world: World) -> None:
    """The source is idle: nothing has been written that would have shown it."""
    says = happens(world)
    world.spec["failover"] = {}
    world.one_pass()
    if says not in world.condition("Ready").message:
        world.passes(lambda: says in world.condition("Ready").message)
    for _ in range(5):
        world.one_pass()

    assert world.status.failover is None


# --- what was not copied ----------------------------------------------------------------------------------------------


def test_a_topic_that_was_never_begun_is_counted(world: World) -> None:
    world.here.create_topic("u", 2, {})
    world.here.write("u", 4, 1)
    found = failed_over(world, acceptLoss=True)

    [_, never] = found.topics
    assert (never.name, never.ends, never.lacks, never.message) == ("u", (0, 0), (0, 4), "it was never copied")
    assert found.not_copied == 4
    assert "4 offset(s) of the source were not copied. u: it was never copied" in warned_of(world)


def test_a_topic_that_could_never_be_copied_is_counted(world: World) -> None:
    world.here.create_topic("u", 1, {})
    world.here.write("u", 4)
    world.there.create_topic("u", 1, {"retention.ms": "5"})
    world.there.write("u", 1)
    world.passes(lambda: world.condition("Drifted").status == "True")
    found = failed_over(world, acceptLoss=True)

    assert found.not_copied == 4
    assert world.there.log("u").end == 1


def test_a_partition_that_was_added_at_the_source_is_counted(world: World) -> None:
    world.here.add_partitions("t", 3)
    world.here.write("t", 6, 2)
    found = failed_over(world, acceptLoss=True)

    [topic] = found.topics
    assert (topic.ends, topic.lacks, found.not_copied) == ((20, 5, 0), (0, 0, 6), 6)


def drifted(world: World) -> None:
    world.there.log("t").foreign()
    world.here.write("t", 5)
    world.passes(lambda: world.condition("Drifted").status == "True")


def drifted_unwritten(world: World) -> None:
    """The process has found it; no pass has written it."""
    world.there.log("t").foreign()
    world.here.write("t", 5)
    [copying] = world.copying

    async def found() -> None:
        for _ in range(1000):
            if any(course.drifted for course in copying.courses()):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(copying.courses())

    world.run(found())
    assert "Drifted" not in [row.state for row in world.status.topics]


def created_again(world: World) -> None:
    del world.here.kept["t"]
    world.here.create_topic("t", 2, {})
    world.here.write("t", 30)


def deleted_at_the_target(world: World) -> None:
    del world.there.kept["t"]


def deleted_at_the_source(world: World) -> None:
    del world.here.kept["t"]


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (
            drifted,
            "its copy had drifted from the source",
        ),
        (created_again, "it was deleted and created again at the source"),
        (deleted_at_the_target, "there is no copy to compare with"),
        (deleted_at_the_source, "the source no longer has this topic, or does not show it"),
    ],
)
def test_what_is_not_known_is_not_said_to_be_nothing(happens: Callable[[World], None], says: str, world: World) -> None:
    world.here.create_topic("u", 1, {})
    world.here.write("u", 2)
    world.passes(lambda: len(world.status.topics) == 2)
    world.copied()
    world.run(world.reconciler.stop())
    world.restart()
    world.here.write("u", 3)
    happens(world)
    end = world.there.log("u").end
    found = failed_over(world, acceptLoss=True)

    [topic, other] = found.topics
    assert (topic.lacks, found.not_copied, found.source_answered) == (None, None, True)
    assert topic.unknown == says
    assert other.lacks == (5 - end,)
    assert (
        f"at least {5 - end} offset(s) of the source were not copied; for 1 topic(s) the number is not known"
        in warned_of(world)
    )


def test_a_drift_that_no_pass_has_written_yet_is_told_of(world: World) -> None:
    drifted_unwritten(world)
    found = failed_over(world, acceptLoss=True)

    [topic] = found.topics
    assert (topic.lacks, found.not_copied) == (None, None)
    assert topic.unknown == "its copy had drifted from the source"
    assert "for 1 topic(s) the number is not known" in warned_of(world)
    # And who goes back does not take it over.
    failed_back(world)
    world.one_pass()
    world.passes(lambda: world.condition("Ready").reason in ("CopiesInSync", "CopiesDrifted"))
    assert "topic t can't be taken over" in world.condition("Ready").message


def test_a_drift_that_the_last_step_finds_is_told_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent before the copying was stopped is answered afterwards."""
    sent, stopped, append, stop = threading.Event(), threading.Event(), FakeTarget.append, Copying.stop

    def late(target: FakeTarget, batches: tuple[bytes, ...]) -> Appended | Interrupted:
        sent.set()
        assert stopped.wait(10)
        return append(target, batches)

    async def stopping(copying: Copying) -> None:
        ends = asyncio.ensure_future(stop(copying))
        await asyncio.sleep(0)
        stopped.set()
        await ends

    monkeypatch.setattr(FakeTarget, "append", late)
    monkeypatch.setattr(Copying, "stop", stopping)
    world.there.log("t").foreign()
    world.here.write("t", 5)
    assert world.run(asyncio.to_thread(sent.wait, 10))
    [topic] = failed_over(world, acceptLoss=True).topics

    assert topic.unknown == "its copy had drifted from the source"


def test_a_drift_that_is_found_while_a_connection_is_in_trouble_is_written(world: World) -> None:
    world.connect("here", trouble=("KafkaUnavailable", "nobody is there"))
    world.one_pass()
    drifted_unwritten(world)
    world.one_pass()

    assert [row.state for row in world.status.topics] == ["Drifted"]


def test_a_topic_that_is_not_selected_any_more_is_left_out(world: World) -> None:
    world.here.create_topic("u", 1, {})
    world.passes(lambda: len(world.status.topics) == 2)
    world.copied()
    del world.here.kept["u"]
    world.passes(lambda: "SourceGone" in [row.state for row in world.status.topics])
    world.spec["topics"] = {"include": ["t"]}
    world.one_pass()
    found = failed_over(world)

    assert ([topic.name for topic in found.topics], found.not_copied) == (["t"], 0)
    assert world.there.log("u").end == 0


def test_a_topic_is_left_out_by_the_same_edit_that_accepts_a_loss(world: World) -> None:
    world.here.create_topic("u", 1, {})
    world.passes(lambda: len(world.status.topics) == 2)
    world.copied()
    del world.here.kept["u"]
    world.spec["topics"] = {"include": ["t"]}
    found = failed_over(world, acceptLoss=True)

    assert ([topic.name for topic in found.topics], found.not_copied) == (["t"], 0)
    assert [row.name for row in world.status.topics] == ["t"]
    assert world.there.log("u").end == 0


def test_what_somebody_else_wrote_is_not_taken_for_what_was_copied(world: World) -> None:
    """Nobody has looked at the copy since: the process that fails over has not copied."""
    world.run(world.reconciler.stop())
    world.restart()
    world.here.write("t", 5)
    for number in range(5):
        world.there.log("t").foreign(producer_id=-1 if number else 999)
    found = failed_over(world, acceptLoss=True)

    [topic] = found.topics
    says = "somebody else has written to the copy of partition 0: offset 20 was not written by this mirror"
    assert (topic.ends, topic.lacks, topic.unknown, topic.message) == ((25, 5), None, says, says)
    assert (found.not_copied, found.source_answered) == (None, True)
    assert says in warned_of(world)
    # And whoever goes back does not take it over.
    failed_back(world)
    world.one_pass()
    world.passes(lambda: world.condition("Ready").reason in ("CopiesInSync", "CopiesDrifted"))
    assert f"topic t can't be taken over: {says}" in world.condition("Ready").message


def test_empty_records_of_a_copy_that_was_still_being_filled_are_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer would read them."""
    monkeypatch.setattr(FakeTarget, "delete_records", lambda *_: Interrupted("no answer"))
    world.here.create_topic("u", 2, {})
    world.here.write("u", 9, 1)
    world.here.log("u", 1).delete_records(6)
    world.passes(lambda: "u" in world.there.kept and world.there.log("u", 1).end == 6)
    found = failed_over(world, acceptLoss=True)

    [topic] = [each for each in found.topics if each.name == "u"]
    assert (topic.ends, topic.lacks) == ((0, 6), (0, 3))
    says = (
        "partition 1 was still being filled up to the source's first record: the last records before offset 6 are "
        "empty. Delete all records before that offset"
    )
    assert topic.message == says
    assert says in warned_of(world)


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("answers", [True, False])
def test_no_group_is_left_beyond_a_copy_that_has_lost_its_end(restarted: bool, answers: bool, world: World) -> None:
    """As by an unclean election at the target: it would skip what is written there next, up to its offset."""
    world.spec["groups"] = {"include": ["*"], "interval": "1s"}
    world.here.offsets = {name: {P0: GroupOffset(20), P1: GroupOffset(3)} for name in ("g", "used", "joined")}
    world.one_pass()
    world.passes(lambda: {"g", "used", "joined"} <= world.there.offsets.keys())
    the_target_lost_records(world)
    world.there.offsets["used"][P0] = GroupOffset(18)
    world.there.members.add("joined")
    if not answers:
        world.here.failure = Unavailable("nobody is there")
    if restarted:
        world.run(world.reconciler.stop())
        world.restart()
    found = failed_over(world, acceptLoss=True)

    [topic] = found.topics
    end = topic.ends[0]
    assert end < 20
    assert world.there.offsets["g"] == {P0: GroupOffset(end), P1: GroupOffset(3)}
    assert world.there.offsets["used"][P0] == GroupOffset(18)
    assert world.there.offsets["joined"][P0] == GroupOffset(20)


def test_nothing_is_said_of_the_source_where_it_did_not_answer(world: World) -> None:
    world.there.log("t").foreign()
    world.run(world.reconciler.stop())
    world.restart()
    world.here.failure = Unavailable("nobody is there")
    [topic] = failed_over(world, acceptLoss=True).topics

    assert topic.message.startswith("somebody else has written to the copy of partition 0")
    assert topic.unknown == ""


def test_a_partition_of_the_source_without_a_leader_leaves_the_others_to_be_counted(world: World) -> None:
    world.here.create_topic("u", 1, {})
    world.here.write("u", 2)
    world.passes(lambda: len(world.status.topics) == 2)
    world.copied()
    world.here.headless = {TopicPartition("t", 1)}
    world.run(world.reconciler.stop())
    world.restart()
    world.here.write("u", 3)
    found = failed_over(world, acceptLoss=True)

    [topic, other] = found.topics
    assert (topic.ends, topic.lacks, topic.unknown) == ((20, 5), None, "the source does not say where its logs end")
    assert (other.lacks, found.not_copied) == ((3,), None)
    # It is no reason not to go back.
    world.here.headless = set()
    failed_back(world)
    world.copied()
    assert world.status.topics[0].adopted == (20, 5)


def test_a_source_that_does_not_answer_is_warned_of(world: World) -> None:
    world.here.failure = Unavailable("nobody is there")
    failed_over(world, acceptLoss=True)

    assert "the source did not answer, so it is not known what was not copied" in warned_of(world)


# --- the fence --------------------------------------------------------------------------------------------------------


class Stuck:
    """A partition of the target that answers so."""

    def __init__(self, target: Target, answer: Interrupted | Refusal) -> None:
        self._target = target
        self._answer = answer

    def tail(self, window: int) -> Tail | Interrupted:
        return self._answer if isinstance(self._answer, Interrupted) else self._target.tail(window)

    def write_markers(self, *_: int) -> Interrupted | Refusal:
        return self._answer


def made_stuck(world: World, partition: TopicPartition, answer: Interrupted | Refusal) -> None:
    target = world.there.target
    world.there.target = lambda p: Stuck(target(p), answer) if p == partition else target(p)  # type: ignore


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Interrupted("t-1 has no leader"), "such as t-1: t-1 has no leader. This is retried"),
        (
            Refusal(31, "ClusterAuthorizationFailed", lasting=True),
            "the target refuses: ClusterAuthorizationFailed (31)",
        ),
    ],
)
def test_a_partition_that_cannot_be_fenced_is_named_with_a_way_out(
    answer: Interrupted | Refusal, says: str, world: World
) -> None:
    world.here.create_topic("u", 1, {})
    world.here.write("u", 2)
    world.passes(lambda: len(world.status.topics) == 2)
    world.copied()
    made_stuck(world, TopicPartition("t", 1), answer)
    world.spec["failover"] = {}
    world.one_pass()
    world.passes(lambda: world.status.failover is not None and bool(world.status.failover.topics))

    said = world.condition("Ready")
    assert said.reason == "FailoverFencing"
    assert says in said.message
    assert (
        "delete topic t at the target with everything in it: the failover then ends without that topic" in said.message
    )
    # The others are done, and known to be, also by another process.
    assert world.status.failover is not None
    assert [(topic.name, topic.ends) for topic in world.status.failover.topics] == [("u", (2,))]
    before = world.there.log("u").end
    world.run(world.reconciler.stop())
    world.restart()
    world.one_pass()
    assert world.there.log("u").end == before

    del world.there.kept["t"]
    found = failed_over(world)
    assert {topic.name: topic.message for topic in found.topics} == {"u": "", "t": "the copy was deleted at the target"}
    assert "the copy was deleted at the target" in warned_of(world)


def test_a_copy_that_is_only_hidden_is_fenced_before_the_failover_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a permission that is withdrawn for a moment: it is still there, and could still be appended to."""
    monkeypatch.setattr(mirror_status, "_WRITTEN_EVERY", timedelta(0))
    world.there.hidden = {"t"}
    world.spec["failover"] = {"acceptLoss": True}
    for _ in range(5):
        assert world.one_pass().reason == "FailoverFencing"
    assert "allow the principal Describe on topic t" in world.condition("Ready").message

    world.there.hidden = set()
    [topic] = failed_over(world, acceptLoss=True).topics
    assert (topic.ends, topic.message) == ((20, 5), "")
    assert world.there.log("t").end > 20, "there is no marker"


def test_a_partition_that_was_begun_after_the_status_was_written_is_fenced(world: World) -> None:
    world.here.add_partitions("t", 3)
    world.here.write("t", 6, 2)
    world.there.add_partitions("t", 3)
    [topic] = failed_over(world, acceptLoss=True).topics

    assert topic.ends == (20, 5, 0)
    assert world.there.log("t", 2).end > 0, "there is no marker"


def test_many_topics_are_fenced_a_few_at_a_time(world: World) -> None:
    names = [f"u{number:02}" for number in range(45)]
    world.spec["topics"] = {"include": ["t", "u*"]}
    for name in names:
        world.here.create_topic(name, 1, {})
        world.here.write(name, 1)
    world.one_pass()
    world.passes(lambda: len(world.status.topics) == 46)
    world.copied()
    world.spec["failover"] = {}
    world.one_pass()
    seen: list[int] = []

    def done() -> bool:
        seen.append(len(world.status.failover.topics) if world.status.failover is not None else 0)
        return world.condition("Ready").reason == "FailedOver"

    world.passes(done)
    assert sorted({*seen}) == [20, 40, 46]
    assert world.status.failover is not None
    assert world.status.failover.not_copied == 0


# --- back -------------------------------------------------------------------------------------------------------------


def test_a_mirror_goes_on_without_the_one_that_it_was_made_from(world: World) -> None:
    failed_over(world)
    failed_back(world)
    world.spec["topics"] = {"include": ["t", "u"]}
    world.copied()
    world.kube.delete(MIRRORS, "ns", "m", "2026-11-22T12:00:00Z")
    world.run(world.reconciler.stop())
    world.restart()
    world.there.write("t", 2)
    world.there.create_topic("u", 1, {})
    world.there.write("u", 3)
    world.one_pass()
    world.passes(lambda: len(world.status.topics) == 2)
    world.copied()

    for name in ("t", "u"):
        assert world.here.log(name).visible() == world.there.log(name).visible()


def test_records_that_were_never_copied_are_told_without_being_repeated(world: World) -> None:
    world.here.add_partitions("t", 8)
    world.copied()
    failed_over(world)
    for number in range(8):
        world.here.write("t", 10 - number, number)
    failed_back(world)
    world.one_pass()
    world.passes(lambda: world.condition("Drifted").status == "True")

    says = world.condition("Drifted").message
    assert "has 52 offset(s) at the target that were never copied from there: 10 in partition 0 from offset 20" in says
    assert ", and 12 in 3 other partition(s). Save what you need before you delete the topic" in says
    assert (says.count("delete the topic"), says.count("delete it")) == (1, 1)
    assert says.endswith("To have a topic copied again from its start, delete it at the target")


def left_out_and_taken_in_again(world: World) -> None:
    """Topic u of a mirror that goes back, after some of it was copied."""
    world.here.create_topic("u", 1, {})
    world.here.write("u", 3)
    world.passes(lambda: len(world.status.topics) == 2)
    world.copied()
    failed_over(world)
    failed_back(world)
    both = world.spec["topics"] = {"include": ["t", "u"]}
    world.one_pass()
    world.there.write("u", 4)
    world.passes(lambda: world.here.kept["u"].logs[0].end == world.there.log("u").end)
    world.copied()
    world.spec["topics"] = {"include": ["t"]}
    world.one_pass()
    world.passes(lambda: [row.name for row in world.status.topics] == ["t"])
    world.there.write("u", 2)
    world.spec["topics"] = both


def test_a_topic_that_was_left_out_on_the_way_back_may_be_taken_in_again(world: World) -> None:
    left_out_and_taken_in_again(world)
    world.one_pass()
    world.passes(lambda: len(world.status.topics) == 2)
    world.copied()

    assert world.here.log("u").visible() == world.there.log("u").visible()


def test_a_topic_that_somebody_else_has_written_since_is_not_taken_in_again(world: World) -> None:
    left_out_and_taken_in_again(world)
    world.here.write("u", 1)
    world.one_pass()
    world.passes(lambda: world.condition("Ready").reason == "CopiesDrifted")

    assert "were never copied from there" in world.condition("Ready").message


def test_what_cannot_be_seen_is_not_taken_over(world: World) -> None:
    failed_over(world)
    world.here.write("t", 4)
    told_bounds = world.here.told_bounds

    def unknown(_: Sequence[TopicPartition], *, stable: bool = True) -> Any:
        return {}

    world.here.told_bounds = unknown  # type: ignore[method-assign, assignment]
    failed_back(world)
    for _ in range(3):
        world.one_pass()
    assert not [row for row in world.status.topics if row.adopted]

    world.here.told_bounds = told_bounds  # type: ignore[method-assign]
    world.passes(lambda: world.condition("Drifted").status == "True")
    assert "4 in partition 0 from offset 20" in world.condition("Drifted").message


def test_a_failover_that_does_not_say_between_which_clusters_is_not_taken_back(world: World) -> None:
    failed_over(world)
    body = world.body
    status = {key: value for key, value in body["status"].items() if key not in ("sourceCluster", "targetCluster")}
    world.kube.replace_status(MIRRORS, body, status)
    failed_back(world)

    said = world.one_pass()
    assert said.reason == "NoFailover"
    assert said.message == "the status of OffsetMirror m does not say between which clusters it copied"
