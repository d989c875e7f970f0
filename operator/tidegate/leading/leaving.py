"""Leaving a group that was led."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.ports import SeatedGuest
from tidegate.leading.pacing import Pacing


def leave(
    kafka: Kafka, group_id: str, guest: SeatedGuest, clock: Clock, pacing: Pacing, goes_on: Callable[[], bool]
) -> None:
    """Leave until the group's coordinator knows our member no more, for as long as it would remember it otherwise: what
    the member withholds is nobody's until then."""
    ends_s = clock.monotonic() + pacing.session_s
    guest.leave()
    while _may_be_there(kafka, group_id, guest.member_id) and clock.monotonic() < ends_s and goes_on():
        clock.sleep(pacing.beat_s)
        guest.leave()


def _may_be_there(kafka: Kafka, group_id: str, member_id: str) -> bool:
    try:
        return any(member.member_id == member_id for member in kafka.groups([group_id])[group_id].members)
    except KafkaFailure:
        return True
