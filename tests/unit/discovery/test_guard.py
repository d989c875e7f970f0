"""What is known of a policy's new partitions, where a topic is made anew meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.discovery.guard import Guard, Wish
from tidegate.discovery.starts import Outcome, Start
from tidegate.discovery.state import DiscoveryState, KnownTopic
from tidegate.kafka.model import TopicPartition
from tidegate.resources.discovery import DiscoverySpec

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
OTHER = TopicPartition("refunds", 0)
BEFORE = DiscoveryState(True, {"orders": KnownTopic("a", 0, 0), "refunds": KnownTopic("r", 0, 0)})
ANEW = replace(BEFORE, topics={**BEFORE.topics, "orders": KnownTopic("b", 0, 0, before=("a",))})
LATE = Start(Outcome.OVERTAKEN, 0, 7)


@pytest.fixture
def guard() -> Guard:
    wish = Wish("payments", DiscoverySpec(), ("*",), ("*",), tells_agents=False)
    return Guard("u", "ns/p", wish, BEFORE, {}, busy={FIRST: "a", SECOND: "a", OTHER: "r"})


def test_what_was_done_for_the_topic_before_settles_nothing_of_the_new_one(guard: Guard) -> None:
    guard.see(ANEW)
    done = guard.stood({FIRST: Start(Outcome.GIVEN, 0), SECOND: LATE, OTHER: LATE})
    guard.settle(done)
    guard.settle([OTHER])

    assert guard.overtaken == {OTHER: LATE}
    assert {name: known.settled for name, known in guard.state.topics.items()} == {"orders": 0, "refunds": 1}


def test_what_was_known_of_the_topic_before_is_forgotten(guard: Guard) -> None:
    guard.announced, guard.too_old = {FIRST, SECOND, OTHER}, {FIRST, OTHER}
    guard.overtaken = {SECOND: LATE, OTHER: LATE}
    guard.see(ANEW)

    assert (guard.announced, guard.too_old, guard.overtaken) == ({OTHER}, {OTHER}, {OTHER: LATE})


def test_what_was_known_of_a_topic_that_has_long_been_gone_is_forgotten(guard: Guard) -> None:
    guard.announced, guard.too_old = {FIRST, OTHER}, {FIRST}
    for now_s in (0.0, 4000.0):
        guard.forget_gone({"refunds"}, now_s)

    assert (guard.announced, guard.too_old, set(guard.state.topics)) == ({OTHER}, set(), {"refunds"})


def test_what_was_heard_of_before_is_kept_apart_only_where_it_says_more(guard: Guard) -> None:
    """Thousands of groups have the same: what all topics of a cluster had before is in memory once."""
    guard.wish = replace(guard.wish, patterns=None)
    guard.existed = existed = {"r": 2, "o": 1}

    guard.reads(frozenset({"refunds"}), {"r": 2})
    assert guard.existed is existed

    guard.reads(frozenset({"refunds"}), {"r": 3})
    assert (guard.existed, existed) == ({"r": 3, "o": 1}, {"r": 2, "o": 1})
