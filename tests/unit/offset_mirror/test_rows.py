"""What is said of topics that are not being copied."""

from __future__ import annotations

from datetime import UTC, datetime

from tidegate.offset_mirror.rows import halted_before, with_drift
from tidegate.resources.mirror_failover import MOST_TOPICS
from tidegate.resources.offset_mirror import (
    CopyState,
    DifferentPlace,
    MirroredTopicStatus,
    MirrorParity,
    OffsetMirrorStatus,
)


def test_a_status_that_tells_of_any_number_of_partitions_takes_no_memory_for_them() -> None:
    """It is what is in the resource, whoever wrote that."""
    rows = tuple(
        MirroredTopicStatus(name=f"t{n}", source_id="a", target_id="b", partitions=2**31 - 1, state=CopyState.STOPPED)
        for n in range(MOST_TOPICS)
    )

    assert len(halted_before(OffsetMirrorStatus(topics=rows), [])) == 100_000


def test_a_copy_that_differs_has_drifted_also_while_its_topic_is_made_ready() -> None:
    """Else a failover just then would say that nothing is wrong with it, and a failback would take it over."""
    rows = tuple(
        MirroredTopicStatus(name=state.value.lower(), source_id="a", target_id="b", partitions=1, state=state)
        for state in (CopyState.WAITING, CopyState.SOURCE_GONE)
    )
    different = [DifferentPlace(topic=row.name, partition=0, offset=3, message="they differ") for row in rows]
    parity = MirrorParity(since=datetime(2026, 11, 27, tzinfo=UTC), places=1, records=0, different=tuple(different))
    other = MirroredTopicStatus(name="z", source_id="a", target_id="b", partitions=1, state=CopyState.IN_SYNC)

    told = with_drift(OffsetMirrorStatus(topics=(*rows, other), parity=parity), [])

    assert [row.state for row in told.topics] == [CopyState.DRIFTED, CopyState.SOURCE_GONE, CopyState.IN_SYNC]
