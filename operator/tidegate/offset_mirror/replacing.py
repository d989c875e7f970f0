"""What is next for the job of a mirror. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidegate.offset_mirror.order import MirrorOrder, is_same, only_grows

GROWS_AFTER_S: Final = 60.0
"""Partitions that are added while others are still being made ready wait so long at most for the others."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Another job is needed, or a first one."""

    why: str


@dataclass(frozen=True, slots=True)
class Begin:
    """It is ordered, and the status has to name it before it is started."""

    order: MirrorOrder


@dataclass(frozen=True, slots=True)
class Follow:
    """It is to run."""

    order: MirrorOrder


def decide(
    ordered: MirrorOrder | None, wanted: MirrorOrder, named: str, fresh: str, *, settled: bool, since_s: float
) -> Replace | Begin | Follow:
    """``ordered``: what the document has; ``named``: the job that the status names, if it does; ``fresh``: the one that
    has been ordered last by this process, if one has, and may not have been named yet; ``settled``: nothing else is
    being made ready; ``since_s``: for how long the job has run."""
    if ordered is None:
        return Replace("no job was ordered")
    if not is_same(ordered, wanted):
        if not only_grows(ordered, wanted):
            return Replace("what is copied, or how, has changed")
        if settled or since_s >= GROWS_AFTER_S:
            return Replace("there is more to copy")
    if named == ordered.launch:
        return Follow(ordered)
    # One that was ordered by another process may have been started and ended: no name is used twice.
    return Begin(ordered) if fresh == ordered.launch else Replace("the ordered job has ended")
