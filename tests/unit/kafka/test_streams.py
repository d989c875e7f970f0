"""What tells that a stopped group was of Kafka Streams."""

from __future__ import annotations

import base64

import pytest

from support.stopped_streams import METADATA_1, METADATA_2
from tidegate.kafka.streams import changelogs, committed, is_commit_metadata


def encoded(*told: int) -> str:
    return base64.b64encode(bytes(told)).decode()


@pytest.mark.parametrize(
    "text",
    [
        METADATA_1,
        METADATA_2,
        pytest.param(encoded(1, *[255] * 8), id="no time is known yet"),
        pytest.param(encoded(2, *[0] * 8, 0, 0, 0, 1, 7), id="processors have added something"),
    ],
)
def test_what_kafka_streams_writes_is_recognised(text: str) -> None:
    assert is_commit_metadata(text)
    assert committed(["", "another client's", text])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "checked by hand",
        "AQ==",
        pytest.param(METADATA_2[:-1], id="padding is missing"),
        pytest.param(METADATA_2 + "\x00", id="a byte follows"),
        pytest.param(encoded(3, *[0] * 8), id="no version of it"),
        pytest.param(encoded(1, *[0] * 9), id="version 1 has nothing more"),
        pytest.param(encoded(2, *[255] * 7, 254), id="before the unknown time"),
        "é" * 12,
    ],
)
def test_what_others_write_is_not(text: str) -> None:
    assert not is_commit_metadata(text)
    assert not committed([text])


def test_changelogs_are_told_by_their_names() -> None:
    topics = ["shop-count-changelog", "shop-KSTREAM-JOINTHIS-0000000005-store-changelog", "shop-orders-repartition"]
    unlike = ["shop", "shop-changelog", "shop--changelog", "shop-count-changelog-2", "shopping-a-changelog"]
    assert changelogs("shop", [*topics, *unlike]) == set(topics[:2])
