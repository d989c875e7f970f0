"""Records of the control and ack topics that were written to do harm, as bytes, against the operator and the agent.

Whatever the bytes are, a reader either understands a record of the contract or refuses it as one that is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate.control.codec as of_operator
import tidegate_agent.records as of_agent
from tidegate.control.records import Hold, PartitionSeen

VECTORS = json.loads((Path(__file__).parents[2] / "agents" / "contract" / "vectors.json").read_text(encoding="utf-8"))
WELL_FORMED = [
    (vector["key"].encode(), None if vector["value"] is None else vector["value"].encode())
    for vector in VECTORS["readable"]
]
KEY = b'{"group":"payments","kind":"ack","partition":3,"topic":"orders"}'
VALUE = b'{"epoch":1042,"member":"rdkafka-5a1c","offset":88120}'
DEEP = 5_000

Outcome = tuple[bytes, Any] | None
"""What was read: the key as it is written again, and the value; ``None``: refused."""


def _refused(message: str) -> None:
    assert len(message) < 400, "a refusal does not repeat what it refuses at length"


def _operator(key: bytes | None, value: bytes | None) -> Outcome:
    try:
        read, says = of_operator.decode(key, value)
    except of_operator.Unreadable as refusal:
        return _refused(str(refusal))
    if isinstance(says, Hold):
        says = replace(says, connection="", version=1)  # no agent's business
    return of_operator.encode_key(read), says and of_operator.encode_value(says)


def _agent(key: bytes | None, value: bytes | None) -> Outcome:
    try:
        read, says = of_agent.decode(key, value)
    except of_agent.Unreadable as refusal:
        return _refused(str(refusal))
    if isinstance(says, of_agent.PartitionSeen):
        return of_agent.encode_key(read), of_operator.encode_value(PartitionSeen(**vars(says)))
    return of_agent.encode_key(read), says and of_agent.encode_value(says)


READERS = pytest.mark.parametrize("read", [_operator, _agent], ids=["operator", "agent"])

HOSTILE: dict[str, tuple[bytes | None, bytes | None]] = {
    "half a character in UTF-8": (KEY.replace(b"payments", b"g\xed\xa0\x80"), VALUE),
    "half a character in UTF-8, in the value": (KEY, VALUE.replace(b"rdkafka", b"\xed\xb0\x80")),
    "bytes that are no UTF-8": (KEY.replace(b"payments", b"\xff\xfe"), VALUE),
    "UTF-16": (KEY.decode().encode("utf-16-le"), VALUE),
    "UTF-16 in the value": (KEY, VALUE.decode().encode("utf-16")),
    "UTF-32 in the value": (KEY, VALUE.decode().encode("utf-32-be")),
    "nothing at all": (b"", b""),
    "a deep key": (b'{"group":' + b"[" * DEEP + b"]" * DEEP + b"}", VALUE),
    "a deep value": (KEY, b'{"epoch":' + b'{"":' * DEEP + b"1" + b"}" * DEEP + b"}"),
    "a nest in the place of a name": (KEY, VALUE.replace(b'"rdkafka-5a1c"', b"[" * 400 + b"]" * 400)),
    "a number of thousands of digits": (KEY, b'{"epoch":' + b"9" * 10_000 + b',"member":"m","offset":1}'),
    "a number that Python reads": (KEY, b'{"epoch":' + b"9" * 4_000 + b',"member":"m","offset":1}'),
    "a megabyte of name": (KEY.replace(b"payments", b"g" * 1_000_000), VALUE),
    "a megabyte of white space": (KEY, b" " * 1_000_000 + VALUE),
    "ten thousand members": (KEY, json.dumps({str(n): n for n in range(10_000)}).encode()),
}


@READERS
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_record_is_refused_and_nothing_else_happens(read: Callable[..., Outcome], name: str) -> None:
    assert read(*HOSTILE[name]) is None


@READERS
def test_what_these_records_are_made_from_is_understood(read: Callable[..., Outcome]) -> None:
    assert read(KEY, VALUE) == (KEY, VALUE)


def _spoilt(data: bytes, cuts: list[tuple[int, int, bytes]]) -> bytes:
    for at, length, put in cuts:
        at %= len(data) + 1
        data = data[:at] + put + data[at + length :]
    return data


CUTS = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.integers(0, 12),
        st.one_of(
            st.binary(max_size=3),
            st.sampled_from([b'"', b"\\ud800", b"\\u0000", b"-", b"1e9", b"null", b"{", b"]", b"\xed\xa0\x80", b" "]),
        ),
    ),
    min_size=1,
    max_size=3,
)


@given(
    group=st.text(max_size=260),
    topic=st.text("abc._-/", max_size=6),
    numbers=st.tuples(*[st.integers(-2, 2) | st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**63])] * 3),
    member=st.text(max_size=1030),
    spoils=st.booleans(),
    cuts=CUTS,
)
def test_an_ack_is_read_the_same_the_short_way_and_the_long_way(
    group: str,
    topic: str,
    numbers: tuple[int, int, int],
    member: str,
    spoils: bool,
    cuts: list[tuple[int, int, bytes]],
) -> None:
    """What looks like an ack as agents write it is read without JSON."""
    partition, epoch, offset = numbers
    body = {"group": group, "kind": "ack", "partition": partition, "topic": topic}
    key, value = (
        json.dumps(each, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        for each in (body, {"epoch": epoch, "member": member, "offset": offset})
    )
    if spoils:
        value = _spoilt(value, cuts)

    short = of_operator._plain_ack(key, value)

    assert short is None or of_operator._long(key, value) == short


@given(record=st.sampled_from(WELL_FORMED), keys=CUTS, values=CUTS, spoils_key=st.booleans())
def test_a_spoilt_record_is_refused_or_is_one_that_both_write_alike(
    record: tuple[bytes, bytes | None],
    keys: list[tuple[int, int, bytes]],
    values: list[tuple[int, int, bytes]],
    spoils_key: bool,
) -> None:
    key, value = record
    if spoils_key:
        key = _spoilt(key, keys)
    else:
        value = _spoilt(value or b"{}", values)

    found = _operator(key, value)

    assert found == _agent(key, value)
    assert found is None or found[0] == key
