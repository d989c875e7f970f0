"""Passes of the feature over a group in memory: what is told, offered, taken back, and kept over a restart."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.stuck_world import CREATED, GROUP, P, World
from tidegate.control.records import Claim, ClaimKey, Hold, HoldKey
from tidegate.kafka.errors import NotAuthorized
from tidegate.kafka.model import RecordHead, TopicPartition
from tidegate.kube.ports import POLICIES, RESETS, KubeUnavailable, name_of, uid_of
from tidegate.resources.conditions import RECORD_STUCK, find_condition
from tidegate.resources.offset_reset import parse_offset_reset
from tidegate.resources.policy import PolicyStatus
from tidegate.stuck.courses import Course
from tidegate.stuck.judging import Verdict
from tidegate.stuck.skip import Skips
from tidegate.stuck.told import Known, Stuck, decode, encode


@pytest.fixture
def world() -> World:
    return World()


def test_a_stuck_record_is_told_once_and_its_skip_offered(world: World) -> None:
    offset = world.get_stuck()
    assert world.said == ("True", "Stuck")
    assert world.stuck == [offset]
    assert world.told.count("RecordStuck") == 1
    assert world.sample("tidegate_stuck_records") == 1
    [reset] = world.resets
    spec = parse_offset_reset(reset)
    assert (spec.to.offset, spec.approval.value, spec.group) == (offset + 1, "Manual", GROUP)
    assert spec.requester == "OffsetResetPolicy ns/p"
    assert reset["spec"]["partitions"] == [{"topic": "orders", "partitions": [0]}]
    assert reset["metadata"]["ownerReferences"][0]["uid"] == uid_of(world.body)
    assert world.status.stuck_records is not None
    assert world.status.stuck_records.records[0].skip == name_of(reset)


def test_once_the_group_gets_past_it_the_offer_is_taken_back(world: World) -> None:
    offset = world.get_stuck()
    world.commit(offset + 1)
    world.run(4)
    assert world.said == ("False", "NoneStuck")
    assert world.resets == []
    assert world.told == ["RecordStuck", "RecordPassed"]
    assert world.sample("tidegate_stuck_records") is None


@pytest.mark.parametrize("committed", [False, True])
def test_what_the_policy_leaves_out_may_be_what_holds_up_the_member(committed: bool) -> None:
    world = World("refunds")
    left_out = TopicPartition("refunds", 0)
    world.spec["topics"] = ["orders"]
    world.kube.change(POLICIES, "ns", "p", spec=world.spec)
    world.kafka.append(left_out, [world.clock.now()])
    if committed:
        world.commit(0, left_out)

    world.get_stuck()

    assert world.said == ("True", "OneOfSeveral")
    assert world.resets == []


def test_what_has_no_committed_offset_yet_may_be_what_holds_up_the_member() -> None:
    world = World("refunds")
    world.run(4)
    assert world.said[0] == "Unknown"
    world.kafka.append(TopicPartition("refunds", 0), [world.clock.now()])

    world.get_stuck()

    assert world.said == ("True", "OneOfSeveral")


def test_an_empty_log_holds_up_nobody() -> None:
    world = World("refunds")

    world.get_stuck()

    assert world.said == ("True", "Stuck")


@pytest.mark.parametrize(
    "status", [{"phase": "AwaitingApproval", "approvedDigest": "ab" * 32}, {"phase": "Succeeded"}, {"phase": "Failed"}]
)
def test_one_that_was_approved_or_has_ended_is_not_taken_back(world: World, status: dict[str, Any]) -> None:
    offset = world.get_stuck()
    [reset] = world.resets
    world.kube.replace_status(RESETS, reset, status)
    world.commit(offset + 1)
    world.run(4)
    assert len(world.resets) == 1


def test_one_that_somebody_has_deleted_is_not_offered_again(world: World) -> None:
    world.get_stuck()
    [reset] = world.resets
    world.kube.delete(RESETS, "ns", name_of(reset), CREATED)
    world.run(40, world.produce)
    assert world.status.stuck_records is not None
    assert world.status.stuck_records.records[0].skip is None
    world.restart()
    world.run(40, world.produce)
    assert world.resets == []
    assert world.said == ("True", "Stuck")
    assert world.status.stuck_records.records[0].skip is None


def test_none_is_offered_while_every_member_stands(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a database that all of them write to is down."""
    world.get_stuck()
    assert len(world.kube.list(RESETS)) == 1
    monkeypatch.setattr(Known, "everybody_stands", True)

    world.run(4, world.produce)

    assert world.kube.list(RESETS) == []
    said = find_condition(world.status.conditions, RECORD_STUCK)
    assert said is not None
    assert "something that they share may have failed" in said.message


