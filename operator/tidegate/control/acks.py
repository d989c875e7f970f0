"""The ack topic's records as far as they are believed and kept. Pure.

Whatever stands in that topic is hostile input: every managed consumer may write there. So only acks of groups that
somebody asks about are kept, within a bound of memory, and an ack of an epoch that the control topic had not reached
when the ack was read is never believed, not even once the epoch is reached.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from tidegate.control.records import Ack, AckKey

MOST_BYTES: Final = 32 * 1024 * 1024
"""For the acks of all groups together: some 70,000 partitions with names of common length."""

MOST_GROUPS: Final = 5_000
"""Groups that are kept without having been asked about lately."""

MOST_AHEAD: Final = 10_000
"""Acks of epochs that were not reached, which are remembered so that they can be taken back."""

MOST_LOOKS: Final = 4_096

MOST_MEMBERS: Final = 4
"""Whose acks of one partition are kept: the owner's, and late ones of members that owned it before."""

_RECORD_BYTES: Final = 400
"""What an ack takes beside its texts, its places in dictionaries included."""


@dataclass(frozen=True, slots=True)
class _Look:
    """All acks before the offset ``end`` had been read when the control topic's log end offset was ``reached``."""

    end: int
    reached: int


@dataclass(slots=True)
class Acks:
    """The newest acks of each partition of the groups that are asked about, one of each member.

    An ack counts for as long as its member owns the partition, and one of a former owner may come after the owner's: it
    was waiting for a broker, or its process was frozen. So it must not hide that.

    Beyond ``most_bytes`` the group that has most gives up its oldest: a flood costs only whoever it names.
    ``heard``: whether any agent of any group has ever said anything.
    """

    most_bytes: int = MOST_BYTES
    heard: bool = False
    _asked: dict[str, None] = field(default_factory=dict)
    _acks: dict[str, dict[AckKey, tuple[Ack, ...]]] = field(default_factory=dict)
    _bytes: dict[str, int] = field(default_factory=dict)
    _total: int = 0
    _ahead: dict[AckKey, tuple[str, ...]] = field(default_factory=dict)
    """The members whose newest ack of a partition is not believed."""
    _looks: dict[int, list[_Look]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """What the acks take that are kept, at least as much as they really do."""
        return self._total

    def ask(self, groups: Collection[str]) -> bool:
        """Keep acks of these as well; whether some are new, and the topic has to be read from its start for them."""
        are_new = not self._asked.keys() >= set(groups)
        self._asked_lately(groups)
        for group in list(islice(self._asked, max(0, len(self._asked) - max(MOST_GROUPS, len(groups))))):
            self._forget(group)
            del self._asked[group]
        return are_new

    def keeps(self, groups: Collection[str]) -> bool:
        """Whether acks of all of these are kept; if so, they count as asked about once more."""
        if not self._asked.keys() >= set(groups):
            return False
        self._asked_lately(groups)
        return True

    def _asked_lately(self, groups: Collection[str]) -> None:
        for group in groups:
            self._asked.pop(group, None)
            self._asked[group] = None

    def of(self, groups: Iterable[str]) -> dict[AckKey, tuple[Ack, ...]]:
        """The acks of these groups, of each partition the newest last; later records do not change the result."""
        return {key: acks for group in groups for key, acks in self._acks.get(group, {}).items()}

    def ahead(self) -> tuple[AckKey, ...]:
        """Partitions, of whatever group, of which a member's newest ack was of an epoch that had not been reached: the
        newest of them."""
        return tuple(self._ahead)

    # --- reading ------------------------------------------------------------------------------------------------------

    def rewind(self) -> None:
        """The topic is read from its start again. What was not to be believed then is not to be believed now."""
        self._acks.clear()
        self._bytes.clear()
        self._total = 0
        self._ahead.clear()

    def topic_recreated(self) -> None:
        """Another topic of this name, or another control topic, is read from its start."""
        self.rewind()
        self._looks.clear()
        self.heard = False

    def is_decided(self, ack: Ack, partition: int, offset: int, reached: int) -> bool:
        """Whether this record can be judged without looking at the control topic's end again.

        ``reached``: that end, as it was some time before the record came.
        """
        return ack.epoch < reached or self._reached(partition, offset) is not None

    def looked(self, partition: int, end: int, reached: int) -> None:
        """All acks of this partition of the ack topic before offset ``end`` had been read when the control topic's log
        end offset was ``reached``: none of them can truly be of a later epoch."""
        looks = self._looks.setdefault(partition, [])
        if looks and end <= looks[-1].end:
            return
        if looks and looks[-1].reached >= reached:
            looks[-1] = _Look(end, looks[-1].reached)
            return
        looks.append(_Look(end, reached))
        if len(looks) > MOST_LOOKS:
            # Each one that is left out is covered by the one after it, which is a little more lenient.
            del looks[: MOST_LOOKS // 2 : 2]

    def take(self, key: AckKey, ack: Ack | None, partition: int, offset: int) -> None:
        """One record at its offset in this partition of the ack topic, ``None``: a tombstone. ``looked`` comes first.

        A record takes the place of its member's earlier one, whether or not it is believed.
        """
        before = self._acks.get(key.group, {}).pop(key, ())
        self._grow(key.group, -_weight(key, before))
        ahead = tuple(member for member in self._ahead.pop(key, ()) if ack is not None and member != ack.member)
        if ack is None:
            return
        self.heard = True
        # Epoch 0 is also what an agent says that has found no control record at all.
        is_ahead = ack.epoch >= max(self._reached(partition, offset) or 0, 1)
        if is_ahead:
            ahead = (*ahead, ack.member)[-MOST_MEMBERS:]
        if ahead:
            self._ahead[key] = ahead
            if len(self._ahead) > MOST_AHEAD:
                del self._ahead[next(iter(self._ahead))]
        if key.group in self._asked:
            self._keep(key, without(before, ack.member) if is_ahead else with_newest(before, ack))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _reached(self, partition: int, offset: int) -> int | None:
        """The control topic's end when the record at this offset had been read; ``None``: nobody has looked since."""
        looks = self._looks.get(partition, [])
        at = bisect_right(looks, offset, key=lambda look: look.end)
        return looks[at].reached if at < len(looks) else None

    def _keep(self, key: AckKey, acks: tuple[Ack, ...]) -> None:
        if acks:
            self._acks.setdefault(key.group, {})[key] = acks
            self._grow(key.group, _weight(key, acks))
            self._keep_bounded()

    def _keep_bounded(self) -> None:
        while self._total > self.most_bytes:
            largest = max(self._bytes, key=self._bytes.__getitem__)
            kept = self._acks[largest]
            for key in list(islice(kept, len(kept) // 8 + 1)):
                self._grow(largest, -_weight(key, kept.pop(key)))

    def _grow(self, group: str, by: int) -> None:
        self._total += by
        left = self._bytes.pop(group, 0) + by
        if left:
            # Of groups that nobody asks about not even the name is kept: there may be any number of them.
            self._bytes[group] = left

    def _forget(self, group: str) -> None:
        self._acks.pop(group, None)
        self._total -= self._bytes.pop(group, 0)


def with_newest(before: tuple[Ack, ...], ack: Ack) -> tuple[Ack, ...]:
    """One partition's acks, one of each member and the newest last, after one more."""
    return (*without(before, ack.member), ack)[-MOST_MEMBERS:]


def without(acks: tuple[Ack, ...], member: str) -> tuple[Ack, ...]:
    return tuple(ack for ack in acks if ack.member != member)


def _weight(key: AckKey, acks: tuple[Ack, ...]) -> int:
    names = sys.getsizeof(key.group) + sys.getsizeof(key.topic)
    return sum(_RECORD_BYTES + names + sys.getsizeof(ack.member) for ack in acks)
