"""Whom requests go to, how often, and what is told where nobody answers."""

from __future__ import annotations

import time
from types import SimpleNamespace as Row
from typing import Any

import pytest

from support.scripted_wire import PATIENCE_MS, ByScript, coordinators, each, wire_to
from tidegate.kafka.capabilities import BrokerApis
from tidegate.kafka.errors import (
    GroupNotEmpty,
    KafkaFailure,
    NotAuthenticated,
    NotAuthorized,
    OutcomeUnknown,
    Refused,
    Unavailable,
    UnknownPartitions,
)
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client import log_offsets
from tidegate.kafka_client.cluster_requests import broker_apis, describe_topics
from tidegate.kafka_client.group_requests import list_groups
from tidegate.kafka_client.log_offsets import LATEST, LogOffsets
from tidegate.kafka_client.offset_requests import fetch_many
from tidegate.kafka_client.writer import KafkaOffsetWriter

GROUP = "payments"
HERE, BEYOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOADING, NOT_COORDINATOR, NOT_LEADER, UNKNOWN_TOPIC, NO_GROUP_RIGHT = 14, 16, 6, 3, 30


def committed(code: int, *rest: int) -> Any:
    rows = [Row(partition_index=number, error_code=code) for number, code in enumerate((code, *rest))]
    return Row(topics=[Row(name="orders", partitions=rows)])


def altering(brokers: ByScript) -> None:
    writer = KafkaOffsetWriter(wire_to(brokers), GROUP, transaction_timeout_s=5)
    writer._STEP_TIMEOUT_S = PATIENCE_MS / 1000  # type: ignore[misc]
    writer.alter(GROUP, {HERE: 3, BEYOND: 4})


# --- a group's coordinator --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moved", [committed(NOT_COORDINATOR, 0), Unavailable("it is dead")], ids=["says", "is dead"])
def test_a_coordinator_that_moves_is_followed(moved: Any) -> None:
    brokers = ByScript(FindCoordinator=coordinators(1, 2), OffsetCommit=each(moved, committed(0, 0)))
    altering(brokers)
    assert brokers.nodes_asked("OffsetCommit") == [1, 2]


def test_a_commit_whose_answer_is_missing_is_not_sent_again() -> None:
    brokers = ByScript(FindCoordinator=coordinators(1), OffsetCommit=each(OutcomeUnknown("silence"), committed(0, 0)))
    with pytest.raises(OutcomeUnknown, match="silence"):
        altering(brokers)
    assert brokers.nodes_asked("OffsetCommit") == [1]


def test_a_commit_that_nobody_has_taken_was_not_made() -> None:
    brokers = ByScript(FindCoordinator=coordinators(1), OffsetCommit=each(committed(LOADING, LOADING)))
    with pytest.raises(Unavailable, match=f"commit 2 offset.s. of group {GROUP}: CoordinatorLoadInProgressError"):
        altering(brokers)
    assert len(brokers.nodes_asked("OffsetCommit")) > 1


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (committed(25, 25), GroupNotEmpty),
        (committed(0, UNKNOWN_TOPIC), UnknownPartitions),
        (committed(29, 29), NotAuthorized),
        (committed(12, 12), Refused),
    ],
    ids=["members", "unknown", "no right", "too large"],
)
def test_a_refused_commit_says_why(answer: Any, failure: type[KafkaFailure]) -> None:
    brokers = ByScript(FindCoordinator=coordinators(1), OffsetCommit=each(answer))
    with pytest.raises(failure) as caught:
        altering(brokers)
    if isinstance(caught.value, UnknownPartitions):
        assert caught.value.partitions == {BEYOND}


def test_who_may_not_find_the_coordinator_is_told_the_right_for_what_was_wanted() -> None:
    brokers = ByScript(FindCoordinator=coordinators(0, code=NO_GROUP_RIGHT))
    with pytest.raises(NotAuthorized, match=f"allow the principal Read on group {GROUP} "):
        altering(brokers)


def test_groups_are_asked_for_by_coordinator_and_only_those_that_moved_again() -> None:
    moved = {"g-7"}

    def found(_: int, request: Any) -> Any:
        rows = [Row(key=k, node_id=int(k[2:]) % 2, host="h", port=1, error_code=0) for k in request.coordinator_keys]
        return Row(coordinators=rows)

    def fetched(_: int, request: Any) -> Any:
        rows = []
        for group in request.groups:
            code = NOT_COORDINATOR if group.group_id in moved else 0
            moved.discard(group.group_id)
            rows.append(Row(group_id=group.group_id, error_code=code, topics=[]))
        return Row(groups=rows)

    brokers = ByScript(FindCoordinator=found, OffsetFetch=fetched)
    groups = [f"g-{number}" for number in range(600)]

    assert fetch_many(wire_to(brokers), groups) == {group: {} for group in groups}

    sizes = [(node, len(request.groups)) for name, node, request in brokers.asked if name == "OffsetFetch"]
    assert sorted(sizes) == [(0, 100), (0, 200), (1, 1), (1, 100), (1, 200)]
    assert brokers.nodes_asked("FindCoordinator") == [0, 0]


