"""What the copy of a topic needs before its records are copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tidegate.kafka.model import Topic
from tidegate.offset_mirror.topics import AddPartitions, Configure, Copied, Create, Halted, Sides, next_step, wanted
from tidegate.resources.offset_mirror import CopyState, MirroredTopics, MirroredTopicStatus

SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "1000",
    "unclean.leader.election.enable": "x",
}
SAME = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "1000",
    "min.insync.replicas": "2",
}
SOURCE, TARGET = Topic("t", "s1", 3), Topic("t", "t1", 3)
BOTH = Sides(SOURCE, SETTINGS, False, TARGET, SAME)
KNOWN = MirroredTopicStatus(name="t", source_id="s1", target_id="t1", partitions=3, state=CopyState.IN_SYNC)
DRIFTED = KNOWN.model_copy(update={"state": CopyState.DRIFTED})


def test_a_topic_that_is_not_there_is_created_as_the_source_has_it() -> None:
    step = next_step(replace(BOTH, target=None, target_settings={}), None)

    expected = {key: value for key, value in SAME.items() if key != "min.insync.replicas"}
    assert step == Create("t", 3, expected)


def test_one_that_is_as_it_should_be_is_copied() -> None:
    assert next_step(BOTH, None) == Copied(SOURCE, TARGET, compacts=False, filler_key=None)
    assert next_step(BOTH, KNOWN) == Copied(SOURCE, TARGET, compacts=False, filler_key=None)


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ({"message.timestamp.type": "LogAppendTime"}, {"message.timestamp.type": "CreateTime"}),
        ({"compression.type": "zstd", "retention.ms": "5"}, {"compression.type": "producer", "retention.ms": "1000"}),
        ({"message.timestamp.after.max.ms": "3600000"}, {"message.timestamp.after.max.ms": str(2**63 - 1)}),
    ],
)
def test_settings_that_differ_are_set(there: dict[str, str], missing: dict[str, str]) -> None:
    assert next_step(replace(BOTH, target_settings=SAME | there), KNOWN) == Configure("t", missing)


def test_partitions_that_were_added_are_added() -> None:
    assert next_step(replace(BOTH, source=Topic("t", "s1", 5)), KNOWN) == AddPartitions("t", 5)


@pytest.mark.parametrize(
    ("given", "begins_later", "policy"),
    [("compact", False, "compact"), ("compact", True, "compact,delete"), ("", False, ""), ("", True, "delete")],
)
def test_a_copy_can_forget_what_filled_it(given: str, begins_later: bool, policy: str) -> None:
    """That of a topic without any policy is not compacted for it, or would lose records that the source keeps."""
    settings = {"cleanup.policy": given, "retention.ms": "1000"}
    step = next_step(Sides(SOURCE, settings, begins_later, None, {}), None)

    assert isinstance(step, Create)
    assert step.settings["cleanup.policy"] == policy
    # Else it would forget by age what the source keeps.
    assert step.settings["retention.ms"] == ("-1" if begins_later else "1000")
    copied = next_step(Sides(SOURCE, settings, begins_later, TARGET, step.settings), None)
    assert copied == Copied(SOURCE, TARGET, compacts=bool(given), filler_key=b"tidegate.filler" if given else None)


def test_a_topic_that_was_created_again_at_the_source_is_not_mixed_with_its_copy() -> None:
    again = replace(BOTH, source=Topic("t", "s2", 3))
    step = next_step(again, KNOWN)

    assert isinstance(step, Halted)
    assert step.drifted
    assert "was deleted and created again at the source" in step.message
    assert isinstance(next_step(replace(again, target=None, target_settings={}), KNOWN), Create)
    assert isinstance(next_step(replace(again, target=Topic("t", "t2", 3)), KNOWN), Copied)


def test_a_copy_with_more_partitions_is_left_alone() -> None:
    step = next_step(replace(BOTH, target=Topic("t", "t1", 4)), KNOWN)

    assert step == Halted(
        "topic t has 4 partitions at the target, and 3 at the source: delete it at the target to have it copied again "
        "from its start",
        drifted=False,
    )


def test_topics_are_chosen_by_both_connections_and_the_mirror() -> None:
    spec = MirroredTopics(include=("orders*", "__tidegate", "refunds"), exclude=("*-tmp",))
    there = ["orders", "orders-eu", "orders-tmp", "refunds", "__tidegate", "__orders", "other"]

    assert wanted(there, spec, ("*",), ("orders*",)) == ["orders", "orders-eu"]


@pytest.mark.parametrize("known", [None, KNOWN.model_copy(update={"target_id": "t0"}), DRIFTED])
@pytest.mark.parametrize(
    "differs",
    [{"target_settings": SAME | {"retention.ms": "5"}}, {"source": Topic("t", "s1", 5)}],
    ids=["settings", "partitions"],
)
def test_a_topic_with_records_of_others_is_not_changed(
    known: MirroredTopicStatus | None, differs: dict[str, Any]
) -> None:
    sides = replace(BOTH, target_is_empty=False, **differs)
    step = next_step(sides, known)

    assert isinstance(step, Halted)
    assert step.drifted
    assert "records at the target that this mirror did not copy" in step.message
    assert isinstance(next_step(sides, KNOWN), Configure | AddPartitions)
    assert isinstance(next_step(replace(sides, target_is_empty=True), known), Configure | AddPartitions)


def test_nothing_is_changed_before_the_records_that_are_there_have_been_looked_at() -> None:
    """The status names the topic, and no partition has been read yet: they may be somebody else's."""
    sides = replace(BOTH, target_is_empty=False, target_settings=SAME | {"retention.ms": "5"})
    unread = KNOWN.model_copy(update={"state": CopyState.WAITING})

    assert isinstance(next_step(sides, unread), Copied)
    assert isinstance(next_step(replace(sides, target_is_empty=True), unread), Configure)
    assert isinstance(next_step(sides, unread.model_copy(update={"seeded": True})), Configure)
