"""Types of fields that several kinds have. Durations become ``timedelta`` and timestamps aware ``datetime`` here and
nowhere else."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, cast

from pydantic import BeforeValidator, Field, PlainSerializer, StrictInt, WithJsonSchema

from tidegate.resources import durations, partitions, timestamps
from tidegate.resources.rules import Facet, Rule, cel_matches, described, matching, must, problem, topic, unique

# --- times ------------------------------------------------------------------------------------------------------------


def _to_timedelta(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise problem(durations.ACCEPTED)
    try:
        return durations.parse_duration(value)
    except ValueError as error:
        raise problem(str(error)) from None


def _to_datetime(value: Any) -> datetime:
    # YAML 1.1 readers turn an unquoted timestamp into a datetime of their own.
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if not isinstance(value, str):
        raise problem(timestamps.ACCEPTED)
    try:
        return timestamps.parse_timestamp(value)
    except ValueError as error:
        raise problem(str(error)) from None


def cel_is_duration(text: str) -> str:
    """Whether CEL's ``duration(text)`` can be taken: one that is not has been refused by a rule of its own."""
    return cel_matches(text, durations.PATTERN)


def cel_is_timestamp(text: str) -> str:
    """Whether CEL's ``timestamp(text)`` can be taken."""
    return cel_matches(text, timestamps.PATTERN)


def cel_at_most_ten_years(text: str) -> str:
    """Whether ``text`` is a duration that resources can have."""
    longest = durations.format_duration(durations.MAX)
    return f"{cel_is_duration(text)} && duration({text}) <= duration('{longest}')"


def duration_must(holds: Any, cel: str, message: str) -> Facet:
    """A rule of a duration, which is judged only where the text is one."""
    return must(holds, f"!{cel_is_duration('self')} || {cel}", message)


Duration = Annotated[
    timedelta,
    BeforeValidator(_to_timedelta),
    PlainSerializer(durations.format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "maxLength": durations.MAX_LENGTH}, mode="validation"),
    Facet((Rule(cel_at_most_ten_years("self"), durations.ACCEPTED),)),
]
"""A Go-style duration, 0 or longer."""

PositiveDuration = Annotated[
    Duration,
    duration_must(lambda value: value > timedelta(0), "duration(self) > duration('0s')", "must be longer than 0s"),
]

Timestamp = Annotated[
    datetime,
    BeforeValidator(_to_datetime),
    PlainSerializer(timestamps.format_timestamp, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "maxLength": timestamps.MAX_LENGTH}, mode="validation"),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
    Facet(
        (
            Rule(
                f"{cel_is_timestamp('self')} && timestamp(self) >= timestamp('1970-01-01T00:00:00Z')",
                timestamps.ACCEPTED,
            ),
        )
    ),
]
"""An RFC 3339 date-time with a zone."""

# --- names ------------------------------------------------------------------------------------------------------------

ResourceName = Annotated[
    str,
    matching(
        r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        "must be the name of a resource in this namespace: lower-case letters, digits, '-' and '.', "
        "at most 253 characters",
        most=253,
    ),
]

NamespaceName = Annotated[
    str,
    matching(
        r"[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        "must be the name of a namespace: lower-case letters, digits and '-', at most 63 characters",
        most=63,
    ),
]

SecretKey = Annotated[
    str,
    matching(
        r"[-._a-zA-Z0-9]+",
        "must be a key of the Secret or ConfigMap: letters, digits, '-', '_' and '.', at most 253 characters",
        most=253,
    ),
]

TopicPattern = Annotated[
    str,
    topic(
        r"[a-zA-Z0-9._*-]+",
        "must be a topic name, or a pattern in which '*' stands for any characters: letters, digits, '.', '_' and '-', "
        "1 to 249 characters",
        most=249,
    ),
    described("A topic's name, or a pattern in which '*' stands for any characters."),
]
"""A topic's name, or a pattern with ``*``."""

_GROUP: Final = r"[^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?"

GroupId = Annotated[
    str,
    matching(
        _GROUP,
        "must be a group id of 1 to 255 characters, without control characters and without spaces at its ends",
        most=255,
    ),
]

UserName = Annotated[
    str,
    matching(
        r"[^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?",
        "must be a user name of 1 to 512 characters, without control characters and without spaces at its ends, as "
        "kubectl auth whoami shows it",
        most=512,
    ),
]
"""As the API server knows somebody: ``request.userInfo.username``."""

GroupPattern = Annotated[
    str,
    matching(
        _GROUP,
        "must be a group id, or a pattern in which '*' stands for any characters: 1 to 255 characters, without control "
        "characters and without spaces at its ends",
        most=255,
    ),
    described("A group's id, or a pattern in which '*' stands for any characters."),
]

GroupPatterns = Annotated[
    tuple[GroupPattern, ...],
    Field(min_length=1, max_length=20),
    unique("must not repeat a pattern: remove the second one"),
]
"""The groups of a fleet, or of a policy for many."""

Excluded = Annotated[
    tuple[GroupPattern, ...],
    Field(min_length=1, max_length=100),
    unique("must not repeat a pattern: remove the second one"),
]
"""The groups that patterns select and that are left out."""

TopicPatterns = Annotated[
    tuple[TopicPattern, ...],
    Field(min_length=1, max_length=100),
    unique("must not repeat a topic: remove the second one"),
]
"""The topics of which partitions are reset, or looked after."""

# --- numbers ----------------------------------------------------------------------------------------------------------


def _to_entries(value: Any) -> tuple[partitions.Entry, ...]:
    try:
        return partitions.read_entries(value)
    except ValueError as error:
        raise problem(str(error)) from None


PartitionNumbers = Annotated[
    tuple[int | str, ...],
    BeforeValidator(_to_entries),
    # A node without a type takes a list and the text of earlier versions, each checked by keywords of its own. CEL
    # cannot read such a node (ADR 24). An object it would take as well, nested so deeply that reading it fails.
    WithJsonSchema(
        {
            "x-kubernetes-preserve-unknown-fields": True,
            "maxProperties": 0,
            "minItems": 1,
            "maxItems": partitions.MAX_ENTRIES,
            "maxLength": partitions.MAX_TEXT_LENGTH,
            "pattern": f"^{partitions.TEXT_PATTERN}$",
            "items": {
                "x-kubernetes-int-or-string": True,
                "minimum": 0,
                "maximum": partitions.MAX_PARTITION,
                "maxLength": partitions.MAX_ENTRY_LENGTH,
                "pattern": f"^{partitions.ENTRY_PATTERN}$",
                "description": "A partition's number, or a range of them such as 3-5.",
            },
        },
        mode="validation",
    ),
]
"""A set of partition numbers such as ``[0, 1, "3-5"]``; :func:`tidegate.resources.partitions.numbers_of` reads it."""

_PERCENT: Final = r"([1-9][0-9]?|100)%"
_MOST_AT_ONCE: Final = 1000


def _to_share(value: Any) -> int | str:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_AT_ONCE
    if is_count or (isinstance(value, str) and re.fullmatch(_PERCENT, value)):
        return cast("int | str", value)
    raise problem(f"must be a number from 1 to {_MOST_AT_ONCE}, or a percentage from 1% to 100%, such as 10%")


CountOrPercent = Annotated[
    int | str,
    BeforeValidator(_to_share),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "minimum": 1,
            "maximum": _MOST_AT_ONCE,
            "maxLength": len("100%"),
            "pattern": f"^{_PERCENT}$",
        },
        mode="validation",
    ),
]
"""So many, or so many of a hundred, such as ``5`` or ``10%``."""

Count = Annotated[StrictInt, Field(ge=0)]
