"""What the status of a policy for many groups says of their new partitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tidegate.discovery.together import together
from tidegate.policy.feature import WholeView
from tidegate.resources.base import parse_spec
from tidegate.resources.discovery import DiscoveryStatus, NewPartition
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def found(at: datetime) -> PolicyStatus:
    row = NewPartition(topic="orders", partition=0, seen_at=at)
    return PolicyStatus(discovery=DiscoveryStatus(initial_discovery_finished=True, newest=(row,)))


def test_a_partition_of_a_topic_that_was_made_again_is_told_with_its_own_time() -> None:
    body = {"spec": {"connectionRef": {"name": "kafka"}, "groups": ["*"], "discovery": {}}}
    spec = parse_spec(OffsetResetPolicySpec, body)
    later = NOON + timedelta(hours=1)
    whole = WholeView(body, spec, found(NOON), later, {"a": found(later), "b": found(NOON)})

    status = together(whole).discovery

    assert status is not None
    assert [row.seen_at for row in status.newest] == [later]
