"""A topic's histogram on a plan's page, as a drawing and as a table: what is read again or skipped, by time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Final

from tidegate.cli.plan_page_parts import foreign
from tidegate.cli.review import Topic, peak, time_text, width_text
from tidegate.reset.evidence import Histogram, HistogramSource

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


def histogram(topic: Topic, histogram: Histogram, mark: str, at: datetime | None) -> Iterator[str]:
    """Read again above the axis, skipped below it."""
    if not peak(histogram):
        return
    plot = _Plot.of(histogram)
    counted = "offsets, by the brokers’ time index" if histogram.source is HistogramSource.INDEX else "records read"
    yield f"<h3>{foreign(topic.name)}</h3>"
    yield '<p class="legend soft">'
    if plot.up:
        yield '<span><i class="key key-again"></i>read again</span>'
    if plot.down:
        below = " (below the line)" if plot.up else ""
        yield f'<span><i class="key key-skip"></i>skipped{below}</span>'
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
