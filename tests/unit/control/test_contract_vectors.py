"""The operator's reading and writing of the two topics, held to the vectors that bind every agent as well."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tidegate.control.codec import CLOCK_VALUE, Unreadable, decode, encode_key, encode_value
from tidegate.control.records import (
    AckKey,
    ClaimKey,
    ClockKey,
    Hold,
    HoldKey,
    Key,
    LimitKey,
    PartitionKey,
    RunKey,
    Value,
)

VECTORS = json.loads((Path(__file__).parents[3] / "agents" / "contract" / "vectors.json").read_text(encoding="utf-8"))
READ = [*VECTORS["readable"], *VECTORS["operators"]]
KINDS = {
    HoldKey: "hold",
    LimitKey: "limit",
    PartitionKey: "partition",
    ClockKey: "clock",
    ClaimKey: "claim",
    RunKey: "run",
    AckKey: "ack",
}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _as_vector(key: Key, value: Value, *, released: bool) -> dict[str, Any]:
    body = {"kind": KINDS[type(key)]} | asdict(key)
    if released:
        return body | {"released": True}
    said = asdict(value) if value is not None else {}
    # No agent's business: to them it is a member that they do not know.
    said.pop("connection", None)
    said.pop("version", None)
    return body | said


def test_a_hold_tells_operators_through_which_connection_it_is() -> None:
    [vector] = (v for v in VECTORS["readable"] if v["name"].startswith("a hold that says through which connection"))

    _, value = decode(_bytes(vector["key"]), _bytes(vector["value"]))

    assert isinstance(value, Hold)
    assert value.connection == "6c9d"
    assert encode_value(value) == _bytes(vector["value"])


@pytest.mark.parametrize("connection", ["", 7, None, "x" * 1025, ["6c9d"]])
def test_a_connection_that_is_none_leaves_a_hold_that_is_nobodys(connection: Any) -> None:
    """No agent looks at it: for them the gate is closed."""
    key = encode_key(HoldKey("g", "t", 0, "h"))
    value = json.dumps({"connection": connection, "drain_timeout_ms": 5, "reason": "x"}).encode()

    assert decode(key, value) == (HoldKey("g", "t", 0, "h"), Hold("x", 5))


@pytest.mark.parametrize("vector", READ, ids=lambda v: v["name"])
def test_a_record_of_the_contract_is_read_as_what_it_says(vector: dict[str, Any]) -> None:
    key, value = decode(_bytes(vector["key"]), _bytes(vector["value"]))

    assert _as_vector(key, value, released=vector["value"] is None) == vector["record"]


@pytest.mark.parametrize("vector", READ, ids=lambda v: v["name"])
def test_a_record_is_written_as_the_contract_has_it(vector: dict[str, Any]) -> None:
    key, value = decode(_bytes(vector["key"]), _bytes(vector["value"]))

    assert encode_key(key) == _bytes(vector["key"])
    written = CLOCK_VALUE if isinstance(key, ClockKey) else encode_value(value)
    assert decode(encode_key(key), written) == (key, value)


@pytest.mark.parametrize("vector", VECTORS["unreadable"], ids=lambda v: v["name"])
def test_anything_else_is_told_from_it(vector: dict[str, Any]) -> None:
    with pytest.raises(Unreadable):
        decode(_bytes(vector["key"]), _bytes(vector["value"]))
