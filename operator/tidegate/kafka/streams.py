"""What Kafka Streams leaves on a cluster while its application is stopped. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable
from typing import Final

_INT: Final = 4
_LONG: Final = 8
_TAIL: Final = 1 + _LONG
_VERSION_1: Final = 1
_VERSION_2: Final = 2
_UNKNOWN_MS: Final = -1
_CHANGELOG: Final = "-changelog"


def committed(metadata: Iterable[str]) -> bool:
    """Whether Kafka Streams has committed any of a group's offsets, by the metadata of its commits."""
    return any(map(is_commit_metadata, metadata))


def is_commit_metadata(text: str) -> bool:
    """Whether a commit's metadata is that of Kafka Streams (``TopicPartitionMetadata``): base64 of a version, the
    partition's stream time, and from version 2 on what its processors add (``ProcessorMetadata``).
    """
    try:
        told = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    if len(told) < _TAIL or int.from_bytes(told[1:_TAIL], signed=True) < _UNKNOWN_MS:
        return False
    return told[0] in (_VERSION_1, _VERSION_2) and (len(told) == _TAIL or (told[0] == _VERSION_2 and _is_map(told)))


def _is_map(told: bytes) -> bool:
    """Whether what follows the stream time is how many entries there are, then each: the key's length, the key, and
    eight bytes of value."""
    entries, at = int.from_bytes(told[_TAIL : _TAIL + _INT], signed=True), _TAIL + _INT
    for _ in range(entries):
        length = int.from_bytes(told[at : at + _INT], signed=True)
        at += _INT + length + _LONG
        if length < 0 or at > len(told):
            return False
    return entries > 0 and at == len(told)


def changelogs(application_id: str, topics: Iterable[str], others: Collection[str] = ()) -> frozenset[str]:
    """The topics that are named as changelogs of this application's state stores are:
    ``<application.id>-<store>-changelog``.

    Those of an application whose id begins with this one and a hyphen are named so, too; those of ``others`` are left
    out.
    """
    named = frozenset(t for t in topics if _store(application_id, t))
    return frozenset(t for t in named if not any(_store(other, t) for other in others))


def namesakes(application_id: str, topics: Iterable[str]) -> frozenset[str]:
    """Ids of all applications, of a longer name, whose changelogs these may be."""
    found = set[str]()
    for topic in topics:
        end = len(topic) - len(_CHANGELOG)
        at = topic.find("-", len(application_id) + 1, end)
        while at >= 0:
            if _store(topic[:at], topic):
                found.add(topic[:at])
            at = topic.find("-", at + 1, end)
    return frozenset(found)


def _store(application_id: str, topic: str) -> str:
    """The store of an application whose changelog a topic's name says it is; empty where it says nothing such."""
    first = f"{application_id}-"
    is_one = topic.startswith(first) and topic.endswith(_CHANGELOG) and len(topic) > len(first) + len(_CHANGELOG)
    return topic[len(first) : -len(_CHANGELOG)] if is_one else ""
