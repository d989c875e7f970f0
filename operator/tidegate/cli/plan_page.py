"""A review of a plan as one self-contained HTML page. Pure.

No script, no font, no image from elsewhere, and a Content-Security-Policy that would refuse them: record contents and
names are hostile input, and are escaped besides. Each plot has a title and a description for screen readers, and its
numbers as a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Final

from tidegate.cli.review import (
    FleetReview,
    Review,
    Topic,
    Total,
    ago_text,
    keys_text,
    peak,
    position_text,
    reading_text,
    records_text,
    size_text,
    time_text,
    width_text,
)
from tidegate.printable import visible
from tidegate.reset.evidence import Amount, Content, Histogram, HistogramSource
from tidegate.reset.model import GroupPlan, PartitionPlan

MAX_ROWS: Final = 2_000
"""Partitions shown one by one."""

_STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#d0d7de;--card:#f6f8fa;--again:#0b5cad;
--skip:#b04a00;--warn-bg:#fff8e1;--warn-line:#b58100;--track:#d8dee4}
@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--soft:#9aa4af;--line:#30363d;--card:#161b22;
--again:#6cb0ff;--skip:#ffa657;--warn-bg:#2b2208;--warn-line:#d29922;--track:#3a424c}}
*{box-sizing:border-box}
body{margin:0 auto;padding:2rem 1.25rem 4rem;max-width:78rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .25rem}h2{font-size:1.2rem;margin:2.25rem 0 .5rem}
h3{font-size:1rem;margin:1.5rem 0 .25rem}p{margin:.35rem 0}.soft{color:var(--soft)}
code,.mono,td.n,th.n{font-variant-numeric:tabular-nums}
code,pre,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.875em}
pre{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.75rem 1rem;overflow-x:auto;
white-space:pre-wrap;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(13rem,1fr));gap:.75rem;margin:1.25rem 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.75rem 1rem}
.card b{display:block;font-size:1.5rem;line-height:1.3;font-weight:650;font-variant-numeric:tabular-nums}
.card .of{font-size:.9rem}.again{color:var(--again)}.skip{color:var(--skip)}
.badge{display:inline-block;border:1px solid currentColor;border-radius:1rem;padding:0 .65rem;font-size:.85rem;
vertical-align:middle}
ul.notes{list-style:none;margin:1rem 0;padding:.6rem 1rem;background:var(--warn-bg);border-left:4px solid
var(--warn-line);border-radius:0 6px 6px 0}ul.notes li{margin:.25rem 0}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600;color:var(--soft);white-space:nowrap}td.n,th.n{text-align:right;white-space:nowrap}
td.name{min-width:7rem}td.content{min-width:12rem;max-width:26rem}td.nowrap{white-space:nowrap}
td small{display:block}tr.first td{border-top:2px solid var(--fg)}
svg{display:block}svg.plot{width:100%;height:auto}svg text{fill:var(--soft);font-size:12px;font-family:inherit}
.bar-again{fill:var(--again)}.bar-skip{fill:var(--skip)}.axis{stroke:var(--soft);stroke-width:1}
.tick{stroke:var(--line);stroke-width:1}.mark{stroke:var(--fg);stroke-width:1.5;stroke-dasharray:4 3}
.track{fill:var(--track)}.at{fill:none;stroke:var(--fg);stroke-width:1.6}.to{fill:var(--fg)}
svg text.strong{fill:var(--fg)}
details{margin:.4rem 0 1rem}summary{cursor:pointer;color:var(--soft)}
.foreign{unicode-bidi:isolate;overflow-wrap:break-word;word-break:break-word}td .foreign{overflow-wrap:anywhere}

.legend span{margin-right:1.25rem}.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.35em}
@media print{body{max-width:none;padding:0}.scroll{overflow:visible}}
"""


