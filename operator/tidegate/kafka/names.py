"""Names of groups and topics, and patterns of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

INTERNAL_PREFIX: Final = "__"
"""Kafka's own topics (``__consumer_offsets`` …) and ours; ``ClusterReader.topics`` leaves them out."""

TOPIC_NAME: Final = re.compile(r"(?![.]{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""What a topic can be called (Kafka's ``Topic.validate``), the whole of it."""


def is_pattern(text: str) -> bool:
    return "*" in text


def is_internal(topic: str) -> bool:
    return topic.startswith(INTERNAL_PREFIX)


def is_allowed(name: str, patterns: Iterable[str]) -> bool:
    """Whether a group or topic is named by one of the patterns of ``spec.allow``; ``*`` stands for any text."""
    return any(pattern == "*" or matches(name, pattern) for pattern in patterns)


def matches(name: str, pattern: str) -> bool:
    """``pattern`` is a name, or has ``*`` for any text (also none); nothing else is special.

    Takes the first place for each part between two stars, so that no pattern takes long: anybody may write one.
    """
    if not is_pattern(pattern):
        return name == pattern
    first, *middle, last = pattern.split("*")
    end = len(name) - len(last)
    if end < len(first) or not name.startswith(first) or not name.endswith(last):
        return False
    at = len(first)
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def overlap(one: str, other: str) -> bool:
    """Whether some name matches both, of which each is a name or a pattern.

    Where both have a ``*``, what stands between their stars can follow one another: only the ends have to agree.
    """
    if not is_pattern(one):
        return matches(one, other)
    if not is_pattern(other):
        return matches(other, one)
    first, last = one[: one.index("*")], one[one.rindex("*") + 1 :]
    other_first, other_last = other[: other.index("*")], other[other.rindex("*") + 1 :]
    begins = first.startswith(other_first) or other_first.startswith(first)
    return begins and (last.endswith(other_last) or other_last.endswith(last))


def covers(pattern: str, other: str) -> bool:
    """Whether every name that ``other`` stands for, a name or a pattern, matches ``pattern``."""
    # No name has a NUL: what is in the place of a star is matched by stars only.
    return matches(other.replace("*", "\0"), pattern)


def narrowed(patterns: Iterable[str], within: Iterable[str]) -> tuple[str, ...]:
    """Names and patterns that match what both lists allow, and nothing else, in the order of ``patterns``.

    All of it, but for two that overlap only in part of which one has several ``*``: of those nothing is allowed.
    """
    limits = tuple(within)
    return tuple(dict.fromkeys(both for one in patterns for limit in limits for both in _both(one, limit)))


def _both(one: str, other: str) -> Iterator[str]:
    """Of two that each allow something, what both allow."""
    if covers(other, one):
        yield one
    elif covers(one, other):
        yield other
    elif one.count("*") == other.count("*") == 1 and overlap(one, other):
        (first, last), (other_first, other_last) = one.split("*"), other.split("*")
        begin, end = max(first, other_first, key=len), max(last, other_last, key=len)
        yield f"{begin}*{end}"
        # In shorter names the last letters of the beginning are the first ones of the end.
        for shared in range(1, min(len(begin), len(end)) + 1):
            name = begin + end[shared:]
            if begin.endswith(end[:shared]) and matches(name, one) and matches(name, other):
                yield name
