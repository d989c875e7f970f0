"""Which groups without members are Kafka Streams applications, and whose state stores they have left."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tidegate.kafka.errors import NotAuthorized, Refused, Unavailable
from tidegate.kafka.model import Group, GroupState, GroupType, Offsets
from tidegate.kafka.ports import ClusterReader
from tidegate.kafka.streams import changelogs, namesakes
from tidegate.reset.planning.checks import STREAMS_ASSIGNOR, LeftByStreams

_MOST_NAMESAKES: Final = 1_000
"""Names of topics are anybody's: of more groups than that it is not asked whether they are applications."""


def left_by_streams(group: Group, committed: Offsets, kafka: ClusterReader) -> LeftByStreams | None:
    """What tells that a group without members is Kafka Streams'. All topics are looked at only where its commits are.

    Raises ``Unavailable`` for one whose commits are, while a rebalance hides its assignor: they may be of an earlier
    application of this id.
    """
    hidden = group.type is GroupType.CLASSIC and group.state.is_rebalancing
    if group.assignor or (group.has_members and not hidden):
        return None
    if not committed or not kafka.committed_by_streams([group.group_id]):
        return None
    if group.has_members:
        kind = "whether it is a Kafka Streams application"
        raise Unavailable(f"group {group.group_id} is {group.state}, so {kind} is known only after the rebalance")
    return LeftByStreams(changelogs_of(group.group_id, kafka.topics(), kafka))


def changelogs_of(application_id: str, topics: Collection[str], kafka: ClusterReader) -> frozenset[str]:
    """Those of ``topics`` that are named as changelogs of this Kafka Streams application, and are of no other
    application, whose longer id begins like it: as far as that one is known."""
    named = changelogs(application_id, topics)
    others = namesakes(application_id, named)
    if not 0 < len(others) <= _MOST_NAMESAKES:
        return named
    try:
        known = kafka.groups(sorted(others))
        running = {g for g, group in known.items() if group.assignor == STREAMS_ASSIGNOR}
        asked = [g for g, group in known.items() if group.state is not GroupState.DEAD and g not in running]
        return changelogs(application_id, named, running | kafka.committed_by_streams(asked))
    except (NotAuthorized, Refused):
        return named
