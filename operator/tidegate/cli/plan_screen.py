"""A review of a plan for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tidegate.cli.fleet_review import FleetReview
from tidegate.cli.review import (
    Review,
    Topic,
    Total,
    ago_text,
    keys_text,
    peak,
    reading_text,
    records_text,
    size_text,
    time_text,
    width_text,
)
from tidegate.printable import visible
from tidegate.reset.evidence import Amount, Content, Histogram, HistogramSource
from tidegate.reset.model.fleet import GroupPlan
from tidegate.reset.model.plan import PartitionPlan

MAX_ROWS: Final = 40
"""Partitions, or groups of a fleet, shown one by one; the page and the JSON have them all."""

WIDTH: Final = 120
"""Of what is no terminal."""

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_AGAIN, _SKIPPED, _FAINT, _WARN = "blue", "dark_orange", "dim", "yellow"


def show(review: Review | FleetReview, out: TextIO) -> None:
    """Write it. Colours only where ``out`` is a terminal that has them (and ``NO_COLOR`` is not set)."""
    width = None if out.isatty() else WIDTH
    console = Console(file=out, width=width, highlight=False, markup=False, emoji=False)
    console.print(Group(*(_parts(review) if isinstance(review, Review) else _fleet_parts(review))))
    if review.approval is not None:
        # A line of its own, never cut or broken, however narrow the terminal is: it is to be copied.
        console.print(Text(f"  {review.approval}", "bold"), soft_wrap=True)


def _parts(review: Review) -> Iterator[RenderableType]:
    yield _line(("Reset ", ""), (review.run_id, "bold"), (" of group ", ""), (review.group, "bold"))
    yield _line(
        (f"{review.reset}: to {review.target}. ", ""),
        (
            f"{review.phase}, strategy {review.way}, planned {time_text(review.made_at)} ({ago_text(review.age)})",
            _FAINT,
        ),
    )
    yield Text()
    yield _totals(review)
    for note in review.notes:
        yield Text(f"! {note}", _WARN)
    for note in review.evidence_notes:
        yield Text(f"  {note}", _FAINT)
    for topic in review.topics:
        yield Text()
        yield from _topic(topic)
    yield Text()
    yield _partitions(review.partitions)
    if len(review.partitions) > MAX_ROWS:
        yield Text(
            f"and {len(review.partitions) - MAX_ROWS:,} more partitions: --html FILE and --output json show them",
            _FAINT,
        )
    if review.samples:
        yield Text()
        yield from _samples(review)
    yield from _end(review)


def _end(review: Review | FleetReview) -> Iterator[RenderableType]:
    yield Text()
    if review.outcome is not None:
        yield Text(review.outcome)
    if review.approval is not None:
        yield Text("Nothing has been changed. To let the plan be applied exactly as it is shown here:")


def _line(*parts: tuple[str, str]) -> Text:
    return Text.assemble(*parts)


# --- totals and topics ------------------------------------------------------------------------------------------------


def _totals(review: Review) -> Table:
    table = Table.grid(padding=(0, 3))
    table.add_column(justify="left")
    table.add_column(justify="right")
    for name, style, total in (
        ("Read again", _AGAIN, review.replayed),
        ("Skipped", _SKIPPED, review.skipped),
    ):
        table.add_row(Text(name, style), f"{records_text(total)} records", *_sizes(total))
    again = len(review.partitions) - review.moved
    moves = f"{review.moved:,} move, {again:,} stay"
    clamped = f", {review.clamped:,} clamped to an end of the log" if review.clamped else ""
    table.add_row("Partitions", f"{len(review.partitions):,}", f"{moves}{clamped}")
    if review.span is not None:
        table.add_row("Records from", "", " to ".join(map(time_text, review.span)))
    return table


def _sizes(amount: Amount | Total | None) -> list[str]:
    if amount is None:
        return []
    size, keys = size_text(amount), keys_text(amount)
    found = [text for text in (size, None if keys is None else f"{keys} different keys") if text is not None]
    return [", ".join(found)] if found else []


def _topic(topic: Topic) -> Iterator[RenderableType]:
    evidence = topic.evidence
    yield _line((visible(topic.name), "bold"), (f"  {topic.partitions:,} partitions", _FAINT))
    for name, style, amount in (
        ("read again", _AGAIN, evidence.replayed),
        ("skipped", _SKIPPED, evidence.skipped),
    ):
        if amount is not None:
            read = reading_text(amount)
            yield _line(
                (f"  {name} ", style),
                (", ".join([f"{records_text(amount)} records", *_sizes(amount)]), ""),
                ("" if read is None else f" ({read})", _FAINT),
            )
            yield from _oddities(amount)
    if evidence.replayed is None and evidence.skipped is None:
        yield Text("  nothing is read again or skipped", _FAINT)
    if evidence.histogram is not None:
        yield Padding(Group(*_histogram(evidence.histogram)), (0, 0, 0, 2))


def _oddities(amount: Amount) -> Iterator[Text]:
    found = [
        f"{count:,} {what}"
        for count, what in ((amount.without_key, "without a key"), (amount.tombstones, "without a value"))
        if count
    ]
    if found:
        yield Text(f"    {', '.join(found)}", _FAINT)


def _histogram(histogram: Histogram) -> Iterator[Text]:
    top = peak(histogram)
    for name, style, counts in (
        ("again  ", _AGAIN, histogram.replayed),
        ("skipped", _SKIPPED, histogram.skipped),
    ):
        if any(counts):
            yield _line((f"{name} ", _FAINT), ("".join(_block(n, top) for n in counts), style))
    source = "offsets, by the time index" if histogram.source is HistogramSource.INDEX else "records"
    yield Text(
        f"{time_text(histogram.start)} to {time_text(histogram.end)}, {width_text(histogram.width)} a column, "
        f"at most {top:,} {source}",
        _FAINT,
    )


def _block(count: int, top: int) -> str:
    """A column an eighth high at least where there is anything."""
    if not count:
        return "·"
    return _BLOCKS[max(1, round(count / top * 8))]


# --- a fleet ----------------------------------------------------------------------------------------------------------


def _fleet_parts(review: FleetReview) -> Iterator[RenderableType]:
    yield _line(("Reset ", ""), (review.run_id, "bold"), (" of groups ", ""), (review.groups, "bold"))
    yield _line(
        (f"{review.reset}: to {review.target}. ", ""),
        (f"{review.phase}, planned {time_text(review.made_at)} ({ago_text(review.age)})", _FAINT),
    )
    yield Text()
    totals = Table.grid(padding=(0, 3))
    totals.add_column(justify="left")
    totals.add_column(justify="right")
    without = f"{len(review.refused):,} more without a plan" if review.refused else ""
    totals.add_row("Groups", f"{len(review.planned):,}", without)
    totals.add_row(Text("Read again", _AGAIN), f"{review.replayed:,} records")
    totals.add_row(Text("Skipped", _SKIPPED), f"{review.skipped:,} records")
    clamped = f", {review.clamped:,} clamped to an end of the log" if review.clamped else ""
    stay = review.partitions - review.moved
    totals.add_row("Partitions", f"{review.partitions:,}", f"{review.moved:,} move, {stay:,} stay{clamped}")
    yield totals
    yield Text(f"  {review.on_failure}", _FAINT)
    if review.rollout is not None:
        yield Text(f"  {review.rollout}", _FAINT)
    for note in review.notes:
        yield Text(f"! {note}", _WARN)
    yield Text()
    yield _groups(review.planned, review.waves)
    if len(review.planned) > MAX_ROWS:
        yield Text(
            f"and {len(review.planned) - MAX_ROWS:,} more groups: --html FILE and --output json show them", _FAINT
        )
    if review.refused:
        yield Text()
        yield Text("Without a plan")
    for group in review.refused[:MAX_ROWS]:
        yield _line((f"  {group.group_id} ", "bold"), (f"{group.refused}: {group.message}", _WARN))
    if len(review.refused) > MAX_ROWS:
        yield Text(
            f"and {len(review.refused) - MAX_ROWS:,} more groups: --html FILE and --output json show them", _FAINT
        )
    yield from _end(review)


def _groups(groups: Sequence[GroupPlan], waves: Sequence[int]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style=_FAINT, pad_edge=False)
    table.add_column("group", overflow="fold")
    for name in (*(("wave",) if waves else ()), "partitions", "move", "read again", "skipped"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("strategy", no_wrap=True)
    for n, group in enumerate(groups[:MAX_ROWS]):
        table.add_row(
            Text(group.group_id),
            *(f"{wave:,}" for wave in waves[n : n + 1]),
            f"{group.partitions:,}",
            Text(f"{group.moved:,}" + ("" if not group.clamped else "!"), _WARN if group.clamped else ""),
            Text(f"{group.records_replayed:,}", _AGAIN if group.records_replayed else _FAINT),
            Text(f"{group.records_skipped:,}", _SKIPPED if group.records_skipped else _FAINT),
            Text(str(group.way or "not known yet"), _FAINT),
        )
    return table


# --- partitions and samples -------------------------------------------------------------------------------------------


def _partitions(partitions: Sequence[PartitionPlan]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style=_FAINT, pad_edge=False)
    table.add_column("partition", overflow="fold")
    ends = any(p.end is not None for p in partitions)
    columns = ("log start", "committed", "target", *(("end",) if ends else ()), "log end", "read again", "skipped")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("first and last record that moves")
    for p in partitions[:MAX_ROWS]:
        table.add_row(
            Text(visible(str(p.topic_partition))),
            f"{p.earliest:,}",
            "none" if p.committed is None else f"{p.committed:,}",
            Text(f"{p.target:,}" + ("" if p.clamped is None else "!"), _WARN if p.clamped is not None else "bold"),
            *(("" if p.end is None else f"{p.end:,}",) if ends else ()),
            f"{p.latest:,}",
            Text(f"{p.replayed:,}", _AGAIN if p.replayed else _FAINT),
            Text(f"{p.skipped:,}", _SKIPPED if p.skipped else _FAINT),
            Text(_span(p), _FAINT),
        )
    return table


def _span(p: PartitionPlan) -> str:
    return (
        " to ".join("?" if at is None else time_text(at) for at in (p.span_from, p.span_to))
        if (p.span_from is not None or p.span_to is not None)
        else ""
    )


def _samples(review: Review) -> Iterator[RenderableType]:
    yield Text("Records next to the targets")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style=_FAINT, pad_edge=False)
    for name in ("partition", "offset", "", "time", "key", "value"):
        table.add_column(name, overflow="fold", justify="right" if name == "offset" else "left")
    for sample in review.samples:
        side = Text("▶ from target" if sample.from_target else "  before it", "bold" if sample.from_target else _FAINT)
        table.add_row(
            Text(visible(str(sample.topic_partition))),
            f"{sample.offset:,}",
            side,
            "" if sample.at is None else time_text(sample.at),
            _content(sample.key, "no key"),
            _content(sample.value, "no value (tombstone)"),
        )
    yield table
    if any(part is not None and part.text is None for s in review.samples for part in (s.key, s.value)):
        yield Text(
            "Contents are hidden: sizes and salted digests are shown instead, which are equal for equal "
            "contents. spec.evidence.showValues shows the contents",
            _FAINT,
        )


def _content(content: Content | None, nothing: str) -> Text:
    if content is None:
        return Text(nothing, _FAINT)
    if content.text is None:
        return Text(f"{content.bytes:,} B #{visible(content.digest)}", _FAINT)
    return _line((visible(content.text), ""), ("… " if content.cut else " ", ""), (f"{content.bytes:,} B", _FAINT))
