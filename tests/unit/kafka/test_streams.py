"""What tells that a stopped group was of Kafka Streams."""

from __future__ import annotations

import base64

import pytest

from support.stopped_streams import METADATA_1, METADATA_2
from tidegate.kafka.streams import changelogs, committed, is_commit_metadata, namesakes

ENTRY = (0, 0, 0, 3, *b"agg", *[0] * 8)
"""Of a map of processors' times: the key's length, the key, the time."""
ONE_ENTRY = (0, 0, 0, 1, *ENTRY)


def encoded(*told: int) -> str:
    return base64.b64encode(bytes(told)).decode()


@pytest.mark.parametrize(
    "text",
    [
        METADATA_1,
        METADATA_2,
        pytest.param(encoded(1, *[255] * 8), id="no time is known yet"),
        pytest.param(encoded(2, *[0] * 8, *ONE_ENTRY), id="a processor has added something"),
        pytest.param(encoded(2, *[0] * 8, 0, 0, 0, 2, *ENTRY, *ENTRY), id="two have"),
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
        pytest.param(encoded(2, *[0] * 8, 7), id="what is added is cut off"),
        pytest.param(encoded(2, *[0] * 8, 0, 0, 0, 0), id="no entries are not written"),
        pytest.param(encoded(2, *[0] * 8, *ONE_ENTRY[:-1]), id="an entry is cut off"),
        pytest.param(encoded(2, *[0] * 8, *ONE_ENTRY, 0), id="something follows the entries"),
        pytest.param(encoded(2, *[0] * 8, 255, 255, 255, 255), id="a negative number of entries"),
        pytest.param(encoded(2, *[0] * 8, 0, 0, 0, 1, *[255] * 4, *[0] * 8), id="a key of negative length"),
        pytest.param(encoded(2, *[0] * 8, 127, 255, 255, 255), id="more entries than there are bytes"),
        *("AgenziaEntrate12", "AvogadroNumber99"),
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


def test_changelogs_of_an_application_with_a_longer_id_are_told_apart() -> None:
    topics = ["shop-count-changelog", "shop-eu-count-changelog", "shop-eu-north-a-changelog"]
    assert namesakes("shop", topics) == {"shop-eu", "shop-eu-north"}
    assert changelogs("shop", topics, {"shop-eu"}) == {"shop-count-changelog"}
    assert changelogs("shop", topics, {"shop-eu-north"}) == set(topics[:2])


@pytest.mark.parametrize("topics", [["shop-count-changelog"], ["shop--changelog"], ["shop"], []], ids=str)
def test_one_word_is_a_stores_name(topics: list[str]) -> None:
    assert namesakes("shop", topics) == frozenset()
