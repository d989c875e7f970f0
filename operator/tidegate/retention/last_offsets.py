"""Where a group last stood: what is known of each of its offsets, from look to look and beyond. Pure.

Kept in memory, and as one document (:func:`encode`) in a ConfigMap, which outlives this process and the offsets. Times
are milliseconds since the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate.compressed import pack, unpack
from tidegate.kafka.model import Group, GroupType, Topic, TopicPartition
from tidegate.kafka.names import TOPIC_NAME
from tidegate.kafka.offset_retention import Commit, Commits
from tidegate.versions import LAST_OFFSETS, VERSION, check

PLAIN: Final = "offsets.json"
PACKED: Final = "offsets.json.gz.b64"
INLINE_LIMIT_BYTES: Final = 64 * 1024
"""A document up to this size stays readable text; a larger one is compressed."""
LIMIT_BYTES: Final = 1_000_000
"""A little below what the API server takes (1 MiB)."""
CLOCKS_DIFFER_MS: Final = 5_000
"""How far the coordinator's clock may be ahead of ours. What it removes at its time has not been deleted on purpose."""


GONE_MS: Final = 3_600_000
"""How long a topic may not be shown before it counts as removed: a broker may lag behind, or not tell of it."""


class TooLarge(Exception):
    """The group has more offsets than fit into a ConfigMap."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the group stands, or stood, in one partition.

    ``committed_after_ms``: the commit is not older than this; ``None``: it was there at the first look. ``seen_ms``:
    since when it was seen there. ``kept_ms``: when we committed it again, with a retention of its own.
    ``lasts_until_ms``: it could not have expired before; ``None``: unknown. ``lost_ms``: when it was missed, and
    ``last_seen_ms``: the look before that. ``hidden_ms``: since when looks do not show its topic.
    """

    commit: Commit
    topic_id: str
    seen_ms: int
    committed_after_ms: int | None = None
    kept_ms: int | None = None
    lasts_until_ms: int | None = None
    lost_ms: int | None = None
    hidden_ms: int | None = None
    last_seen_ms: int | None = None

    def by(self, now_ms: int, known_ms: int) -> Place:
        """As ``Places.by``; later than ``known_ms`` is a time to come."""
        hidden_ms = now_ms if self.hidden_ms is not None and self.hidden_ms > known_ms else self.hidden_ms
        return replace(
            self,
            seen_ms=self.seen_ms if self.seen_ms <= known_ms else now_ms,
            committed_after_ms=_known(self.committed_after_ms, known_ms),
            kept_ms=_known(self.kept_ms, known_ms),
            hidden_ms=hidden_ms,
            last_seen_ms=_known(self.last_seen_ms, known_ms),
        )


@dataclass(frozen=True, slots=True)
class Places:
    """All places of one group. ``looked_ms``: the last look, ``vacant``: it had no members then; ``occupied_ms``: the
    last look at which it had some. ``cluster_id``: of the cluster that was looked at; empty: that was not noted.
    """

    rows: Mapping[TopicPartition, Place] = field(default_factory=dict)
    looked_ms: int | None = None
    occupied_ms: int | None = None
    vacant: bool = False
    cluster_id: str = ""

    def here(self, cluster_id: str) -> Places:
        """What of it holds in this cluster: of another one nothing, in which the group of this name is another one."""
        if self.cluster_id and self.cluster_id != cluster_id:
            return Places(cluster_id=cluster_id)
        return replace(self, cluster_id=cluster_id)

    def with_rows(self, rows: Mapping[TopicPartition, Place]) -> Places:
        return replace(self, rows={**self.rows, **rows})

    def by(self, now_ms: int) -> Places:
        """What of it is known by a clock that says ``now_ms``. Where the last look is still to come, the clock was
        ahead then, and so it is not known when anything was that it says of times to come."""
        known_ms = now_ms + CLOCKS_DIFFER_MS
        if self.looked_ms is not None and self.looked_ms <= known_ms:
            return self
        rows = {p: row.by(now_ms, known_ms) for p, row in self.rows.items()}
        looked_ms, occupied_ms = _known(self.looked_ms, known_ms), _known(self.occupied_ms, known_ms)
        return replace(self, rows=rows, looked_ms=looked_ms, occupied_ms=occupied_ms)

    @property
    def substance(self) -> Mapping[TopicPartition, tuple[Commit, str, int | None, int | None]]:
        """What is worth a write when it changes."""
        return {p: (row.commit, row.topic_id, row.kept_ms, row.lost_ms) for p, row in self.rows.items()}


