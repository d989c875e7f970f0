"""Checkpoints as ``org.apache.kafka.connect.mirror.Checkpoint`` writes them."""

from __future__ import annotations

import pytest

from tidegate.find.checkpoints import Checkpoint, read_checkpoint, topic_of
from tidegate.find.survey import origin_of
from tidegate.kafka.model import Topic, TopicPartition

KEY = b"\x00\x08payments\x00\x0aold.orders\x00\x00\x00\x03"
VALUE = b"\x00\x00" + b"\x00" * 6 + b"\x01\x02" + b"\x00" * 7 + b"\x05" + b"\x00\x01m"


def test_a_checkpoint_is_read() -> None:
    assert read_checkpoint(KEY, VALUE) == Checkpoint("payments", TopicPartition("old.orders", 3), 258, 5)
    assert topic_of("old") == "old.checkpoints.internal"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", VALUE),
        (KEY[:-1], VALUE),
        (b"\x7f\xff" + KEY[2:], VALUE),
        (KEY.replace(b"pay", b"\xff\xfe\xfd"), VALUE),
        (KEY, b""),
        (KEY, VALUE[:17]),
        (KEY, b"\x00\x01" + VALUE[2:]),
        (KEY, b"\x00\x00\xff" + VALUE[3:]),
    ],
    ids=["empty", "cut", "length", "text", "no-value", "short", "version", "negative"],
)
def test_what_is_no_checkpoint_is_none(key: bytes, value: bytes) -> None:
    assert read_checkpoint(key, value) is None


@pytest.mark.parametrize(
    ("name", "alias", "origin"),
    [
        ("orders", None, "orders"),
        ("old.orders", "old", "orders"),
        ("old.orders", None, None),
        ("old.orders", "other", None),
        ("orders", "old", None),
        ("refunds", "old", "refunds"),
        ("local", "old", None),
    ],
)
def test_topics_have_the_names_that_replication_policies_give(name: str, alias: str | None, origin: str | None) -> None:
    here = {n: Topic(n, "id", 1) for n in ("orders", "old.orders", "refunds", "local")}
    there = {n: Topic(n, "id", 1) for n in ("orders", "refunds")}
    assert origin_of(name, here, there, alias) == origin
