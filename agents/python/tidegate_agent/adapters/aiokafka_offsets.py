"""OffsetFetch as aiokafka cannot ask it: with ``require_stable`` (KIP-447), so that a partition for which a transaction
is open gives no offset rather than an old one. Where the broker is older than that, as aiokafka itself asks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import aiokafka.errors as errors
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetFetchRequest_v3
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

from tidegate_agent.gates import Partition

UNSTABLE_OFFSET_COMMIT: Final = 88
_KEY: Final = 9


class OffsetFetchResponse_v7(Response):  # type: ignore[misc]  # noqa: N801  (named as aiokafka names them)
    API_KEY = _KEY
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", CompactString("utf-8")),
                        ("error_code", Int16),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class OffsetFetchRequest_v7(RequestStruct):  # type: ignore[misc]  # noqa: N801
    FLEXIBLE_VERSION = True
    API_KEY = _KEY
    API_VERSION = 7
    RESPONSE_TYPE = OffsetFetchResponse_v7
    SCHEMA = Schema(
        ("group", CompactString("utf-8")),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("partitions", CompactArray(Int32)),
                ("tags", TaggedFields),
            ),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class StableOffsetFetch(Request[OffsetFetchRequest_v3 | OffsetFetchRequest_v7]):  # type: ignore[misc]
    """The group's committed offsets of these partitions."""

    API_KEY = _KEY

    def __init__(self, group: str, partitions: Iterable[Partition]) -> None:
        self._group = group
        self._topics: dict[str, list[int]] = defaultdict(list)
        for topic, number in partitions:
            self._topics[topic].append(number)

    def build(self, request_struct_class: type[Any]) -> Any:
        if request_struct_class is OffsetFetchRequest_v7:
            no_tags: dict[int, bytes] = {}
            topics = [(topic, numbers, no_tags) for topic, numbers in self._topics.items()]
            return OffsetFetchRequest_v7(self._group, topics, True, no_tags)
        return OffsetFetchRequest_v3(self._group, list(self._topics.items()))


def committed_offsets(response: Any) -> dict[Partition, int | None]:
    """By partition the offset, ``None`` where there is none; without those for which a transaction is open.

    Raises aiokafka's error for the first partition, or the group, that has another one.
    """
    _raise(response.error_code)
    found: dict[Partition, int | None] = {}
    for topic, partitions, *_ in response.topics:
        for entry in partitions:
            # v3: partition, offset, metadata, error; v7: partition, offset, leader epoch, metadata, error, tags.
            code = entry[4] if response.API_VERSION >= 5 else entry[3]
            if code == UNSTABLE_OFFSET_COMMIT:
                continue
            _raise(code)
            found[Partition(topic, entry[0])] = entry[1] if entry[1] >= 0 else None
    return found


def _raise(code: int) -> None:
    error = errors.for_code(code)
    if error is not errors.NoError:
        raise error
