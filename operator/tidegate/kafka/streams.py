"""What Kafka Streams leaves on a cluster while its application is stopped. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Final

_TIME_BYTES: Final = 8
_VERSION_1: Final = 1
_VERSION_2: Final = 2
_UNKNOWN_MS: Final = -1


def committed(metadata: Iterable[str]) -> bool:
    """Whether Kafka Streams has committed any of a group's offsets, by the metadata of its commits."""
    return any(map(is_commit_metadata, metadata))


def is_commit_metadata(text: str) -> bool:
    """Whether a commit's metadata is that of Kafka Streams (``TopicPartitionMetadata``): base64 of a version, the
    partition's stream time, and from version 2 on what its processors add.
    """
    try:
        told = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    if len(told) < 1 + _TIME_BYTES or int.from_bytes(told[1 : 1 + _TIME_BYTES], signed=True) < _UNKNOWN_MS:
        return False
    return told[0] == _VERSION_2 or (told[0] == _VERSION_1 and len(told) == 1 + _TIME_BYTES)


def changelogs(application_id: str, topics: Iterable[str]) -> frozenset[str]:
    """The topics that are named as changelogs of this application's state stores are:
    ``<application.id>-<store>-changelog``.

    Those of an application whose id begins with this one and a hyphen are named so, too.
    """
    first, last = f"{application_id}-", "-changelog"
    return frozenset(t for t in topics if t.startswith(first) and t.endswith(last) and len(t) > len(first) + len(last))
