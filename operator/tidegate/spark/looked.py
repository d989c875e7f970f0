"""What a look at a window of records has shown: a row for each partition in which something was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidegate.kafka.model import TopicPartition
from tidegate.spark.decoding import FLAW, MISSING, unsigned
from tidegate.spark.flaws import Flaw

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class Flawed:
    """Values that can't be decoded: how many, and of that one which is searched first where it is and why.
    ``not_asked``: the offset of the first one whose schema the registry was not asked for."""

    count: int
    offset: int
    why: str
    not_asked: int | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """What a window has shown, by partition: matches, how many records were out of order by their times, and those that
    could not be decoded. ``missing``: ids of schemas without which it has shown nothing yet."""

    matches: Mapping[TopicPartition, int]
    disordered: Mapping[TopicPartition, int]
    flawed: Mapping[TopicPartition, Flawed] = field(default_factory=dict)
    missing: frozenset[int] = frozenset()

    def not_asked(self, *, after: bool) -> Mapping[TopicPartition, int]:
        """Those of ``flawed_up_to_matches`` that nobody knows to be undecodable: the first one's offset."""
        only = {
            p: Flawed(1, flawed.not_asked, Flaw.NOT_ASKED)
            for p, flawed in self.flawed.items()
            if flawed.not_asked is not None
        }
        found = replace(self, flawed=only).flawed_up_to_matches(after=after)
        return {p: flawed.offset for p, flawed in found.items()}

    def flawed_up_to_matches(self, *, after: bool) -> Mapping[TopicPartition, Flawed]:
        """Where one is searched before what was found, or is that itself: a null for it is what the condition saw."""
        return {
            p: flawed
            for p, flawed in self.flawed.items()
            if p not in self.matches
            or (flawed.offset >= self.matches[p] if after else flawed.offset <= self.matches[p])
        }


def look(shown: DataFrame, *, after: bool, decoded: bool) -> Looked:
    """From records with ``match`` and ``odd``; where they are ``decoded``, also ``flawed`` and what decoding tells."""
    from pyspark.sql import functions as f

    wanted = "match or odd" + (f" or flawed or {MISSING} is not null" if decoded else "")
    best = f.max if after else f.min
    found = [best(f.when(f.col("match"), f.col("offset"))).alias("match"), f.count_if("odd").alias("odd")]
    rows = (
        shown.where(wanted).groupBy("topic", "partition").agg(*found, *(_of_flaws(after) if decoded else ())).collect()
    )
    return _looked(rows, decoded=decoded)


def _of_flaws(after: bool) -> list[Column]:
    from pyspark.sql import functions as f

    offset = f.when(f.col("flawed"), f.col("offset"))
    return [
        f.count_if("flawed").alias("flaws"),
        (f.max if after else f.min)(offset).alias("flawed"),
        (f.max_by if after else f.min_by)(FLAW, offset).alias("why"),
        (f.max if after else f.min)(f.when(f.col(FLAW) == Flaw.NOT_ASKED.value, offset)).alias("not_asked"),
        f.collect_set(MISSING).alias("missing"),
    ]


def _looked(rows: Sequence[Any], *, decoded: bool) -> Looked:
    of = {TopicPartition(r["topic"], r["partition"]): r for r in rows}
    return Looked(
        {p: r["match"] for p, r in of.items() if r["match"] is not None},
        {p: r["odd"] for p, r in of.items() if r["odd"]},
        {p: Flawed(r["flaws"], r["flawed"], r["why"], r["not_asked"]) for p, r in of.items() if decoded and r["flaws"]},
        frozenset(unsigned(n) for r in rows for n in (r["missing"] if decoded else ())),
    )
