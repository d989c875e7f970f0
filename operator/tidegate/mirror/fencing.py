"""The end of a copy, for good: nothing that its writers still do, or have sent, is taken by the target any more.

Two kinds of markers are written, which no consumer sees:

* one of a producer that no writer knows. A writer that looks at the end of the log from then on finds somebody else's
  batch there, and stops;
* one of each of the writers' producers, of the largest epoch that there is. What a writer decided before it could see
  the first one bears an older epoch, and is refused, however late it comes.

In this order: a writer that looked between the two would otherwise go on behind the second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.mirror.batches import read_batches
from tidegate.mirror.model import Done, Interrupted, Refusal, Tail
from tidegate.mirror.ports import Target
from tidegate.mirror.records import fills
from tidegate.mirror.states import WINDOW

LAST_EPOCH: Final = 32_767
_WIDER: Final = 8


@dataclass(frozen=True, slots=True)
class Fenced:
    """``end``: the offset after the last that was copied; ``displaced``: where a batch of a writer has come to lie that
    was on its way between the two markers, and so not at the source's offset; ``strange``: where the first batch that
    no writer of the copy has written lies, among its last; ``fills``: whether the copy ends with empty records that
    fill the offsets before the source's start, and were to be deleted."""

    end: int
    displaced: int | None = None
    strange: int | None = None
    fills: bool = False


def fence(target: Target, ids: Sequence[int], fence_id: int, adopted: int = 0) -> Fenced | Refusal | Interrupted:
    """``ids``: all producer ids of the copy's writers, of which no more may be claimed; ``fence_id``: one that is none
    of theirs, the same whenever this is repeated; ``adopted``: up to where anybody may have written what the copy was
    begun from. Raises ``KafkaFailure`` and ``Unreadable``.
    """
    tail = _tail(target, fence_id)
    if isinstance(tail, Interrupted):
        return tail
    if _end(tail, fence_id) is None:
        answer = target.write_markers(fence_id, 0, 1)
        if not isinstance(answer, Done):
            return answer
        tail = _tail(target, fence_id)
        if isinstance(tail, Interrupted):
            return tail
    # Repeated for another partition's sake it adds nothing, or the end would leave the window in time.
    refused = {b.stamp.producer_id for b in read_batches(tail.data) if b.is_control and b.stamp.epoch == LAST_EPOCH}
    for producer_id in _at_work(tail, ids):
        if producer_id in refused:
            continue
        answer = target.write_markers(producer_id, LAST_EPOCH, 1)
        if not isinstance(answer, Done):
            return answer
    tail = _tail(target, fence_id)
    if isinstance(tail, Interrupted):
        return tail
    end = _end(tail, fence_id)
    if end is None:
        return Interrupted("the marker that ends the copy is not there yet")
    batches = [*read_batches(tail.data)]
    late = (b.base_offset for b in batches if b.stamp.producer_id in ids and not b.is_control)
    since = max(adopted, end - WINDOW)  # what lies further back may be of a writer whose id is not kept any more
    strange = (b.base_offset for b in batches if b.stamp.producer_id not in ids and since < b.next_offset <= end)
    displaced = next((offset for offset in late if offset > end), None)
    ours = [b for b in batches if b.stamp.producer_id in ids and tail.start < b.next_offset <= end]
    return Fenced(end, displaced, next(strange, None), bool(ours) and fills(ours[-1]))


def _tail(target: Target, fence_id: int) -> Tail | Interrupted:
    """The end of the log; with the fence's first marker if that is there, which a late batch may have pushed back."""
    window = WINDOW
    tail = target.tail(window)
    while not isinstance(tail, Interrupted) and _end(tail, fence_id) is None and tail.window > tail.start:
        if all(producer.producer_id != fence_id for producer in tail.producers):
            return tail
        window *= _WIDER
        wider = target.tail(window)
        if not isinstance(wider, Interrupted) and wider.window >= tail.window:
            return Interrupted("the marker that ends the copy lies further back than is read of the log")
        tail = wider
    return tail


def _end(tail: Tail, fence_id: int) -> int | None:
    """Where the first marker of the fence lies."""
    fences = (batch for batch in read_batches(tail.data) if batch.stamp.producer_id == fence_id)
    return next((batch.base_offset for batch in fences), None)


def _at_work(tail: Tail, ids: Sequence[int]) -> Sequence[int]:
    """Producer ids that a writer may be using: from the one before the last that has written on, or all where the log
    does not tell."""
    wrote = [batch.stamp.producer_id for batch in read_batches(tail.data) if batch.stamp.producer_id in ids]
    return ids[max(0, min(map(ids.index, wrote)) - 1) :] if wrote else ids