def page(review: Review | FleetReview) -> str:
    """The whole document."""
    whose = review.group if isinstance(review, Review) else review.groups
    title = f"Reset {review.run_id} of {whose}"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            # Nothing of this page may load or run anything, whatever a record contains.
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            '<meta name="referrer" content="no-referrer"><meta name="robots" content="noindex">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style></head><body>",
            *(_body(review) if isinstance(review, Review) else _fleet_body(review)),
            "</body></html>",
            "",
        ]
    )


def _body(review: Review) -> Iterator[str]:
    yield "<header>"
    yield (
        f"<h1>Reset {_foreign(review.run_id)} of group {_foreign(review.group)} "
        f'<span class="badge">{escape(str(review.phase))}</span></h1>'
    )
    yield f"<p>To {_foreign(review.target)}.</p>"
    yield (
        f'<p class="soft">Policy {_foreign(review.policy)}, planned {escape(time_text(review.made_at))} '
        f"({escape(ago_text(review.age))} when this page was written), way {escape(review.way)}.</p></header><main>"
    )
    yield from _cards(review)
    yield from _notes(review)
    yield from _outcome(review)
    yield "<section><h2>Topics</h2>"
    yield from _topics_table(review.topics)
    for number, topic in enumerate(review.topics):
        if topic.evidence.histogram is not None:
            yield from _histogram(topic, topic.evidence.histogram, f"h{number}", review.at)
    yield "</section>"
    yield from _partitions(review.partitions)
    yield from _samples(review)
    yield from _reading()
    yield from _approval(review)
    yield "</main>"


# --- at a glance ------------------------------------------------------------------------------------------------------


def _cards(review: Review) -> Iterator[str]:
    yield '<div class="cards">'
    yield _card("read again", "again", review.replayed)
    yield _card("skipped", "skip", review.skipped)
    stay = len(review.partitions) - review.moved
    clamped = f", {review.clamped:,} to an end of the log" if review.clamped else ""
    yield (
        f'<div class="card">Partitions that move<b>{review.moved:,}</b>'
        f'<span class="of soft">of {len(review.partitions):,}; {stay:,} stay{clamped}</span></div>'
    )
    if review.span is not None:
        first, last = review.span
        yield (
            f'<div class="card">Records from<b>{_span_text(last - first)}</b>'
            f'<span class="of soft">{time_text(first)} to<br>{time_text(last)}</span></div>'
        )
    yield "</div>"


def _card(name: str, style: str, total: Total | None) -> str:
    known = [] if total is None else [size_text(total), keys_text(total)]
    units = ["", " different keys"]
    of = ", ".join(f"{text}{unit}" for text, unit in zip(known, units, strict=False) if text is not None)
    return (
        f'<div class="card">Records {name}<b class="{style}">{records_text(total)}</b>'
        f'<span class="of soft">{escape(of) or ("none" if total is None else "by the plan’s offsets")}</span></div>'
    )


def _notes(review: Review) -> Iterator[str]:
    if review.notes:
        yield '<ul class="notes" aria-label="Notes on the plan">'
        yield from (f"<li>{_foreign(note)}</li>" for note in review.notes)
        yield "</ul>"
    yield from (f'<p class="soft">{_foreign(note)}.</p>' for note in review.evidence_notes)


def _outcome(review: Review | FleetReview) -> Iterator[str]:
    if review.outcome is not None:
        yield f"<section><h2>How it ended</h2><p>{_foreign(review.outcome)}</p></section>"


def _approval(review: Review | FleetReview) -> Iterator[str]:
    """Last: what it is about comes before."""
    if review.approval is not None:
        whole = "all partitions or none" if isinstance(review, Review) else "in each group all partitions or none"
        yield (
            "<section><h2>Approving it</h2><p>Nothing has been changed. This lets the plan be applied exactly as it is "
            f"here, {whole}:</p><pre>{escape(review.approval)}</pre></section>"
        )


# --- a fleet ----------------------------------------------------------------------------------------------------------


