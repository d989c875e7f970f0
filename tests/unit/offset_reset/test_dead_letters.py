"""An ``OffsetReset`` that copies what it skips, pass by pass: where its connection allows it, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.reset_world import World
from tidegate.audit.records import AuditTopic
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.resources.connection import AllowSpec
from unit.offset_reset.test_shared_resets import complete

LETTERS = "orders.DLT"
SKIP = {
    "to": {"offset": 51},
    "partitions": [{"topic": "orders", "partitions": [0]}],
    "deadLetter": {"topic": LETTERS},
}


def allow(world: World, *topics: str) -> None:
    live = world.live.get("ns", "kafka")
    assert live is not None
    world.live.put(replace(live, allow=AllowSpec(dead_letter_topics=topics)))


@pytest.fixture
def skipping(world: World) -> World:
    world.kafka.create_topic(LETTERS, 1)
    return world


def copies(world: World) -> list[int]:
    [log] = world.kafka._topics[LETTERS].logs
    return sorted(log.records)


def test_a_skip_is_copied_and_says_so(skipping: World) -> None:
    allow(skipping, "*.DLT")
    skipping.ask(**SKIP)

    skipping.passes()

    assert (skipping.reset["phase"], skipping.offset) == ("Succeeded", 51)
    assert "1 record(s) were copied to dead-letter topic orders.DLT" in complete(skipping)[1]
    assert copies(skipping) == [0]


@pytest.mark.parametrize("allowed", [(), ("refunds.DLT",)])
def test_a_topic_that_the_connection_does_not_name_is_refused(skipping: World, allowed: tuple[str, ...]) -> None:
    allow(skipping, *allowed)
    skipping.ask(**SKIP)

    skipping.passes()

    reason, message = complete(skipping)
    assert reason == "TopicNotAllowed"
    assert "spec.deadLetter.topic: KafkaConnection kafka does not allow dead-letter topic orders.DLT" in message
    assert (skipping.offset, skipping.documents, copies(skipping)) == (50, [], [])


def test_an_internal_topic_is_no_dead_letter_topic(skipping: World) -> None:
    allow(skipping, "*")
    skipping.ask(**(SKIP | {"deadLetter": {"topic": "__tidegate"}}))

    skipping.passes()

    assert (complete(skipping)[0], skipping.offset) == ("TopicNotAllowed", 50)


@pytest.mark.parametrize("topic", ["holds", "holds_acks", "answers", "changes"])
def test_the_connections_own_topics_are_no_dead_letter_topics(skipping: World, topic: str) -> None:
    """What is copied there would be obeyed, or taken for what was done; whoever asks may have written the record."""
    live = skipping.live.get("ns", "kafka")
    assert live is not None
    connection = replace(live.connection, control_topic="holds", ack_topic="answers")
    skipping.live.put(replace(live, connection=connection, audit=AuditTopic("changes")))
    allow(skipping, "*")
    skipping.kafka.create_topic(topic, 1)
    skipping.ask(**(SKIP | {"deadLetter": {"topic": topic}}))

    skipping.passes()

    assert (complete(skipping)[0], skipping.offset) == ("TopicNotAllowed", 50)
    [log] = skipping.kafka._topics[topic].logs
    assert not log.records


def test_a_plan_that_waits_is_not_applied_once_its_copies_are_not_allowed_any_more(skipping: World) -> None:
    allow(skipping, LETTERS)
    skipping.ask(approval="Manual", **SKIP)
    skipping.passes()
    assert skipping.reset["phase"] == "AwaitingApproval"

    allow(skipping)
    skipping.approve()
    skipping.some_passes(3)

    assert (complete(skipping)[0], skipping.offset, copies(skipping)) == ("TopicNotAllowed", 50, [])
    allow(skipping, LETTERS)
    skipping.passes()
    assert (skipping.reset["phase"], skipping.offset, copies(skipping)) == ("Succeeded", 51, [0])


def test_the_plan_of_an_undo_says_that_the_copies_stay(skipping: World) -> None:
    allow(skipping, LETTERS)
    skipping.ask(**SKIP)
    skipping.passes()
    [skip] = skipping.documents
    skipping.ask("back", to={"undo": "p"})

    skipping.passes()

    assert (skipping.reset["phase"], skipping.offset, copies(skipping)) == ("Succeeded", 50, [0])
    [undo] = [each for each in skipping.documents if each != skip]
    plan = DirectoryRunStore(undo.parent, undo.stem, clock=skipping.clock).load().plan
    assert plan is not None
    assert [
        n
        for n in plan.notes
        if n.startswith("Run p has copied the records that it skipped to dead-letter topic orders.DLT")
    ]
