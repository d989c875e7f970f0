"""What a decoder is to a fuzz: documents that it takes, what it may refuse others by, what must hold of the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from support.fuzzing.mutation import PART

PARTITION_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1


class NoInput(Exception):
    """These bytes never reach the decoder: whoever hands them to it has made sure of more."""


@dataclass(frozen=True, slots=True)
class Target:
    """``decode`` takes any bytes and gives what it read, ``refuses`` or ``NoInput``; ``check`` asserts of what it read.

    ``of``: the functions that are tried by it, as :mod:`support.fuzzing.found` names them.
    """

    name: str
    of: tuple[str, ...]
    seeds: tuple[bytes, ...]
    decode: Callable[[bytes], Any]
    refuses: tuple[type[Exception], ...] = ()
    check: Callable[[Any], None] = lambda _read: None


def parts(*found: bytes) -> bytes:
    """As one input."""
    return PART.join(found)


def pair(data: bytes) -> tuple[bytes, bytes | None]:
    """A record's key and value; without a second part a tombstone."""
    key, mark, value = data.partition(PART)
    return key, value if mark else None


def members(data: Mapping[str, str]) -> bytes:
    """A ConfigMap's data as one input."""
    return parts(*(f"{name}={value}".encode() for name, value in data.items()))


def config_map(data: bytes) -> dict[str, str]:
    """And back. The API server has only text, whatever somebody wrote."""
    text = data.decode(errors="replace")
    return {name: value for name, _, value in (part.partition("=") for part in text.split(PART.decode()))}


def document(data: bytes) -> dict[str, Any]:
    """An object as a JSON reader of the API server's clients gives it. Raises ``NoInput``."""
    try:
        read = json.loads(data)
    except (ValueError, RecursionError):
        raise NoInput from None
    if not isinstance(read, dict):
        raise NoInput
    return read


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()