def _fleet_body(review: FleetReview) -> Iterator[str]:
    yield "<header>"
    yield (
        f"<h1>Reset {_foreign(review.run_id)} of groups {_foreign(review.groups)} "
        f'<span class="badge">{escape(str(review.phase))}</span></h1>'
    )
    yield f"<p>To {_foreign(review.target)}.</p>"
    yield (
        f'<p class="soft">Policy {_foreign(review.policy)}, planned {escape(time_text(review.made_at))} '
        f"({escape(ago_text(review.age))} when this page was written).</p></header><main>"
    )
    yield '<div class="cards">'
    without = f"{len(review.refused):,} more without a plan" if review.refused else "each has a plan"
    clamped = f", {review.clamped:,} to an end of the log" if review.clamped else ""
    for name, style, count, of in (
        ("Records read again", "again", review.replayed, "by the plan’s offsets"),
        ("Records skipped", "skip", review.skipped, "by the plan’s offsets"),
        ("Groups", "", len(review.planned), without),
        ("Partitions that move", "", review.moved, f"of {review.partitions:,}{clamped}"),
    ):
        yield f'<div class="card">{name}<b class="{style}">{count:,}</b><span class="of soft">{of}</span></div>'
    yield "</div>"
    yield f'<p class="soft">{review.on_failure}.</p>'
    if review.notes:
        yield '<ul class="notes" aria-label="Notes on the plan">'
        yield from (f"<li>{_foreign(note)}</li>" for note in review.notes)
        yield "</ul>"
    yield from _outcome(review)
    yield from _groups(review.planned)
    yield from _without_a_plan(review.refused)
    yield from _approval(review)
    yield "</main>"


def _groups(groups: Sequence[GroupPlan]) -> Iterator[str]:
    yield '<section><h2>Groups</h2><div class="scroll"><table><thead><tr><th scope="col">group</th>'
    for name in ("partitions", "move", "to an end of the log", "read again", "skipped"):
        yield f'<th class="n" scope="col">{name}</th>'
    yield '<th scope="col">share of what moves</th><th scope="col">way</th></tr></thead><tbody>'
    most = max((g.records_replayed + g.records_skipped for g in groups), default=0)
    for g in groups:
        counts = (g.partitions, g.moved, g.clamped)
        yield (
            f'<tr><td class="name">{_foreign(g.group_id)}</td>'
            + "".join(f'<td class="n">{count:,}</td>' for count in counts)
            + f'<td class="n {"again" if g.records_replayed else "soft"}">{g.records_replayed:,}</td>'
            f'<td class="n {"skip" if g.records_skipped else "soft"}">{g.records_skipped:,}</td>'
            f'<td>{_share(g, most)}</td><td class="soft">{escape(str(g.way or "not known yet"))}</td></tr>'
        )
    yield "</tbody></table></div></section>"


def _share(group: GroupPlan, most: int) -> str:
    """Read again, then skipped, as one bar; the longest is that of the group that moves most."""
    again, skipped = (_BAR * count / max(most, 1) for count in (group.records_replayed, group.records_skipped))
    text = escape(f"{group.group_id}: {group.records_replayed:,} read again, {group.records_skipped:,} skipped")
    return (
        f'<svg viewBox="0 0 {_BAR} 12" width="{_BAR}" height="12" role="img" aria-label="{text}"><title>{text}</title>'
        f'<rect class="bar-again" x="0" y="2" width="{again:.1f}" height="8"/>'
        f'<rect class="bar-skip" x="{again:.1f}" y="2" width="{skipped:.1f}" height="8"/></svg>'
    )


def _without_a_plan(groups: Sequence[GroupPlan]) -> Iterator[str]:
    if not groups:
        return
    yield '<section><h2>Without a plan</h2><div class="scroll"><table><thead><tr><th scope="col">group</th>'
    yield '<th scope="col">reason</th><th scope="col">what is wrong</th></tr></thead><tbody>'
    for g in groups:
        yield (
            f'<tr><td class="name">{_foreign(g.group_id)}</td><td class="nowrap">{escape(g.refused)}</td>'
            f"<td>{_foreign(g.message)}</td></tr>"
        )
    yield "</tbody></table></div></section>"


# --- topics -----------------------------------------------------------------------------------------------------------