def _known(at_ms: int | None, known_ms: int) -> int | None:
    return at_ms if at_ms is not None and at_ms <= known_ms else None


def is_within(since_ms: int, now_ms: int, span_ms: int) -> bool:
    """Whether less than that has passed; not so where ``since_ms`` is still to come: the clock was ahead then."""
    return 0 <= now_ms - since_ms < span_ms


def after_look(before: Places, group: Group, commits: Commits, topics: Mapping[str, Topic], now_ms: int) -> Places:
    """What is known after a look. ``commits``: those that are looked after; ``topics``: all that exist.

    An offset that is not there any more is *lost* if it may have expired, and if nobody has taken its place since:
    forgotten is what members have left behind, what was deleted on purpose (it went before it could expire), and what
    belongs to a topic that is gone or was created anew.
    """
    before, rows = before.by(now_ms), dict[TopicPartition, Place]()
    moved = False
    for partition, commit in commits.offsets.items():
        row = before.rows.get(partition)
        topic_id, hidden_ms = _topic_of(partition, row, topics, now_ms)
        if row is None or row.commit != commit or row.topic_id != topic_id or row.lost_ms is not None:
            moved |= row is not None
            row = Place(commit, topic_id, now_ms, before.looked_ms)
        rows[partition] = replace(row, hidden_ms=hidden_ms)
    if moved and group.is_vacant and group.type is GroupType.CLASSIC:
        # Somebody's tool has committed, perhaps also what did not move. That has dropped our retention, and the
        # brokers' own counts from when the members left: such an offset may go at once.
        rows = {p: replace(row, kept_ms=None) for p, row in rows.items()}
    for partition, row in before.rows.items():
        if partition in rows:
            continue
        topic_id, hidden_ms = _topic_of(partition, row, topics, now_ms)
        if partition in commits.pending:
            rows[partition] = row  # it is there; what it will be is not decided
        elif row.topic_id and row.topic_id == topic_id and group.is_vacant:
            if row.lost_ms is not None or hidden_ms is not None:
                rows[partition] = replace(row, hidden_ms=hidden_ms)
            elif row.lasts_until_ms is None or row.lasts_until_ms <= now_ms + CLOCKS_DIFFER_MS:
                rows[partition] = replace(row, lost_ms=now_ms, hidden_ms=None, last_seen_ms=before.looked_ms)
    occupied_ms = before.occupied_ms if group.is_vacant else now_ms
    return replace(before, rows=rows, looked_ms=now_ms, occupied_ms=occupied_ms, vacant=group.is_vacant)


def _topic_of(
    partition: TopicPartition, row: Place | None, topics: Mapping[str, Topic], now_ms: int
) -> tuple[str, int | None]:
    """The id of its topic, and since when looks do not show that."""
    topic, topic_id = topics.get(partition.topic), topic_id_of(partition, topics)
    if topic_id or row is None or (topic is not None and topic.topic_id != row.topic_id):
        return topic_id, None
    hidden_ms = now_ms if row.hidden_ms is None else row.hidden_ms
    return (row.topic_id, hidden_ms) if now_ms - hidden_ms <= GONE_MS else ("", None)


def topic_id_of(partition: TopicPartition, topics: Mapping[str, Topic]) -> str:
    """The id of its topic; empty for a partition that does not exist."""
    topic = topics.get(partition.topic)
    return topic.topic_id if topic is not None and partition.partition < topic.partitions else ""


# --- the document -----------------------------------------------------------------------------------------------------


def to_document(places: Places) -> dict[str, Any]:
    """The places as JSON."""
    return {**_head(places), "offsets": [_row(p, row) for p, row in sorted(places.rows.items())]}


