"""Documents spoilt at random: as bytes, and as the JSON that is in them. The same for the same ``Random``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

PART: Final = b"\x1e"
"""Between the parts of an input that a decoder takes as several: a record's key and value, a ConfigMap's members."""

MOST_BYTES: Final = 64 * 1024

_TOKENS: Final = (
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"-1", b"1e999", b"NaN", b"-Infinity", b"\\u0000",
    b"\\ud800", b"\\udfff\\ud800", b"\xed\xa0\x80", b"\xff\xfe", b"\x00", b"\n", b"\r", b"\t", b" ", b"../", b"*",
    b"${env:PATH}", b"\xe2\x80\xa8", b"9" * 400, b"[" * 300, b'{"":' * 300, b"\xff\xff\xff\xff\x07", b"\x80" * 40,
    b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00",
)  # fmt: skip

_VALUES: Final[tuple[Callable[[], Any], ...]] = (
    lambda: None,
    lambda: True,
    lambda: False,
    lambda: 0,
    lambda: -1,
    lambda: 2**31,
    lambda: 2**63,
    lambda: -(2**63) - 1,
    lambda: 10**400,
    lambda: 0.5,
    lambda: 1e308,
    lambda: "",
    lambda: "a",
    lambda: "*",
    lambda: "..",
    lambda: "\x00",
    lambda: "\x1b[2J",
    lambda: "g\ud800",
    lambda: "é" * 300,
    lambda: "a" * 5_000,
    lambda: "99999999999999999999h",
    lambda: "9999-12-31T23:59:59.999999+23:59",
    lambda: "0001-01-01T00:00:00+14:00",
    list,
    lambda: [[]],
    lambda: ["a"] * 300,
    lambda: list(range(70)),
    dict,
    lambda: {"": None},
    lambda: {"kind": "unknown", "version": 2},
    lambda: {str(number): number for number in range(300)},
)


def mutated(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    """``data``, spoilt one to four times. ``others``: what parts of it may be exchanged for."""
    for _ in range(random.randint(1, 4)):
        data = _as_json(data, random) if random.random() < 0.5 else _as_bytes(data, random, others)
    return data[:MOST_BYTES]


def _as_bytes(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(data))
    end = min(len(data), at + random.choice((0, 1, 1, 2, 4, 8, 64)))
    match random.randint(0, 6):
        case 0:
            return data[:at] + bytes([random.randint(0, 255)]) + data[end:]
        case 1:
            return data[:at] + random.choice(_TOKENS) + data[end:]
        case 2:
            return data[:at] + data[end:]
        case 3:
            return data[:at]
        case 4:
            return data[:end] + data[at:end] * random.choice((1, 2, 50)) + data[end:]
        case 5 if at < len(data):
            return data[:at] + bytes([data[at] ^ (1 << random.randint(0, 7))]) + data[at + 1 :]
        case _:
            other = random.choice(others) if others else b""
            return data[:at] + other[random.randint(0, len(other)) :]


def _as_json(data: bytes, random: Random) -> bytes:
    """One value of one of its parts that is JSON is another one, gone, or there twice; else as bytes."""
    parts = data.split(PART)
    number = random.randrange(len(parts))
    name, equals, text = parts[number].partition(b"=")
    if not equals or name.lstrip()[:1] in (b"{", b"["):
        name, equals, text = b"", b"", parts[number]
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _as_bytes(data, random, ())
    try:
        written = json.dumps(_changed(document, random), ensure_ascii=random.random() < 0.5)
        parts[number] = name + equals + written.encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):  # of a number that Python does not write, or of what was nested before
        return data
    return PART.join(parts)


def _changed(value: Any, random: Random) -> Any:
    """Somewhere below ``value``, the nearer the likelier."""
    if not isinstance(value, (dict, list)) or not value or random.random() < 0.15:
        return _nested(value) if random.random() < 0.05 else random.choice(_VALUES)()
    if isinstance(value, list):
        at, change = random.randrange(len(value)), random.random()
        if change < 0.1:
            return value[:at] + value[at + 1 :]
        if change < 0.2:
            return value + [value[at]] * random.choice((1, 100))
        return [*value[:at], _changed(value[at], random), *value[at + 1 :]]
    name, change = random.choice(sorted(value)), random.random()
    others = {key: each for key, each in value.items() if key != name}
    if change < 0.1:
        return others
    if change < 0.15:
        return {**others, random.choice(("", "unknown", "kind", "version", "\ud800", "a" * 300)): value[name]}
    return {**value, name: _changed(value[name], random)}


def _nested(value: Any) -> Any:
    for _ in range(200):
        value = [value]
    return value
