"""``tidegate topics --describe``: lines of kafka-topics, with the bounds of the partitions' creation."""

from __future__ import annotations

import io

import pytest

from tidegate.cli.errors import UsageError
from tidegate.cli.screen import Screen
from tidegate.cli.topics import describe_topics, topics_parser
from tidegate.control.records import PartitionKey, PartitionSeen
from tidegate.kafka.model import Topic

TOPICS = {"orders": Topic("orders", "id-1", 4), "refunds": Topic("refunds", "id-2", 1)}
KNOWN = {
    PartitionKey("orders", "id-1", 0): PartitionSeen(initial=True),
    PartitionKey("orders", "id-1", 1): PartitionSeen(1_700_000_000_118, 1_700_000_000_000),
    PartitionKey("orders", "id-1", 2): PartitionSeen(1_700_000_000_118),
    PartitionKey("refunds", "an earlier one", 0): PartitionSeen(1_700_000_000_118),
}


def describe(*names: str) -> tuple[int, str]:
    screen = Screen(io.StringIO(), io.StringIO())
    code = describe_topics(names, TOPICS, KNOWN, screen)
    assert isinstance(screen.out, io.StringIO)
    return code, screen.out.getvalue()


def test_bounds_are_shown_where_they_are_known() -> None:
    assert describe("orders") == (
        0,
        "Topic: orders\tTopicId: id-1\tPartitionCount: 4\n"
        "\tTopic: orders\tPartition: 0\tCreatedAfter: -\tCreatedBefore: -\tInitial: yes\n"
        "\tTopic: orders\tPartition: 1\tCreatedAfter: 2023-11-14T22:13:20.000Z\tCreatedBefore: "
        "2023-11-14T22:13:20.118Z\tInitial: no\n"
        "\tTopic: orders\tPartition: 2\tCreatedAfter: -\tCreatedBefore: 2023-11-14T22:13:20.118Z\tInitial: no\n"
        "\tTopic: orders\tPartition: 3\tCreatedAfter: -\tCreatedBefore: -\tInitial: -\n",
    )


def test_the_highest_that_was_there_at_first_stands_for_those_below_it() -> None:
    screen, topic = Screen(io.StringIO(), io.StringIO()), Topic("orders", "id", 4)
    known = {
        PartitionKey("orders", "id", 2): PartitionSeen(initial=True),
        PartitionKey("orders", "id", 1): PartitionSeen(1_700_000_000_118),
    }
    assert describe_topics(["orders"], {"orders": topic}, known, screen) == 0
    assert isinstance(screen.out, io.StringIO)
    assert [line.rsplit("\t", 1)[1] for line in screen.out.getvalue().splitlines()[1:]] == [
        *("Initial: yes", "Initial: no", "Initial: yes", "Initial: -"),
    ]


def test_without_a_name_all_are_described_and_records_of_an_earlier_topic_do_not_count() -> None:
    code, out = describe()

    assert code == 0
    assert "\tTopic: refunds\tPartition: 0\tCreatedAfter: -\tCreatedBefore: -\tInitial: -\n" in out
    assert out.index("Topic: orders") < out.index("Topic: refunds")


def test_a_topic_that_does_not_exist_is_named() -> None:
    code, out = describe("gone", "refunds")

    assert code == 1
    assert "Topic: refunds" in out
    assert "Topic 'gone' does not exist" in out


def test_describe_is_what_there_is() -> None:
    with pytest.raises(UsageError):
        topics_parser().parse_args(["--bootstrap-server", "kafka:9092"])


def test_a_time_that_no_calendar_has_is_shown_as_it_is() -> None:
    screen, topic = Screen(io.StringIO(), io.StringIO()), Topic("orders", "id", 1)
    known = {PartitionKey("orders", "id", 0): PartitionSeen(2**63 - 1, 5)}

    assert describe_topics(["orders"], {"orders": topic}, known, screen) == 0

    assert isinstance(screen.out, io.StringIO)
    assert "CreatedAfter: 1970-01-01T00:00:00.005Z\tCreatedBefore: 9223372036854775807\t" in screen.out.getvalue()