def of_document(document: Mapping[str, Any]) -> Places:
    """What :func:`to_document` made. Raises ``ValueError`` for anything else."""
    try:
        rows = {TopicPartition(_topic(r["topic"]), _whole(r["partition"])): _place(r) for r in document["offsets"]}
        looked_ms, occupied_ms = _whole_or_none(document["lookedMs"]), _whole_or_none(document["occupiedMs"])
        return Places(rows, looked_ms, occupied_ms, bool(document["vacant"]), str(document.get("cluster", "")))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not a snapshot of offsets: {error!r}") from error


def encode(places: Places, group_id: str) -> dict[str, str]:
    """The ConfigMap's data: one line a partition, or compressed where that is long. Raises ``TooLarge``."""
    head = {VERSION: LAST_OFFSETS.version, "group": group_id, **_head(places)}
    lines = ",\n".join(json.dumps(_row(p, row)) for p, row in sorted(places.rows.items()))
    text = f'{json.dumps(head)[:-1]}, "offsets": [\n{lines}\n]}}\n'
    raw = text.encode()
    if len(raw) <= INLINE_LIMIT_BYTES:
        return {PLAIN: text}
    packed = pack(raw)
    if len(packed) > LIMIT_BYTES:
        raise TooLarge(f"{len(places.rows):,} offsets take {len(packed):,} bytes, but only {LIMIT_BYTES:,} fit")
    return {PACKED: packed}


def _head(places: Places) -> dict[str, Any]:
    head = {"lookedMs": places.looked_ms, "occupiedMs": places.occupied_ms, "vacant": places.vacant}
    return {**head, "cluster": places.cluster_id} if places.cluster_id else head


def _row(partition: TopicPartition, row: Place) -> dict[str, Any]:
    fields = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": row.commit.offset,
        "metadata": row.commit.metadata or None,
        "topicId": row.topic_id,
        "seenMs": row.seen_ms,
        "committedAfterMs": row.committed_after_ms,
        "keptMs": row.kept_ms,
        "lastsUntilMs": row.lasts_until_ms,
        "lostMs": row.lost_ms,
        "hiddenMs": row.hidden_ms,
        "lastSeenMs": row.last_seen_ms,
    }
    return {name: value for name, value in fields.items() if value is not None}


def decode(data: Mapping[str, str], group_id: str, where: str = "it") -> Places:
    """What :func:`encode` wrote; nothing of another group's. Raises ``NewerVersion``, and ``ValueError`` for anything
    else."""
    try:
        text = data[PLAIN] if PLAIN in data else unpack(data[PACKED])
        document = json.loads(text)
        check(LAST_OFFSETS, document.get(VERSION), where)
        return of_document(document) if document["group"] == group_id else Places()
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a snapshot of offsets: {error!r}") from error


def _place(row: Mapping[str, Any]) -> Place:
    return Place(
        Commit(_whole(row["offset"]), _sent(row.get("metadata", ""))),
        str(row["topicId"]),
        _whole(row["seenMs"]),
        _whole_or_none(row.get("committedAfterMs")),
        _whole_or_none(row.get("keptMs")),
        _whole_or_none(row.get("lastsUntilMs")),
        _whole_or_none(row.get("lostMs")),
        _whole_or_none(row.get("hiddenMs")),
        _whole_or_none(row.get("lastSeenMs")),
    )


def _topic(value: object) -> str:
    """Topics are looked up by these names together with those of others, whose look must not fail because of one that
    no topic can have."""
    if not isinstance(value, str) or not TOPIC_NAME.fullmatch(value):
        raise ValueError("no topic can have one of the names")
    return value


def _sent(value: object) -> str:
    """Text that can be sent to the brokers: JSON may have half of a pair of surrogates."""
    text = str(value)
    text.encode()
    return text


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**64:
        raise ValueError("a number is not a whole number from 0 on, or is too large")
    return value


def _whole_or_none(value: object) -> int | None:
    return None if value is None else _whole(value)
