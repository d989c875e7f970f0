"""Records of the audit log: their form, their size, and what is made of bytes that anybody may have written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.audit.codec import (
    MOST_BYTES,
    PART_BYTES,
    Unreadable,
    attribution_of,
    attribution_said,
    decode_change,
    encode_change,
    line,
)
from tidegate.audit.records import Action, Actor, Attribution, AuditTopic, Change, Moved, Part, State
from tidegate.audit.topic import CONFIG, complaints
from tidegate.kafka.model import TopicPartition
from tidegate.versions import NewerVersion

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "audit" / "vectors.json").read_text())
T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
RESET = Change(
    id="5f0e/replay#1.1",
    action=Action.RESET,
    state=State.COMMITTED,
    group="payments",
    by=Actor("OffsetReset", "replay", "team"),
    offsets={T0: Moved(120, 40), T1: Moved(None, 0)},
    run="5f0e/replay",
    round=1,
    way="Gated",
    plan="c0ffee",
    requester="ann",
    approver="bob",
    approved="c0ffee",
)


def test_a_record_has_the_form_that_is_documented() -> None:
    [(key, value)] = encode_change(RESET).items()
    assert key.decode() == VECTORS["reset"]["key"]
    assert json.loads(value) == VECTORS["reset"]["value"]
    assert list(json.loads(value)) == list(VECTORS["reset"]["value"])
    assert decode_change(json.dumps(VECTORS["reset"]["value"]).encode()) == Part(RESET)


def test_the_longest_group_of_a_fleet_can_be_read() -> None:
    """Run and record are named after it, and characters outside ASCII take six bytes each."""
    group = "é" * 32_767
    run = f"{'u' * 36}/{'n' * 253}/{group}"
    offsets = {TopicPartition("t" * 249, n): Moved(2**63 - 1, 2**63 - 2) for n in range(20_000)}
    change = replace(RESET, id=f"{run}#1.1", run=run, group=group, requester="r" * 2000, offsets=offsets)
    parts = [decode_change(value) for value in encode_change(change).values()]
    assert len(parts) == parts[0].of > 1
    assert all(part.change == replace(change, offsets=part.change.offsets) for part in parts)


def test_what_is_not_known_is_left_out() -> None:
    start = Change("a", Action.START, State.COMMITTED, "g", Actor("OffsetResetPolicy", "p", "ns"), {T0: Moved(None, 7)})
    [value] = encode_change(start).values()
    assert json.loads(value) == VECTORS["start"]["value"]
    assert decode_change(value) == Part(start)


def test_members_of_a_later_writer_are_ignored() -> None:
    body = VECTORS["reset"]["value"] | {"ticket": "OPS-1"}
    assert decode_change(json.dumps(body).encode()) == Part(RESET)


def test_a_later_version_is_told_apart_from_what_is_broken() -> None:
    with pytest.raises(NewerVersion):
        decode_change(json.dumps(VECTORS["reset"]["value"] | {"version": 2}).encode())


def test_many_partitions_are_several_records_of_a_bounded_size() -> None:
    offsets = {TopicPartition(f"topic-{n // 500:03}", n % 500): Moved(10**15 + n, None) for n in range(50_000)}
    records = encode_change(replace(RESET, offsets=offsets))
    parts = [decode_change(value) for value in records.values()]
    assert max(map(len, records.values())) < PART_BYTES + 10_000 < MOST_BYTES
    assert len(records) == len(parts) > 1
    assert [(p.number, p.of) for p in parts] == [(n, len(parts)) for n in range(1, len(parts) + 1)]
    together: dict[TopicPartition, Moved] = {}
    for part in parts:
        together |= part.change.offsets
        assert replace(part.change, offsets={}) == replace(RESET, offsets={})
    assert sum(len(part.change.offsets) for part in parts) == len(together)
    assert together == offsets


def test_the_longest_names_fit() -> None:
    offsets = {TopicPartition(f"{n:04}".ljust(249, "x"), 0): Moved(0, 1) for n in range(5000)}
    records = encode_change(replace(RESET, offsets=offsets))
    assert max(map(len, records.values())) < PART_BYTES + 10_000
    assert sum(len(decode_change(value).change.offsets) for value in records.values()) == 5000


def test_a_change_of_nothing_is_one_record() -> None:
    """Offsets that were to be forgotten and were all kept."""
    [value] = encode_change(replace(RESET, state=State.DONE, offsets={})).values()
    assert decode_change(value).change.offsets == {}


def broken(**changed: Any) -> bytes:
    body = VECTORS["reset"]["value"] | changed
    return json.dumps({name: value for name, value in body.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"[" * 200_000,
        b" " * (MOST_BYTES + 1),
        b'{"kind": NaN}',
        broken(kind="hold"),
        broken(version="x"),
        broken(version=True),
        broken(id=""),
        broken(id=...),
        broken(id="x" * 34_001),
        broken(action="delete"),
        broken(action=["reset"]),
        broken(state=None),
        broken(group=7),
        broken(by="ann"),
        broken(by={"kind": "OffsetReset"}),
        broken(part=0),
        broken(part=2, parts=1),
        broken(parts=10**9),
        broken(round=-1),
        broken(round=1.0),
        broken(requester={"name": "ann"}),
        broken(offsets=...),
        broken(offsets=[]),
        broken(offsets={"orders": {}}),
        broken(offsets={"..": []}),
        broken(offsets={"a b": []}),
        broken(offsets={"orders": [[0, 1]]}),
        broken(offsets={"orders": [[0, 1, 2, 3]]}),
        broken(offsets={"orders": [[-1, 1, 2]]}),
        broken(offsets={"orders": [[2**31, 1, 2]]}),
        broken(offsets={"orders": [[True, 1, 2]]}),
        broken(offsets={"orders": [[0, -1, 2]]}),
        broken(offsets={"orders": [[0, 1, 2**63]]}),
        broken(offsets={"orders": [[0, 1, "2"]]}),
    ],
)
def test_what_is_no_record_is_unreadable(value: bytes | None) -> None:
    with pytest.raises(Unreadable):
        decode_change(value)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(value: bytes) -> None:
    with pytest.raises(Unreadable):
        decode_change(value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(st.sampled_from(sorted(VECTORS["reset"]["value"])), _JSON)
def test_no_member_raises_anything_else(name: str, value: Any) -> None:
    try:
        part = decode_change(broken(**{name: value}))
    except (Unreadable, NewerVersion):
        return
    line(part, at_ms=0, offset=0)


@pytest.mark.parametrize("evil", ["\x1b[2J", "\x7f", "\x9b31m", "\u202e", "\u2028", "a\nb", "\ud800", "\U0001f600"])
def test_a_line_has_nothing_that_drives_a_terminal(evil: str) -> None:
    part = Part(replace(RESET, requester=evil, group=f"g{evil}", by=Actor("OffsetReset", evil)))
    text = line(part, at_ms=1_764_158_400_123, offset=7)
    assert text.isascii()
    assert text.isprintable()
    said = json.loads(text)
    assert (said["requester"], said["by"]["name"], said["at"]) == (evil, evil, "2025-11-26T12:00:00.123Z")


def test_a_line_says_where_and_when() -> None:
    assert json.loads(line(Part(RESET), at_ms=0, offset=7)) == VECTORS["line"]
    for never in (-1, 10**17):
        assert json.loads(line(Part(RESET), at_ms=never, offset=7))["at"] is None


def test_a_job_is_told_in_whose_name_it_acts() -> None:
    attribution = Attribution(
        AuditTopic("a", required=True), Actor("OffsetReset", "r", "ns"), "ann", "bob", "c0ffee", Action.BACKFILL
    )
    assert attribution_of({"TIDEGATE_RUN_AUDIT": attribution_said(attribution)}) == attribution
    assert attribution_of({}) is None
    for broken_text in ("{", "[]", "{}", '{"topic": 1}'):
        with pytest.raises(ValueError, match="TIDEGATE_RUN_AUDIT"):
            attribution_of({"TIDEGATE_RUN_AUDIT": broken_text})


def test_a_topic_as_it_is_made_has_nothing_to_complain_of() -> None:
    assert complaints("t", CONFIG) == ()
    assert complaints("t", {**CONFIG, "retention.ms": "1000", "max.message.bytes": "1048588"}) == ()


@pytest.mark.parametrize(
    ("name", "value", "mended"),
    [
        ("message.timestamp.type", "CreateTime", "message.timestamp.type=LogAppendTime"),
        ("cleanup.policy", "compact,delete", "cleanup.policy=delete"),
        ("max.message.bytes", "65536", "max.message.bytes=1000000"),
    ],
)
def test_each_complaint_has_the_command_that_mends_it(name: str, value: str, mended: str) -> None:
    [complaint] = complaints("t", {**CONFIG, name: value})
    assert complaint.endswith(f"kafka-configs --alter --entity-type topics --entity-name t --add-config {mended}")