def test_thousands_of_groups_have_the_time_of_each_thousand() -> None:
    def fetched(_: int, request: Any) -> Any:
        return Row(groups=[Row(group_id=g.group_id, error_code=0, topics=[]) for g in request.groups])

    brokers = ByScript(FindCoordinator=coordinators(1), OffsetFetch=fetched)
    wire, groups = wire_to(brokers), [f"g-{number}" for number in range(2500)]
    begun: list[float] = []
    limited = wire.deadline
    wire.deadline = lambda *given: begun.append(time.monotonic()) or limited(*given)  # type: ignore[method-assign]

    assert fetch_many(wire, groups) == {group: {} for group in groups}

    assert len(begun) == len(brokers.nodes_asked("FindCoordinator")) == 3
    assert len(brokers.nodes_asked("OffsetFetch")) == 13


# --- any broker -------------------------------------------------------------------------------------------------------


def described(*leaders: int, code: int = 0, brokers: int = 3) -> Any:
    partitions = [Row(partition_index=number, leader_id=leader) for number, leader in enumerate(leaders)]
    alive = [Row(node_id=node) for node in range(brokers)]
    return Row(brokers=alive, topics=[Row(name="orders", error_code=code, partitions=partitions)])


def test_the_broker_that_answered_last_is_asked_first_and_the_others_where_it_is_silent() -> None:
    silent = {0}

    def answer(node: int, _: Any) -> Any:
        if node in silent:
            raise Unavailable("silence")
        return described(0)

    brokers = ByScript(Metadata=answer)
    wire = wire_to(brokers)
    describe_topics(wire, [], what="look")
    describe_topics(wire, [], what="look")
    silent.add(1)
    describe_topics(wire, [], what="look")
    assert brokers.nodes_asked("Metadata") == [0, 1, 1, 1, 0, 2]
    assert not brokers.closed


def test_where_all_are_silent_the_next_call_begins_at_the_bootstrap_servers() -> None:
    brokers = ByScript(Metadata=each(Unavailable("silence")))
    with pytest.raises(Unavailable, match="silence"):
        describe_topics(wire_to(brokers), [], what="look")
    assert brokers.closed


def test_who_had_no_time_for_an_answer_does_not_end_what_others_wait_for() -> None:
    brokers = ByScript(Metadata=each(Unavailable("silence")))
    with pytest.raises(Unavailable, match="silence"):
        describe_topics(wire_to(brokers), [], what="look", deadline=time.monotonic())
    assert not brokers.closed


def test_a_refused_login_is_told_at_once() -> None:
    brokers = ByScript(Metadata=each(NotAuthenticated("who are you")))
    with pytest.raises(NotAuthenticated):
        describe_topics(wire_to(brokers), [], what="look")
    assert brokers.nodes_asked("Metadata") == [0]


def test_a_broker_that_takes_none_for_alive_is_not_believed() -> None:
    """One that was frozen says so of itself, too: there would be no groups at all."""
    listed = Row(error_code=0, groups=[])
    brokers = ByScript(Metadata=each(described(brokers=0), described(brokers=2)), ListGroups=each(listed))
    assert list_groups(wire_to(brokers)) == ()
    assert brokers.nodes_asked("ListGroups") == [0, 1]


def test_groups_are_not_listed_without_those_of_a_broker_that_is_silent() -> None:
    def listed(node: int, _: Any) -> Any:
        if node == 2:
            raise Unavailable("silence")
        return Row(error_code=0, groups=[])

    with pytest.raises(Unavailable, match="silence"):
        list_groups(wire_to(ByScript(Metadata=each(described(0)), ListGroups=listed)))


# --- leaders ----------------------------------------------------------------------------------------------------------


def told(**offsets: tuple[int, int]) -> Any:
    """Error code and offset by partition of the topic, as ``p0=…``."""
    rows = [Row(partition_index=int(p[1:]), error_code=c, offset=o) for p, (c, o) in offsets.items()]
    return Row(topics=[Row(name="orders", partitions=rows)])


def ends(brokers: ByScript) -> dict[TopicPartition, int]:
    return LogOffsets(wire_to(brokers)).at({HERE: LATEST, BEYOND: LATEST}, "look")


def test_each_leader_is_asked_for_its_partitions() -> None:
    by_node = {1: told(p0=(0, 10)), 2: told(p1=(0, 20))}
    brokers = ByScript(Metadata=each(described(1, 2)), ListOffsets=lambda node, _: by_node[node])
    assert ends(brokers) == {HERE: 10, BEYOND: 20}
    assert sorted(brokers.nodes_asked("ListOffsets")) == [1, 2]