def _topics_table(topics: Sequence[Topic]) -> Iterator[str]:
    yield '<div class="scroll"><table><thead><tr><th scope="col">topic</th><th class="n" scope="col">partitions</th>'
    yield '<th scope="col"></th><th class="n" scope="col">records</th><th class="n" scope="col">bytes</th>'
    yield '<th class="n" scope="col">different keys</th><th class="n" scope="col">without key</th>'
    yield '<th class="n" scope="col">tombstones</th><th scope="col">read for this</th></tr></thead><tbody>'
    for topic in topics:
        evidence = topic.evidence
        rows = [
            (name, style, amount)
            for name, style, amount in (
                ("read again", "again", evidence.replayed),
                ("skipped", "skip", evidence.skipped),
            )
            if amount is not None
        ]
        head = f'<td class="name">{_foreign(topic.name)}</td><td class="n">{topic.partitions:,}</td>'
        if not rows:
            yield f'<tr>{head}<td class="soft" colspan="7">stays where it is</td></tr>'
        for name, style, amount in rows:
            yield f'<tr>{head}<td class="nowrap {style}">{name}</td>{_amount_cells(amount)}</tr>'
            head = "<td></td><td></td>"
    yield "</tbody></table></div>"


def _amount_cells(amount: Amount) -> str:
    counts = [size_text(amount), keys_text(amount), _count(amount.without_key), _count(amount.tombstones)]
    read = reading_text(amount) or ("offsets only" if amount.records is None else "all of it")
    return (
        f'<td class="n">{amount.offsets:,}</td>'
        + "".join(f'<td class="n">{"–" if text is None else escape(text)}</td>' for text in counts)
        + f'<td class="soft">{escape(read)}</td>'
    )


def _count(count: int | None) -> str | None:
    return None if count is None else f"{count:,}"


# --- histograms -------------------------------------------------------------------------------------------------------

_WIDTH: Final = 960
_LEFT: Final = 64
_RIGHT: Final = 12
_HIGH: Final = 130
_LOW: Final = 80
_TOP: Final = 22
_AXIS: Final = 36


@dataclass(frozen=True, slots=True)
class _Plot:
    """Where the lines of one histogram are. One scale for both directions: a bar's length means the same in both."""

    histogram: Histogram
    up: int
    down: int

    @classmethod
    def of(cls, histogram: Histogram) -> _Plot:
        again, skipped = any(histogram.replayed), any(histogram.skipped)
        small = again and skipped
        more_again = max(histogram.replayed) >= max(histogram.skipped)
        return cls(
            histogram,
            up=(_LOW if small and not more_again else _HIGH) if again else 0,
            down=(_LOW if small and more_again else _HIGH) if skipped else 0,
        )

    @property
    def scale(self) -> float:
        """Units of the drawing for one record."""
        sides = ((self.up, self.histogram.replayed), (self.down, self.histogram.skipped))
        return min(room / max(counts) for room, counts in sides if any(counts))

    @property
    def zero(self) -> int:
        return _TOP + self.up

    @property
    def bottom(self) -> int:
        return self.zero + self.down

    @property
    def height(self) -> int:
        return self.bottom + _AXIS

    @property
    def bar(self) -> float:
        return (_WIDTH - _LEFT - _RIGHT) / len(self.histogram.replayed)

    def x(self, bucket: float) -> float:
        return _LEFT + bucket * self.bar


