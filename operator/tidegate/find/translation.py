"""Where a group goes on in another cluster: the offset *here* that means the place it has over *there*. Pure.

A mirror has copied the partitions from there to here. It copies each partition in order and leaves nothing out, but may
begin again further back (at least once), so a record may be here several times. What this module relies on:

* *Order*: before the first copy of a record, whatever is here of its partition was copied from before it.
* *Time index*: before the first offset at or after a time (ListOffsets), every record is older than it.

Every record in the window here is compared with those over there. It is *open* if it is, or may be, one that the group
has yet to read, such as one that is the same as records of several partitions; *done* if all that it can be was read;
*unknown* if nothing over there is the same. The place is the first open or unknown record: nothing before it was ever
missed. What lies before the window counts as done if a done record that is young enough for the time index was found in
it (its first copy is then in the window, too); where records change partitions, because times over there are out of
order by less than the window is long. A record that is unknown is passed over only where it can be none of those the
group has yet to read:

* it lies before the first copy of the first done record: then it was copied from before that one;
* it lies before the first copy of the last done record, and is older than what was read over there, or compaction has
  removed records over there.

Neither holds where first copies may be gone, by retention or compaction here; nor, where records change partitions,
unless something of each partition over there was found.

Whatever is not proved so is read again: never skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from tidegate.kafka.model import LogBounds, TopicPartition


@dataclass(frozen=True, slots=True)
class Window:
    """The offsets of one partition that are compared, ``stop`` excluded, and the log they lie in.

    ``since``: all records before ``start`` are older. ``until``: all records from ``stop`` on, those out of order by
    more than the target's ``window`` aside, are at or after it; ``None``: it reaches to the end of the log.
    """

    start: int
    stop: int
    bounds: LogBounds
    since: datetime
    until: datetime | None

    @property
    def begins_with_log(self) -> bool:
        return self.start <= self.bounds.earliest

    @property
    def has_first_copies(self) -> bool:
        """No earlier copy of a record from ``since`` on was ever before the window."""
        return not self.begins_with_log or self.bounds.earliest == 0


@dataclass(frozen=True, slots=True)
class Origin:
    """A partition over there: what lies before ``committed`` is done."""

    partition: int
    committed: int
    window: Window


@dataclass(frozen=True, slots=True)
class Destination:
    """A partition here. ``reach``: younger records can't have been read by the group, ``None``: it has read to the end.

    ``checkpoint``: what MirrorMaker 2 has translated the group's place, or an earlier one, to. It is told, never
    followed: whether it skips nothing is for the records to prove.
    """

    partition: int
    window: Window
    reach: datetime | None = None
    checkpoint: int | None = None


@dataclass(frozen=True, slots=True)
class TopicPair:
    """A topic here (``topic_id``: its id) and the one over there that it was copied from.

    ``by_key``: records of any partition over there may be in any partition here. ``compacted_there``: compaction
    removes records over there; ``compacted_here``: or may remove them here.
    """

    here: str
    topic_id: str
    there: str
    by_key: bool
    compacted_there: bool
    compacted_here: bool
    origins: tuple[Origin, ...]
    destinations: tuple[Destination, ...]


@dataclass(frozen=True, slots=True)
class Contribution:
    """What was found here, in partition ``here``, of partition ``there``.

    ``first`` and ``last``: offsets of the first copies of the first and of the last record found of which is known that
    everything before it is done; ``None``: of no record.
    """

    here: int
    there: int
    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class Proof:
    """``holds``: what lies before the window is done. What lies here before ``first`` is from before any record that
    was read over there, and what lies before ``last`` is done, unless it is open itself; −1: nothing is known of it.
    """

    holds: bool = False
    first: int = -1
    last: int = -1


@dataclass(frozen=True, slots=True)
class Found:
    """Offsets here, of the first record that is open, and of the first unknown one that is not passed over.

    ``same_offsets``: each record here, up to where both windows end, is at its offset the only one over there that is
    the same, none of those over there is missing, and there are some.
    """

    first_open: int | None
    first_unknown: int | None
    same_offsets: bool = False


class Basis(StrEnum):
    """What a place rests on."""

    RECORDS = "Records"
    SAME_OFFSETS = "SameOffsets"
    NOTHING = "Nothing"
    """No record of the window proves anything: the start of the log."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a group goes on in a partition here. ``twice``: at most so many records it has read over there come again.

    ``cut_off``: the window ended before a record that is open, or before the place: look further.
    """

    partition: TopicPartition
    offset: int
    basis: Basis
    cut_off: bool = False
    twice: int = 0
    checkpoint: int | None = None


def identity(pair: TopicPair, match: Collection[str]) -> tuple[str, ...]:
    """What makes records the same, in order. Where compaction removes records over there, their key as well: then what
    is the same as one that is left is none of those that were removed after it, which would have taken it along."""
    return tuple(sorted({*match, "key"} if pair.compacted_there else set(match)))


def is_crossed(pair: TopicPair, contributions: Iterable[Contribution]) -> bool:
    """Records have changed their partition, though there are as many here as over there."""
    return not pair.by_key and any(c.here != c.there for c in contributions)


def proofs(pair: TopicPair, contributions: Collection[Contribution]) -> Mapping[int, Proof]:
    """By partition here. Of each partition over there that has anything in it, the weakest counts."""
    found: dict[int, Proof] = {}
    for destination in pair.destinations:
        ours = [c for c in contributions if c.here == destination.partition]
        ends = [(c.first, c.last) for c in ours if c.first is not None and c.last is not None]
        if not ends or len(ends) < len(ours):
            found[destination.partition] = Proof()
        elif (
            pair.compacted_here
            or not destination.window.has_first_copies
            or (pair.by_key and len(ours) < len(pair.origins))
        ):
            found[destination.partition] = Proof(holds=True)
        else:
            first, last = min(first for first, _ in ends), min(last for _, last in ends)
            found[destination.partition] = Proof(True, first, last)
    return found


def place(pair: TopicPair, destination: Destination, proof: Proof, found: Found) -> Place:
    """The first offset that is not known to be done."""
    window, at = destination.window, TopicPartition(pair.here, destination.partition)
    bounds, checkpoint = window.bounds, destination.checkpoint
    if pair.by_key and any(o.committed < o.window.bounds.earliest for o in pair.origins):
        # What retention has taken there before the group read it may be anywhere here, and look like what it has read.
        return Place(at, bounds.earliest, Basis.NOTHING, checkpoint=checkpoint)
    origin = next((o for o in pair.origins if o.partition == destination.partition), None)
    if found.same_offsets and origin is not None and not pair.by_key:
        # A time far ahead of the others ends a window early: what was not compared up to the place may be moved.
        cut_off = window.stop < min(origin.committed, bounds.latest)
        return Place(at, bounds.clamp(origin.committed), Basis.SAME_OFFSETS, cut_off, checkpoint=checkpoint)
    if not proof.holds and not window.begins_with_log and not pair.by_key:
        return Place(at, bounds.earliest, Basis.NOTHING, checkpoint=checkpoint)
    candidates = [o for o in (found.first_open, found.first_unknown) if o is not None]
    offset = min([*candidates, window.stop])
    known = proof.holds or found.first_open is not None or offset > bounds.earliest or bounds.earliest == bounds.latest
    cut_off = not candidates and window.stop < bounds.latest
    return Place(at, offset, Basis.RECORDS if known else Basis.NOTHING, cut_off, checkpoint=checkpoint)


def counted(pair: TopicPair, place: Place, destination: Destination, seen: int, to_come: Mapping[int, int]) -> Place:
    """With ``twice``: of ``seen`` records in the window, from the place on, that may be done; of what lies between
    place and window, unread; and of done records over there that are not here yet, ``to_come`` by partition over there.
    Where those may go anywhere, they are counted with the first partition.
    """
    if pair.by_key:
        coming = sum(to_come.values()) if destination is pair.destinations[0] else 0
    else:
        coming = to_come.get(destination.partition, 0)
    return replace(place, twice=max(0, destination.window.start - place.offset) + seen + coming)


def told(places: Sequence[Place], group_id: str) -> tuple[str, ...]:
    """Sentences for the plan: what the places rest on, and what comes twice."""
    sentences = []
    for basis, what in _SAID.items():
        those = [p for p in places if p.basis is basis]
        if those:
            sentences.append(f"{what.format(group=group_id)}: {_listed([str(p.partition) for p in those])}")
    twice = [p for p in places if p.twice]
    total = sum(p.twice for p in twice)
    if twice:
        each = _listed([f"{p.partition}: {p.twice:,}" for p in sorted(twice, key=lambda p: -p.twice)])
        sentences.append(
            f"Of the records compared, at most {total:,} that group {group_id} has read in the other cluster are "
            f"delivered again ({each})"
        )
    else:
        sentences.append(
            f"Of the records compared, none that group {group_id} has read in the other cluster is delivered again"
        )
    beyond = [p for p in places if p.checkpoint is not None and p.checkpoint > p.offset]
    if beyond:
        each = _listed([f"{p.partition}: {p.checkpoint}, taken {p.offset}" for p in beyond])
        sentences.append(
            f"MirrorMaker 2's checkpoints are beyond what the records prove, so they were not used: {each}"
        )
    return tuple(sentences)


_SAID: Final = {
    Basis.RECORDS: "The position of group {group} in the other cluster, found by records that are the same",
    Basis.SAME_OFFSETS: "Offsets used unchanged, since the same records have the same offsets in the other cluster",
    Basis.NOTHING: "No record compared proves anything, so it begins at the start (see match and window)",
}


def _listed(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