def test_leaders_are_looked_for_once() -> None:
    brokers = ByScript(Metadata=each(described(1, 1)), ListOffsets=each(told(p0=(0, 10), p1=(0, 20))))
    leaders = LogOffsets(wire_to(brokers))
    for _ in range(3):
        leaders.at({HERE: LATEST, BEYOND: LATEST}, "look")
    assert len(brokers.nodes_asked("Metadata")) == 1


def test_only_so_many_leaders_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_offsets, "_MOST_LEADERS", 1, raising=False)
    brokers = ByScript(Metadata=each(described(1, 1)), ListOffsets=each(told(p0=(0, 10), p1=(0, 20))))
    leaders = LogOffsets(wire_to(brokers))
    for partition in (HERE, BEYOND):
        leaders.at({partition: LATEST}, "look")
    assert list(leaders._leaders) == [BEYOND]


@pytest.mark.parametrize("code", [NOT_LEADER, UNKNOWN_TOPIC])
def test_a_leader_that_has_moved_is_followed_and_the_others_are_not_asked_again(code: int) -> None:
    by_node = {1: told(p0=(0, 10), p1=(code, -1)), 2: told(p1=(0, 20))}
    brokers = ByScript(Metadata=each(described(1, 1), described(1, 2)), ListOffsets=lambda node, _: by_node[node])
    assert ends(brokers) == {HERE: 10, BEYOND: 20}
    assert brokers.nodes_asked("ListOffsets") == [1, 2]


def test_a_leader_that_is_dead_is_waited_for_until_there_is_another() -> None:
    def offsets(node: int, _: Any) -> Any:
        if node == 1:
            raise Unavailable("it is dead")
        return told(p0=(0, 10), p1=(0, 20))

    brokers = ByScript(Metadata=each(described(1, 1), described(-1, 1), described(2, 2)), ListOffsets=offsets)
    assert ends(brokers) == {HERE: 10, BEYOND: 20}


def test_only_partitions_that_are_not_there_do_not_exist() -> None:
    brokers = ByScript(Metadata=each(described(-1)))
    with pytest.raises(UnknownPartitions) as caught:
        ends(brokers)
    assert caught.value.partitions == {BEYOND}


def test_a_topic_that_is_not_there_has_no_partitions() -> None:
    brokers = ByScript(Metadata=each(described(code=UNKNOWN_TOPIC)))
    with pytest.raises(UnknownPartitions) as caught:
        ends(brokers)
    assert caught.value.partitions == {HERE, BEYOND}


def test_a_partition_that_stays_without_a_leader_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_offsets, "_ELECTION_S", 0.0)
    brokers = ByScript(Metadata=each(described(1, -1)))
    with pytest.raises(Unavailable, match="look: orders-1 has no leader at the moment"):
        ends(brokers)
    assert len(brokers.nodes_asked("Metadata")) == 1


def test_a_missing_right_on_the_topic_is_named() -> None:
    brokers = ByScript(Metadata=each(described(code=29)))
    with pytest.raises(NotAuthorized, match="allow the principal Describe on topic orders "):
        ends(brokers)


# --- what brokers say of themselves -----------------------------------------------------------------------------------


def versions(version: int = 3, epoch: int = 7, **levels: int) -> Any:
    """An answer to ApiVersions of a broker that knows features ``one`` and ``two``."""
    told = [Row(name=name, max_version_level=level) for name, level in levels.items()]
    known = [Row(name=name) for name in ("one", "two")]
    rows = [Row(api_key=28, min_version=0, max_version=5)]
    features = {"supported_features": known, "finalized_features": told, "finalized_features_epoch": epoch}
    return Row(API_VERSION=version, api_keys=rows, **features if version >= 3 else {})


def three_brokers(*_: Any) -> Any:
    return Row(brokers=[Row(node_id=node) for node in range(3)])


@pytest.mark.parametrize(
    ("answer", "features"),
    [
        pytest.param(versions(one=2), {"one": 2, "two": 0}, id="one is on"),
        pytest.param(versions(epoch=-1), None, id="not known yet"),
        pytest.param(versions(version=2), None, id="too old to tell"),
    ],
)
def test_each_broker_tells_its_versions_and_which_features_are_on(answer: Any, features: dict[str, int] | None) -> None:
    brokers = ByScript(Metadata=three_brokers, ApiVersions=each(answer))
    assert broker_apis(wire_to(brokers)) == [BrokerApis({28: (0, 5)}, features)] * 3
    assert brokers.nodes_asked("ApiVersions") == [0, 1, 2]


def test_brokers_that_are_away_tell_nothing_and_the_others_are_heard() -> None:
    def one_away(node: int, _: Any) -> Any:
        if node == 1:
            raise Unavailable("it is dead")
        return versions()

    assert len(broker_apis(wire_to(ByScript(Metadata=three_brokers, ApiVersions=one_away)))) == 2
    with pytest.raises(Unavailable, match="all dead"):
        broker_apis(wire_to(ByScript(Metadata=three_brokers, ApiVersions=each(Unavailable("all dead")))))
