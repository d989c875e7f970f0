"""What is said of topics that are not being copied."""

from __future__ import annotations

from tidegate.offset_mirror.rows import halted_before
from tidegate.resources.mirror_failover import MOST_TOPICS
from tidegate.resources.offset_mirror import CopyState, MirroredTopicStatus, OffsetMirrorStatus


def test_a_status_that_tells_of_any_number_of_partitions_takes_no_memory_for_them() -> None:
    """It is what is in the resource, whoever wrote that."""
    rows = tuple(
        MirroredTopicStatus(name=f"t{n}", source_id="a", target_id="b", partitions=2**31 - 1, state=CopyState.STOPPED)
        for n in range(MOST_TOPICS)
    )

    assert len(halted_before(OffsetMirrorStatus(topics=rows), [])) == 100_000