def _histogram(topic: Topic, histogram: Histogram, mark: str, at: datetime | None) -> Iterator[str]:
    """Read again above the axis, skipped below it."""
    if not peak(histogram):
        return
    plot = _Plot.of(histogram)
    counted = "offsets, by the brokers’ time index" if histogram.source is HistogramSource.INDEX else "records read"
    yield f"<h3>{_foreign(topic.name)}</h3>"
    yield '<p class="legend soft">'
    if plot.up:
        yield '<span><i class="key" style="background:var(--again)"></i>read again</span>'
    if plot.down:
        below = " (below the line)" if plot.up else ""
        yield f'<span><i class="key" style="background:var(--skip)"></i>skipped{below}</span>'
    yield f"<span>{escape(counted)}, {escape(width_text(histogram.width))} a bar, UTC</span></p>"
    yield (
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {plot.height}" role="img" '
        f'aria-labelledby="{mark}t {mark}d"><title id="{mark}t">{escape(topic.name)}: what moves, by time</title>'
        f'<desc id="{mark}d">{escape(_described(histogram))}</desc>'
    )
    yield from _counts_axis(plot)
    yield from _bars(plot)
    yield f'<line class="axis" x1="{_LEFT}" y1="{plot.zero}" x2="{_WIDTH - _RIGHT}" y2="{plot.zero}"/>'
    yield from _times_axis(plot)
    if at is not None and histogram.start <= at <= histogram.end:
        yield from _asked_for(plot, at)
    yield "</svg>"
    yield from _numbers(plot)


def _described(histogram: Histogram) -> str:
    sentences = [
        f"{time_text(histogram.start)} to {time_text(histogram.end)}, one bar for {width_text(histogram.width)}."
    ]
    for name, counts in (("Read again", histogram.replayed), ("Skipped", histogram.skipped)):
        if any(counts):
            most = counts.index(max(counts))
            when = time_text(histogram.start + most * histogram.width)
            sentences.append(f"{name}: {sum(counts):,}, most from {when} on ({counts[most]:,}).")
    return " ".join(sentences)


def _counts_axis(plot: _Plot) -> Iterator[str]:
    for value in _values(peak(plot.histogram)):
        for y, there in ((plot.zero - value * plot.scale, plot.up), (plot.zero + value * plot.scale, plot.down)):
            if there and _TOP - 1 <= y <= plot.bottom + 1:
                yield f'<line class="tick" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>'
                yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>'
    yield f'<text x="{_LEFT - 6}" y="{plot.zero + 4}" text-anchor="end">0</text>'


def _bars(plot: _Plot) -> Iterator[str]:
    histogram = plot.histogram
    wide = max(plot.bar - min(2.0, plot.bar * 0.2), 0.8)
    for n, (replayed, skipped) in enumerate(zip(histogram.replayed, histogram.skipped, strict=True)):
        starts = time_text(histogram.start + n * histogram.width)
        for count, style, name in ((replayed, "bar-again", "read again"), (skipped, "bar-skip", "skipped")):
            if not count:
                continue
            long = max(count * plot.scale, 1.0)
            y = plot.zero - long if style == "bar-again" else plot.zero
            yield (
                f'<rect class="{style}" x="{plot.x(n):.1f}" y="{y:.1f}" width="{wide:.1f}" height="{long:.1f}">'
                f"<title>{starts}: {count:,} {name}</title></rect>"
            )


def _asked_for(plot: _Plot, at: datetime) -> Iterator[str]:
    x = plot.x((at - plot.histogram.start) / plot.histogram.width)
    anchor, away = ("end", -5) if x > _WIDTH * 0.7 else ("start", 5)
    yield f'<line class="mark" x1="{x:.1f}" y1="{_TOP - 14}" x2="{x:.1f}" y2="{plot.bottom + 2}"/>'
    yield f'<text class="strong" x="{x + away:.1f}" y="{_TOP - 6}" text-anchor="{anchor}">asked for</text>'


def _values(top: int) -> list[int]:
    """Two to four round numbers up to ``top``."""
    step = 1
    while top // step > 4:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return [n * step for n in range(1, top // step + 1)]


