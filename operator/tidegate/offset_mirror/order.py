"""What a mirror's job is told: what it copies from where to where. Without secrets: it travels in a document. Pure.

An order does not change: what is to be copied otherwise takes another job. A job obeys only the order whose digest it
was started with, as whoever may write ConfigMaps can write the document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter, ValidationError

from tidegate.compressed import pack, unpack
from tidegate.jobs.naming import document_name
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.offset_mirror.partitions import partitions_of
from tidegate.offset_mirror.topics import Copied
from tidegate.versions import MIRROR_ORDER, VERSION, check, said

SCHEME: Final = "offsetmirror://"
MOST_PARTITIONS: Final = 100_000
_KEY: Final = "order"
_NUMBER: Final = "launch"


class BadOrder(ValueError):
    """Nothing that this version has written; the message says why."""


@dataclass(frozen=True, slots=True)
class MirrorOrder:
    """``namespace``, ``name``, ``uid``: the OffsetMirror; ``launch``: the job's name, which no other has;
    ``clusters``: the ids of source and target; ``settings``: tells it from one before a change of its connections or of
    how its job runs. ``left_out``: partitions of ``topics`` that must not be copied. ``tasks``: how many share the
    rest. ``bytes_per_second``: of all tasks together; absent: no limit. ``former_ids``: as in the spec."""

    namespace: str
    name: str
    uid: str
    launch: str
    source: Connection
    target: Connection
    clusters: tuple[str, str]
    settings: str
    topics: tuple[Copied, ...]
    left_out: tuple[TopicPartition, ...]
    tasks: int
    max_fill: int
    bytes_per_second: int | None = None
    former_ids: tuple[int, ...] = ()

    def partitions(self) -> dict[TopicPartition, Copied]:
        """All that are copied."""
        left_out = frozenset(self.left_out)
        return {p: topic for p, topic in sorted(partitions_of(self.topics).items()) if p not in left_out}

    def share(self, place: int) -> dict[TopicPartition, Copied]:
        """What the task of this place copies: each partition is one task's."""
        whole = self.partitions()
        return {partition: whole[partition] for partition in [*whole][place :: self.tasks]}

    def rate(self, place: int) -> int | None:
        """Bytes a second of the task of this place: by its part of the partitions."""
        if self.bytes_per_second is None:
            return None
        return max(1, self.bytes_per_second * len(self.share(place)) // max(1, len(self.partitions())))


_ORDER: Final = TypeAdapter(MirrorOrder)


def encode_order(order: MirrorOrder) -> bytes:
    return _ORDER.dump_json(order)


def decode_order(text: bytes) -> MirrorOrder:
    """Raises ``BadOrder``."""
    try:
        order = _ORDER.validate_json(text)
    except ValidationError as error:
        raise BadOrder(f"it is not the order of a mirror's job: {error.errors()[0]['msg']}") from error
    counts = [each.source.partitions for each in order.topics]
    if min(counts, default=0) < 0 or not 1 <= order.tasks <= max(1, sum(counts)) <= MOST_PARTITIONS:
        raise BadOrder("it is not the order of a mirror's job: its tasks do not fit its partitions")
    if order.max_fill < 0 or (order.bytes_per_second is not None and order.bytes_per_second < 1):
        raise BadOrder("it is not the order of a mirror's job: its limits are too low")
    return order


def digest(order: MirrorOrder) -> str:
    """What tells an order from all others."""
    return hashlib.sha256(encode_order(order)).hexdigest()


def is_same(order: MirrorOrder, wanted: MirrorOrder) -> bool:
    """Whether it is what is asked for now, but for the name of its job."""
    return replace(wanted, launch=order.launch) == order


def only_grows(order: MirrorOrder, wanted: MirrorOrder) -> bool:
    """Whether all that it has is to be copied as before, and more: then its job may go on for a while."""
    as_before = replace(wanted, launch=order.launch, topics=order.topics, left_out=order.left_out, tasks=order.tasks)
    before, now = order.partitions(), wanted.partitions()
    return as_before == order and all(_same_copy(now.get(partition), topic) for partition, topic in before.items())


def _same_copy(now: Copied | None, before: Copied) -> bool:
    """But for partitions that were added."""
    if now is None:
        return False
    source = replace(now.source, partitions=before.source.partitions)
    target = replace(now.target, partitions=before.target.partitions)
    return replace(now, source=source, target=target) == before


# --- the document -----------------------------------------------------------------------------------------------------


def name_of_document(name: str, uid: str) -> str:
    """The ConfigMap with the order."""
    return document_name(name, uid, "mirror")


def name_of_report(document: str, place: int) -> str:
    """The ConfigMap with what the task of this place says."""
    return f"{document}-task-{place}"


def name_of_launch(document: str, number: int) -> str:
    return f"{document}-{number}"


def number_of_launch(document: str, launch: str) -> int:
    """0 for what is no launch's name."""
    text = launch.removeprefix(f"{document}-")
    return int(text) if launch != text and text.isdecimal() and len(text) < 10 else 0


def location_of(order: MirrorOrder) -> str:
    """Where its job finds it."""
    return f"{SCHEME}{order.namespace}/{order.name}"


def encode_document(order: MirrorOrder) -> dict[str, str]:
    """The ConfigMap's ``data``."""
    return {VERSION: said(MIRROR_ORDER), _NUMBER: order.launch, _KEY: pack(encode_order(order))}


def decode_document(data: Mapping[str, str], where: str = "it") -> MirrorOrder:
    """Raises ``NewerVersion`` and ``BadOrder``."""
    try:
        check(MIRROR_ORDER, data.get(VERSION), where)
        order = decode_order(unpack(data[_KEY]))
    except KeyError as error:
        raise BadOrder(f"{where} has no {error}") from error
    except ValueError as error:
        raise BadOrder(f"{where}: {error}") from error
    if data.get(_NUMBER) != order.launch:
        raise BadOrder(f"{where} and the order in it name different jobs")
    return order
