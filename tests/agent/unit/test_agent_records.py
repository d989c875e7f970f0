"""The agent's reading and writing of the two topics, held to the vectors that bind the operator as well."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tidegate_agent.gates import GateTable, Partition
from tidegate_agent.records import (
    Ack,
    AckKey,
    ClockKey,
    Hold,
    HoldKey,
    Limit,
    LimitKey,
    PartitionKey,
    Unreadable,
    decode,
    encode_key,
    encode_value,
)

VECTORS = json.loads((Path(__file__).parents[3] / "agents" / "contract" / "vectors.json").read_text(encoding="utf-8"))
WRITTEN = [vector for vector in VECTORS["readable"] if vector["record"]["kind"] in ("hold", "limit", "ack")]
KINDS = {HoldKey: "hold", LimitKey: "limit", PartitionKey: "partition", ClockKey: "clock", AckKey: "ack"}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@pytest.mark.parametrize("vector", VECTORS["readable"], ids=lambda v: v["name"])
def test_a_record_of_the_contract_is_read_as_what_it_says(vector: dict[str, Any]) -> None:
    key, value = decode(_bytes(vector["key"]), _bytes(vector["value"]))
    rest = {} if value is None else asdict(value)
    if vector["value"] is None:
        rest = {"released": True}
    assert {"kind": KINDS[type(key)], **asdict(key), **rest} == vector["record"]


@pytest.mark.parametrize("vector", WRITTEN, ids=lambda v: v["name"])
def test_a_record_is_written_as_the_contract_has_it(vector: dict[str, Any]) -> None:
    key, value = decode(_bytes(vector["key"]), _bytes(vector["value"]))
    assert isinstance(key, (HoldKey, LimitKey, AckKey))
    assert value is None or isinstance(value, (Hold, Limit, Ack))
    assert encode_key(key) == _bytes(vector["key"])
    assert decode(encode_key(key), encode_value(value)) == (key, value)


@pytest.mark.parametrize("vector", VECTORS["readable"], ids=lambda v: v["name"])
def test_kinds_that_say_nothing_of_gates_change_none(vector: dict[str, Any]) -> None:
    key, value = decode(_bytes(vector["key"]), _bytes(vector["value"]))
    assert GateTable().take(key, value, 0) is (isinstance(value, Hold))


@pytest.mark.parametrize("vector", [*VECTORS["unreadable"], *VECTORS["operators"]], ids=lambda v: v["name"])
def test_anything_else_is_told_from_it(vector: dict[str, Any]) -> None:
    with pytest.raises(Unreadable):
        decode(_bytes(vector["key"]), _bytes(vector["value"]))


def test_a_gate_has_the_newest_epoch_the_first_holders_drain_time_out_and_everybodys_reasons() -> None:
    table, partition = GateTable(), Partition("t", 0)
    table.take(HoldKey("g", "t", 0, "a"), Hold("poison record", 5_000), 3)
    table.take(HoldKey("g", "t", 0, "b"), Hold("reset", 90_000), 8)
    gate = table.gates()["g", partition]
    assert (gate.epoch, gate.drain_timeout_s, gate.reasons) == (8, 5.0, ("poison record", "reset"))
    assert table.take(HoldKey("g", "t", 0, "b"), None, 9)
    assert table.gates()["g", partition].epoch == 3
    assert table.take(HoldKey("g", "t", 0, "a"), None, 10)
    assert not table.gates()
    assert not table.take(HoldKey("g", "t", 0, "a"), None, 11), "releasing what is not held changes nothing"
