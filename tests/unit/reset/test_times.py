"""How long partitions stood still, over several rounds of one run."""

from __future__ import annotations

from tidegate.kafka.model import TopicPartition
from tidegate.reset.applying.rounds import Times

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def spans(times: Times) -> tuple[float, float] | None:
    found = times.standstill()
    return None if found is None else (found.p50_s, found.max_s)


def test_a_partition_stands_from_the_first_stop_to_the_last_resumption() -> None:
    times = Times()
    times.stop([P], 10.0)
    times.resume([P], 11.0)
    times.stop([P], 20.0)
    assert spans(times) is None

    times.resume([P], 24.0)

    assert spans(times) == (14.0, 14.0)


def test_what_its_owner_read_on_in_between_does_not_count() -> None:
    """A lead of the group that failed: it is stopped after what was resumed in an earlier round."""
    times = Times()
    times.stop([P, Q], 10.0)
    times.resume([P, Q], 11.0)
    times.stop_anew([P], 95.0)

    assert spans(times) == (1.0, 1.0)
    times.resume([P], 97.0)
    assert spans(times) == (1.5, 2.0)
