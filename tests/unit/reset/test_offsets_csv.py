"""The CSV that ``kafka-consumer-groups --export`` writes and ``--from-file`` reads."""

from __future__ import annotations

import pytest

from tidegate.reset.model.targets import PartitionOffset
from tidegate.reset.planning.offsets_csv import (
    EXPECTED,
    BadOffsetsFile,
    parse_offsets,
    write_group_offsets,
    write_offsets,
)

ORDERS = (PartitionOffset("orders", 0, 5), PartitionOffset("orders", 1, 7))


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        pytest.param("orders,0,5\norders,1,7\n", ORDERS, id="one group"),
        pytest.param("orders,1,7\norders,0,5", ORDERS, id="any order, no newline at the end"),
        pytest.param("orders,0,5\r\norders,1,7\r\n", ORDERS, id="CRLF"),
        pytest.param("\n\norders,0,5\n\n  \norders,1,7\n\n", ORDERS, id="blank lines"),
        pytest.param('"orders",0,5\n"orders","1","7"\n', ORDERS, id="quoted"),
        pytest.param("orders, 0, 5\norders , 1,7 \n", ORDERS, id="spaces"),
        pytest.param("\ufefforders,0,5\norders,1,7\n", ORDERS, id="byte order mark"),
        pytest.param("orders,0,5\norders,1,7\norders,0,5\n", ORDERS, id="a row twice"),
        pytest.param("g,orders,0,5\nother,orders,0,9\ng,orders,1,7\n", ORDERS, id="several groups"),
        pytest.param('"g","orders",0,5\n"a,b",x,0,9\n"g",orders,1,7\n', ORDERS, id="several groups, quoted"),
        pytest.param("orders,0,9223372036854775807\n", (PartitionOffset("orders", 0, 2**63 - 1),), id="largest offset"),
    ],
)
def test_parse(text: str, offsets: tuple[PartitionOffset, ...]) -> None:
    assert parse_offsets(text, "g") == offsets


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "there is no row", id="empty"),
        pytest.param("\n \n", "there is no row", id="only blank lines"),
        pytest.param("TOPIC,PARTITION,OFFSET\norders,0,5\n", "line 1 has 'PARTITION' as partition", id="header"),
        pytest.param("orders,0\n", "line 1 has 2 column(s)", id="too few columns"),
        pytest.param("a,b,c,d,e\n", "line 1 has 5 column(s)", id="too many columns"),
        pytest.param(
            "orders,0,5\n\ng,orders,1,7\n", "line 3 has 4 columns where earlier ones have 3", id="mixed forms"
        ),
        pytest.param("orders,0,5\norders,one,7\n", "line 2 has 'one' as partition", id="partition"),
        pytest.param("orders,0,-1\n", "line 1 has '-1' as offset", id="negative offset"),
        pytest.param("orders,0,1_000\n", "line 1 has '1_000' as offset", id="underscore"),
        pytest.param("orders,0,٣\n", "line 1 has '٣' as offset", id="other digits"),
        pytest.param("orders,0,9223372036854775808\n", "as offset", id="offset too large"),
        pytest.param("orders,2147483648,0\n", "as partition", id="partition too large"),
        pytest.param(",0,5\n", "line 1 has no topic", id="no topic"),
        pytest.param(",orders,0,5\n", "line 1 has no group", id="no group"),
        pytest.param('orders,0,5\n"orders,1,7\n', "is not CSV", id="open quote"),
        pytest.param("orders,0,5\norders,0,6\n", "line 2 sets orders-0 to 6, but line 1 to 5", id="contradiction"),
        pytest.param("other,orders,0,5\n", "there is no row for group g, only for other", id="other groups only"),
    ],
)
def test_errors_name_the_line_and_what_is_expected(text: str, says: str) -> None:
    with pytest.raises(BadOffsetsFile) as refused:
        parse_offsets(text, "g")
    assert says in str(refused.value)
    assert "expected" in str(refused.value) or "no row for group" in str(refused.value)


def test_expected_names_both_forms() -> None:
    assert "topic,partition,offset" in EXPECTED
    assert "group,topic,partition,offset" in EXPECTED


def test_written_as_kafka_writes_it() -> None:
    assert write_offsets(ORDERS) == "orders,0,5\norders,1,7\n"
    assert write_group_offsets({"g": ORDERS}) == "g,orders,0,5\ng,orders,1,7\n"