@pytest.mark.parametrize(
    ("owners", "stuck", "expected"),
    [
        ("a", "0", False),
        ("ab", "0", False),
        ("ab", "01", True),
        ("aab", "02", True),
        ("aab", "01", False),
        ("ab", "", False),
    ],
)
def test_every_member_stands_where_each_of_several_is_stuck(owners: str, stuck: str, expected: bool) -> None:
    known = Known()
    for number, owner in enumerate(owners):
        known.courses.now[TopicPartition("t", number)] = Course(7, owner, 9, first_s=0.0, last_s=30.0)
    for number in map(int, stuck):
        head = RecordHead(7, None, 1, 0)
        known.stuck[TopicPartition("t", number)] = Stuck(7, head, 0, Verdict.STUCK)

    assert known.everybody_stands is expected


def test_a_name_that_is_taken_is_told(world: World) -> None:
    world.run(30, world.read_well)
    while not (world.status.stuck_records and world.status.stuck_records.records):
        world.produce()
        world.clock.sleep(world.keep().again_after_s)
    [stuck] = world.feature._known[uid_of(world.body)].stuck.values()
    assert stuck.reset
    world.kube.create(RESETS, "ns", stuck.reset, {"group": "theirs"}, CREATED)
    world.run(4, world.produce)
    condition = find_condition(world.status.conditions, RECORD_STUCK)
    assert condition is not None
    assert f"OffsetReset {stuck.reset} exists and does not belong to this policy. Delete it" in condition.message
    assert world.status.stuck_records is not None
    assert world.status.stuck_records.records[0].skip is None


def test_none_is_offered_unless_it_is_asked_for_and_then_no_more(world: World) -> None:
    world.asks()
    world.get_stuck()
    assert world.said == ("True", "Stuck")
    assert world.resets == []
    world.asks(prepareSkip=True)
    world.run(4, world.produce)
    assert len(world.resets) == 1
    world.asks()
    world.run(4, world.produce)
    assert world.resets == []


def test_the_prepared_reset_copies_the_record_where_the_connection_allows_it(world: World) -> None:
    world.asks(prepareSkip=True, deadLetter={"topic": "orders.DLT"})
    world.get_stuck()
    assert world.resets == []
    condition = find_condition(world.status.conditions, RECORD_STUCK)
    assert condition is not None
    assert (
        "spec.stuckRecords.deadLetter.topic: KafkaConnection kafka does not allow dead-letter topic orders.DLT"
        in condition.message
    )
    allow = world.live.allow.model_copy(update={"dead_letter_topics": ("*.DLT",)})
    world.live = replace(world.live, allow=allow)
    world.run(4, world.produce)
    [prepared] = world.resets
    assert parse_offset_reset(prepared).dead_letter_topic == "orders.DLT"


def test_a_group_that_the_connection_does_not_allow_is_not_looked_at(world: World) -> None:
    world.live = replace(world.live, allow=world.live.allow.model_copy(update={"groups": ("other",)}))
    world.get_stuck()
    assert world.said == ("Unknown", "GroupNotAllowed")
    assert world.resets == []
    assert world.told == []