def _short(value: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return str(value)


def _times_axis(plot: _Plot) -> Iterator[str]:
    """A label at the start of every so many bars; the date where it is new."""
    histogram = plot.histogram
    cut = len("HH:MM") if histogram.width >= timedelta(minutes=1) else len("HH:MM:SS.mmm")
    day = None
    for n in range(0, len(histogram.replayed), max(1, -(-len(histogram.replayed) // 8))):
        starts, x = (histogram.start + n * histogram.width).astimezone(UTC), plot.x(n)
        yield f'<line class="axis" x1="{x:.1f}" y1="{plot.bottom}" x2="{x:.1f}" y2="{plot.bottom + 5}"/>'
        if histogram.width < timedelta(days=1):
            clock = starts.time().isoformat(timespec="milliseconds")[:cut]
            yield f'<text x="{x:.1f}" y="{plot.bottom + 18}">{clock}</text>'
        if starts.date() != day:
            day = starts.date()
            yield f'<text class="strong" x="{x:.1f}" y="{plot.bottom + 32}">{day.isoformat()}</text>'


def _numbers(plot: _Plot) -> Iterator[str]:
    histogram = plot.histogram
    sides = (("read again", histogram.replayed, plot.up), ("skipped", histogram.skipped, plot.down))
    columns = [(name, counts) for name, counts, there in sides if there]
    yield '<details><summary>The same as a table</summary><div class="scroll"><table><thead>'
    heads = "".join(f'<th class="n" scope="col">{name}</th>' for name, _ in columns)
    yield f'<tr><th scope="col">from</th>{heads}</tr></thead><tbody>'
    for n in range(len(histogram.replayed)):
        cells = "".join(f'<td class="n">{counts[n]:,}</td>' for _, counts in columns)
        yield f"<tr><td>{time_text(histogram.start + n * histogram.width)}</td>{cells}</tr>"
    yield "</tbody></table></div></details>"


# --- partitions -------------------------------------------------------------------------------------------------------


def _partitions(partitions: Sequence[PartitionPlan]) -> Iterator[str]:
    yield "<section><h2>Partitions</h2>"
    yield (
        '<p class="soft">Each bar is the partition’s log, from its first record to its end: ○ where the group is, '
        "▼ where it goes, and between them what is read again or skipped.</p>"
    )
    yield '<div class="scroll"><table><thead><tr><th scope="col">partition</th><th scope="col">in its log</th>'
    for name in ("log start", "committed", "target", "log end", "read again", "skipped"):
        yield f'<th class="n" scope="col">{name}</th>'
    yield '<th scope="col">first and last record</th></tr></thead><tbody>'
    yield from map(_partition, partitions[:MAX_ROWS])
    yield "</tbody></table></div>"
    if len(partitions) > MAX_ROWS:
        yield f'<p class="soft">and {len(partitions) - MAX_ROWS:,} partitions more, which move less.</p>'
    yield "</section>"


def _partition(p: PartitionPlan) -> str:
    committed = "none" if p.committed is None else f"{p.committed:,}"
    clamped = "" if p.clamped is None else f'<small class="skip">clamped to {p.clamped.lower()}</small>'
    return (
        f'<tr><td class="name">{_foreign(visible(str(p.topic_partition)))}</td><td>{_position(p)}</td>'
        f'<td class="n">{p.earliest:,}</td><td class="n">{committed}</td>'
        f'<td class="n"><b>{p.target:,}</b>{clamped}</td><td class="n">{p.latest:,}</td>'
        f'<td class="n {"again" if p.replayed else "soft"}">{p.replayed:,}</td>'
        f'<td class="n {"skip" if p.skipped else "soft"}">{p.skipped:,}</td>'
        f'<td class="soft nowrap">{_times_of(p)}</td></tr>'
    )


def _times_of(p: PartitionPlan) -> str:
    if p.span_from is None and p.span_to is None:
        return ""
    return "<br>".join("?" if at is None else time_text(at) for at in (p.span_from, p.span_to))


_BAR: Final = 170


def _position(p: PartitionPlan) -> str:
    # A committed offset may lie outside the log: the drawing covers both.
    known = [p.earliest, p.latest, p.target, *([] if p.committed is None else [p.committed])]
    least, most = min(known), max(known)

    def x(offset: int) -> float:
        return 8 + (_BAR - 16) * ((offset - least) / (most - least) if most > least else 0.5)

    start, end = x(p.earliest), x(p.latest)
    parts = [f'<rect class="track" x="{start:.1f}" y="12" width="{max(end - start, 1):.1f}" height="6" rx="2"/>']
    if p.committed is not None and p.moves:
        left, right = sorted((x(p.committed), x(p.target)))
        style = "bar-again" if p.replayed else "bar-skip"
        parts.append(f'<rect class="{style}" x="{left:.1f}" y="12" width="{max(right - left, 2):.1f}" height="6"/>')
    if p.committed is not None:
        parts.append(f'<circle class="at" cx="{x(p.committed):.1f}" cy="15" r="4.5"/>')
    to = x(p.target)
    parts.append(f'<path class="to" d="M{to - 5:.1f} 1h10l-5 9z"/>')
    text = escape(f"{visible(str(p.topic_partition))} {position_text(p)}")
    return (
        f'<svg viewBox="0 0 {_BAR} 24" width="{_BAR}" height="24" role="img" aria-label="{text}"><title>{text}</title>'
        + "".join(parts)
        + "</svg>"
    )


# --- samples ----------------------------------------------------------------------------------------------------------


def _samples(review: Review) -> Iterator[str]:
    if not review.samples:
        return
    yield "<section><h2>Records next to the targets</h2>"
    hidden = any(c is not None and c.text is None for s in review.samples for c in (s.key, s.value))
    if hidden:
        yield (
            '<p class="soft">Contents are hidden: there are sizes, and digests that are alike for like contents within '
            "this plan and tell nothing else (they are salted). "
            "<code>spec.reset.evidence.showValues: true</code> shows them.</p>"
        )
    yield '<div class="scroll"><table><thead><tr><th scope="col">partition</th><th class="n" scope="col">offset</th>'
    yield '<th scope="col">side</th><th scope="col">time</th><th scope="col">key</th><th scope="col">value</th></tr>'
    yield "</thead><tbody>"
    before = None
    for s in review.samples:
        name = str(s.topic_partition)
        # A line where the target is, between what is before it and what is read from it on.
        first = s.from_target and before == (name, False)
        before = (name, s.from_target)
        side = "<b>target on</b>" if s.from_target else '<span class="soft">before it</span>'
        yield (
            f'<tr{" class=first" if first else ""}><td class="name">{_foreign(visible(name))}</td>'
            f'<td class="n">{s.offset:,}</td><td class="nowrap">{side}</td>'
            f'<td class="nowrap">{"" if s.at is None else time_text(s.at)}</td>'
            f'<td class="content">{_content(s.key, "no key")}</td>'
            f'<td class="content">{_content(s.value, "no value (tombstone)")}</td></tr>'
        )
    yield "</tbody></table></div></section>"


def _content(content: Content | None, nothing: str) -> str:
    if content is None:
        return f'<span class="soft">{nothing}</span>'
    if content.text is None:
        return f'<span class="soft mono">{content.bytes:,} B #{escape(visible(content.digest))}</span>'
    cut = "…" if content.cut else ""
    return f'<code>{_foreign(visible(content.text))}{cut}</code> <span class="soft">{content.bytes:,} B</span>'


def _reading() -> Iterator[str]:
    yield (
        '<section><h2>How to read it</h2><ul class="soft">'
        "<li>Records are counted as offsets: compacted records and transaction markers are counted with them. Where "
        "records were read, their number is beside it.</li>"
        "<li>Bytes are those of keys and values as consumers get them, before compression and without headers.</li>"
        "<li>Different keys are counted by HyperLogLog, to within 2 %; where only some records were read, there may be "
        "more.</li>"
        "<li>Counts by the brokers’ time index are exact where timestamps only grow along a partition.</li>"
        "<li>What the group reads between planning and applying changes what is read again, never a target.</li>"
        "</ul></section>"
    )


def _span_text(length: timedelta) -> str:
    seconds = int(length.total_seconds())
    for size, unit, less, part in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = seconds % size // less
            return f"{seconds // size} {unit} {rest} {part}" if rest else f"{seconds // size} {unit}"
    return f"{seconds} s"


def _foreign(text: str) -> str:
    return f'<bdi class="foreign">{escape(text)}</bdi>'