def test_partitions_that_stand_at_the_same_offset_have_each_a_reset_of_its_own(world: World) -> None:
    both = {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    head = RecordHead(7, None, 1, 0)
    known = Known(stuck={partition: Stuck(7, head, 0, Verdict.STUCK) for partition in both})
    skips = Skips(world.kube, world.executor)
    for _ in ("decided", "made"):
        assert world.loop.run_until_complete(skips.prepare(world.view(), known)) == ""
    [of_0, of_1] = [parse_offset_reset(reset).partitions for reset in world.resets]
    assert of_0 is not None
    assert of_1 is not None
    assert {TopicPartition(each.topic, n) for each in (*of_0, *of_1) for n in each.numbers or ()} == both


def test_no_reset_is_prepared_that_copies_a_record_of_the_dead_letter_topic_to_itself(world: World) -> None:
    """No API server would take it, and then the skips of other records would not be prepared or taken back either."""
    allow = world.live.allow.model_copy(update={"dead_letter_topics": ("*",)})
    world.live = replace(world.live, allow=allow)
    world.asks(prepareSkip=True, deadLetter={"topic": "orders"})
    world.get_stuck()
    world.run(4, world.produce)
    assert [parse_offset_reset(made) for made in world.resets] == []
    condition = find_condition(world.status.conditions, RECORD_STUCK)
    assert condition is not None
    assert "No reset is prepared for orders-0: it is in the dead-letter topic itself" in condition.message


def test_a_claim_whose_claimant_is_gone_does_not_keep_the_group_from_being_judged(world: World) -> None:
    """A command that was killed, say: no record follows its claim, which stays in force by the topic's own time."""
    key, claim = ClaimKey(GROUP, "x"), Claim("by-hand/x", "tidegate reset", lease_ms=15_000)
    world.run(30, world.read_well)
    world.kafka.control.claim(key, claim)
    world.run(10, world.produce)
    for _ in range(4):
        # As long as somebody renews it, a run has the group.
        world.kafka.control.claim(key, claim)
        world.run(10, world.produce)
        assert world.said == ("False", "NoneStuck")
    assert world.kafka.control.topics.gates.claims.queue(GROUP)

    world.run(100, world.produce)

    assert world.said == ("True", "Stuck")


def test_without_the_feature_nothing_is_left_of_it(world: World) -> None:
    world.get_stuck()
    world.spec.pop("stuckRecords")
    world.kube.change(POLICIES, "ns", "p", spec=world.spec)
    world.keep()
    assert world.resets == []
    assert world.status.stuck_records is None
    assert find_condition(world.status.conditions, RECORD_STUCK) is None
    assert world.sample("tidegate_stuck_records") is None


def test_a_policy_that_never_asked_for_it_has_nothing_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.spec.pop("stuckRecords")
    world.kube.change(POLICIES, "ns", "p", spec=world.spec)

    def read(*_: Any) -> Any:
        raise AssertionError("its memory is read")

    monkeypatch.setattr(world.memory, "recall", read)
    assert world.keep().status == PolicyStatus()


def test_what_somebody_has_stored_takes_back_no_other_reset(world: World) -> None:
    """Whoever may edit the policy's memory need not be whoever may delete its resets."""
    world.kube.make(RESETS, world.body, "p-v2", {"group": GROUP})
    world.get_stuck()
    known = world.feature._known[uid_of(world.body)]
    known.withdrawn |= {"p-v2"}

    world.run(4, world.produce)

    assert "p-v2" in map(name_of, world.resets)
    assert known.withdrawn == frozenset()


@pytest.mark.parametrize("made", [False, True])
def test_what_somebody_has_stored_gives_an_offer_no_other_name(world: World, made: bool) -> None:
    """By which the policy's own reset could not be made, or another one would be approved."""
    world.get_stuck()
    [reset] = map(name_of, world.resets)
    known = world.feature._known[uid_of(world.body)]
    known.stuck = {P: replace(known.stuck[P], reset="p-v2", made=made)}

    world.run(4, world.produce)

    assert [*map(name_of, world.resets)] == [reset]
    assert world.status.stuck_records is not None
    assert world.status.stuck_records.records[0].skip == reset


def test_an_offer_that_changes_as_it_is_taken_back_is_taken_back_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.get_stuck()
    world.spec.pop("stuckRecords")
    world.kube.change(POLICIES, "ns", "p", spec=world.spec)
    with monkeypatch.context() as patched:
        patched.setattr(world.kube, "remove", lambda *_: False)
        assert world.keep().again_after_s < 10
    assert len(world.resets) == 1
    world.restart()
    world.keep()
    assert world.resets == []
    assert world.status.stuck_records is None


def test_an_offer_that_is_wanted_again_while_it_goes_is_made_once_it_has_gone(world: World) -> None:
    """Its finalizer is taken off by another pass, perhaps seconds later."""
    world.get_stuck()
    [reset] = world.resets
    world.kube.set_finalizers(RESETS, reset, ["tidegate.io/reset"])
    world.asks()
    world.run(2, world.produce)
    [going] = world.resets
    assert going["metadata"]["deletionTimestamp"]
    world.asks(prepareSkip=True)
    world.run(6, world.produce)
    assert world.status.stuck_records is not None
    assert world.status.stuck_records.records[0].skip is None

    world.kube.set_finalizers(RESETS, going, [])
    world.run(6, world.produce)

    assert [uid_of(made) == uid_of(reset) for made in world.resets] == [False]
    assert world.status.stuck_records.records[0].skip == name_of(reset)


def test_an_offer_that_is_wanted_again_before_it_could_be_taken_back_stays_or_is_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.get_stuck()
    [reset] = map(name_of, world.resets)

    def remove(*_: object) -> bool:
        raise KubeUnavailable("no answer")

    with monkeypatch.context() as away:
        away.setattr(world.kube, "remove", remove)
        world.asks()
        world.run(2, world.produce)
        world.asks(prepareSkip=True)
        world.run(6, world.produce)
    world.run(6, world.produce)

    assert world.status.stuck_records is not None
    assert world.status.stuck_records.records[0].skip == reset
    assert [*map(name_of, world.resets)] == [reset]


def test_a_record_that_is_judged_again_is_counted_once(world: World) -> None:
    world.get_stuck()
    known = world.feature._known[uid_of(world.body)]
    known.stuck = {P: replace(known.stuck[P], verdict=Verdict.ONE_OF_SEVERAL, among=(P, TopicPartition("orders", 1)))}

    world.run(4, world.produce)

    assert known.stuck[P].verdict is Verdict.STUCK
    assert len([told for told in world.kube.happenings_of("p") if told.reason == "RecordStuck"]) == 1
    assert world.registry.get_sample_value("tidegate_stuck_records_found_total") == 1


def test_events_that_nobody_took_are_told_by_the_next_passes_as_well(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the API server is away."""
    with monkeypatch.context() as away:
        away.setattr(world.kube, "record", lambda *_: None)
        offset = world.get_stuck()
    assert world.told == []
    world.run(4, world.produce)
    assert world.told == ["RecordStuck"]
    world.commit(offset + 1)
    with monkeypatch.context() as away:
        away.setattr(world.kube, "record", lambda *_: None)
        world.run(4)
    world.run(4)
    assert world.told == ["RecordStuck", "RecordPassed"]

    world.run(1200, world.read_well)
    assert world.keep().happenings == ()


def test_what_was_told_outlives_the_process_and_is_not_told_again(world: World) -> None:
    offset = world.get_stuck()
    assert world.status.stuck_records is not None
    since = world.status.stuck_records.records[0].since
    world.restart()
    world.run(4, world.produce)
    assert world.stuck == [offset]
    assert world.status.stuck_records.records[0].since == since
    assert world.told.count("RecordStuck") == 1
    assert len(world.resets) == 1


def test_what_the_group_got_past_while_nobody_looked_is_stuck_no_more(world: World) -> None:
    world.get_stuck()
    world.restart()
    world.commit(world.kafka.log_bounds([P])[P].latest)
    world.keep()
    assert world.said[0] != "True"
    assert world.resets == []


def test_after_a_restart_the_time_begins_anew(world: World) -> None:
    world.run(30, world.read_well)
    world.run(14, world.produce)
    world.restart()
    world.run(14, world.produce)
    assert world.stuck == []
    world.run(20, world.produce)
    assert len(world.stuck) == 1


def test_a_held_partition_is_not_judged(world: World) -> None:
    world.run(30, world.read_well)
    world.kafka.control.hold({HoldKey(GROUP, "orders", 0, "pause/c/u"): Hold("INC-1")})
    world.run(120, world.produce)
    assert world.stuck == []


def test_holds_that_can_not_be_read_leave_nothing_to_judge(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(30, world.read_well)

    def refuse(*_: Any, **__: Any) -> Any:
        raise NotAuthorized("Read on topic __tidegate")

    monkeypatch.setattr(world.kafka.control, "read", refuse)
    world.run(60, world.produce)
    assert world.said == ("Unknown", "HoldsUnknown")
    assert "RecordStuck" not in world.told


def test_before_enough_was_seen_nothing_is_judged(world: World) -> None:
    world.run(60, world.produce)
    assert world.said == ("Unknown", "NotJudged")


def test_a_run_that_moves_offsets_is_no_progress_and_no_standstill(world: World) -> None:
    world.run(30, world.read_well)
    world.resetting = True
    world.run(120, world.produce)
    world.resetting = False
    world.run(14, world.produce)
    assert world.stuck == []
    assert "RecordStuck" not in world.told


def test_a_short_run_lets_the_time_begin_anew_as_well(world: World) -> None:
    world.run(30, world.read_well)
    world.run(14, world.produce)
    world.resetting = True
    world.run(2, world.produce)
    world.resetting = False
    world.run(14, world.produce)
    assert world.stuck == []


def test_an_open_transaction_is_told_as_such(world: World) -> None:
    world.run(30, world.read_well)
    world.commit(world.kafka.log_bounds([P])[P].latest)
    world.kafka.open_transaction(P)
    world.run(120, world.produce)
    assert world.stuck == []
    condition = find_condition(world.status.conditions, RECORD_STUCK)
    assert condition is not None
    assert "In 1 partition(s), consumers of committed records wait for an open transaction to end" in condition.message


def test_a_group_that_loses_its_members_is_not_known_to_be_stuck(world: World) -> None:
    world.get_stuck()
    world.consumer.close()
    world.run(6)
    assert world.said == ("Unknown", "NotRead")
    assert world.resets == []


def test_records_that_may_not_be_read_are_no_finding(world: World) -> None:
    world.run(30, world.read_well)
    for _ in range(10):
        world.kafka.fail("next_records", NotAuthorized("Read on topic orders"))
    world.run(60, world.produce)
    assert world.said == ("Unknown", "RecordsUnreadable")
    assert "RecordStuck" not in world.told


class Unreadable:
    """Reads records of all topics but one."""

    def __init__(self, world: World, topic: str) -> None:
        self._next_records, self._topic = world.kafka.next_records, topic

    def __call__(self, positions: Any) -> Any:
        if any(partition.topic == self._topic for partition in positions):
            raise NotAuthorized(f"Read on topic {self._topic} is missing")
        return self._next_records(positions)


def test_a_topic_that_may_not_be_read_hides_no_record_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("refunds")
    refunds = TopicPartition("refunds", 0)
    world.commit(0, refunds)
    monkeypatch.setattr(world.kafka, "next_records", Unreadable(world, "refunds"))

    def read_both() -> None:
        world.commit(world.kafka.log_bounds([refunds])[refunds].latest, refunds)
        world.kafka.append(refunds, [world.clock.now()])
        world.read_well()

    def produce_both() -> None:
        world.kafka.append(refunds, [world.clock.now()])
        world.produce()

    world.run(30, read_both)
    world.run(60, produce_both)

    # Nor is it known that it is not the other one that holds up the member.
    assert world.said == ("True", "OneOfSeveral")
    condition = find_condition(world.status.conditions, RECORD_STUCK)
    assert condition is not None
    assert "Read on topic refunds is missing" in condition.message


def test_a_record_stays_told_and_is_passed_while_another_topic_may_not_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World("refunds")
    refunds = TopicPartition("refunds", 0)
    offset = world.get_stuck()
    assert len(world.resets) == 1
    monkeypatch.setattr(world.kafka, "next_records", Unreadable(world, "refunds"))

    def both_move() -> None:
        world.kafka.append(refunds, [world.clock.now()])
        world.commit(world.kafka.log_bounds([refunds])[refunds].latest, refunds)

    world.run(20, both_move)
    world.run(40, lambda: world.kafka.append(refunds, [world.clock.now()]))
    assert (world.said, world.stuck) == (("True", "Stuck"), [offset])
    condition = find_condition(world.status.conditions, RECORD_STUCK)
    assert condition is not None
    assert condition.message.endswith(". Read on topic refunds is missing")
    world.commit(offset + 1)
    world.run(4)

    assert world.resets == []
    assert "RecordPassed" in world.told


def test_while_nothing_else_is_stuck_a_topic_that_may_not_be_read_is_said(world: World) -> None:
    """And asked for again once a minute."""
    world.run(30, world.read_well)
    refuses = Unreadable(world, "orders")
    world.kafka.next_records = refuses  # type: ignore[method-assign]
    asked = world.kafka.calls.count("log_bounds")
    world.run(100, world.produce)
    assert world.said == ("Unknown", "RecordsUnreadable")
    assert world.kafka.calls.count("log_bounds") - asked <= 4
    world.kafka.next_records = refuses._next_records  # type: ignore[method-assign]

    world.run(100, world.produce)

    assert world.said == ("True", "Stuck")


def test_a_topic_that_was_created_again_is_another_one(world: World) -> None:
    world.get_stuck()
    world.kafka.delete_topic("orders")
    world.kafka.create_topic("orders", 1)
    world.clock.sleep(60)
    world.keep()
    assert world.status.stuck_records is None or world.stuck == []


def test_a_topic_that_was_created_again_while_nobody_read_it_is_another_one(world: World) -> None:
    """While a group rebalances nobody owns its partitions."""
    world.run(30, world.read_well)
    known = world.feature._known[uid_of(world.body)]
    assert known.courses.paces

    known.topics_are({})
    known.topics_are({"orders": "another"})

    assert known.courses.paces == {}
    assert known.ids == {"orders": "another"}


def test_an_api_server_that_refuses_the_offer_does_not_hide_the_finding(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise KubeUnavailable("quota exceeded")

    monkeypatch.setattr(world.kube, "make", refuse)
    world.get_stuck()
    assert world.told == ["RecordStuck"]
    condition = find_condition(world.status.conditions, RECORD_STUCK)
    assert condition is not None
    assert "No reset is prepared or deleted yet: quota exceeded" in condition.message


def test_what_is_stored_reads_back(world: World) -> None:
    world.get_stuck()
    known = world.feature._known[uid_of(world.body)]
    again = decode(json.loads(json.dumps(encode(known))))
    assert (again.stuck, again.ids, again.withdrawn) == (known.stuck, known.ids, known.withdrawn)
    assert again.courses.paces.keys() == known.courses.paces.keys()


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"topics": {}, "pace": {"orders": {"0": [1]}}, "stuck": [], "withdrawn": []},
        {"topics": {}, "pace": {"orders": {"0": [1, float("nan")]}}, "stuck": [], "withdrawn": []},
        {"topics": {}, "pace": {}, "stuck": [{"partition": ["orders", 0]}], "withdrawn": []},
        {"topics": [], "pace": {}, "stuck": [], "withdrawn": []},
    ],
)
def test_what_somebody_has_edited_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(document)


@pytest.mark.parametrize("latest_ms", [0, 253_402_300_799_000, 253_402_300_799_999])
def test_what_is_stored_reads_back_whatever_time_a_producer_gave_its_record(latest_ms: int) -> None:
    head = RecordHead(12, datetime.fromtimestamp(latest_ms / 1000, UTC), 7, 1)

    again = decode(json.loads(json.dumps(encode(Known(stuck={P: Stuck(10, head, 5, Verdict.STUCK)})))))

    assert again.stuck[P].head.at is not None
    assert abs(again.stuck[P].head.at - head.at) <= timedelta(seconds=1)  # type: ignore[operator]


def test_headers_that_cannot_be_counted_read_back() -> None:
    known = Known(stuck={P: Stuck(10, RecordHead(12, None, 7, None), 5, Verdict.STUCK)})

    assert decode(json.loads(json.dumps(encode(known)))) == known


def test_nothing_known_reads_back() -> None:
    assert decode(encode(Known())) == Known()


def test_a_topic_that_is_gone_makes_nobody_wait_for_what_it_took() -> None:
    world = World("refunds")
    slow = TopicPartition("refunds", 0)
    for read in range(7):
        world.kafka.append(slow, [world.clock.now()] * 2)
        world.run(60, world.read_well)
        world.commit(2 * read + 1, slow)
    known = world.feature._known[uid_of(world.body)]
    assert known.courses.longest_s > 50
    world.kafka.delete_topic("refunds")

    world.get_stuck()

    assert world.said == ("True", "Stuck")
    assert {p.topic for p in known.courses.paces} == {"orders"}


def test_a_topic_that_was_deleted_and_that_a_member_still_has_keeps_no_other_from_being_judged() -> None:
    world = World("refunds")
    world.kafka.delete_topic("refunds")
    assert TopicPartition("refunds", 0) in world.kafka.groups([GROUP])[GROUP].assigned

    world.get_stuck()

    assert world.said == ("True", "Stuck")


def test_a_partition_without_a_leader_keeps_no_other_from_being_judged_and_is_not_judged_itself() -> None:
    """Its member can't read it, and whether that is what holds it up nobody knows."""
    world = World("refunds")
    away = TopicPartition("refunds", 0)
    world.commit(0, away)
    world.run(30, world.read_well)
    world.kafka.take_offline(away)
    world.run(4, world.read_well)
    said = find_condition(world.status.conditions, RECORD_STUCK)
    assert said is not None
    assert (said.status.value, said.message) == (
        "False",
        "1 partition(s) are judged; 1 can't be judged yet",
    )

    world.run(40, world.produce)

    assert world.said == ("True", "OneOfSeveral")
    assert world.resets == []
