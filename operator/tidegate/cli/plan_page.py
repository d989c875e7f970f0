"""A review of a plan as one self-contained HTML page. Pure.

No script, no font, no image from elsewhere, and a Content-Security-Policy that would refuse them: record contents and
names are hostile input, and are escaped besides. Each plot has a title and a description for screen readers, and its
numbers as a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from html import escape

from tidegate.cli.fleet_review import FleetReview
from tidegate.cli.plan_page_fleet import fleet_body
from tidegate.cli.plan_page_histogram import histogram
from tidegate.cli.plan_page_parts import approval, document, foreign, outcome
from tidegate.cli.plan_page_tables import partitions, samples, topics_table
from tidegate.cli.review import Review, Total, ago_text, keys_text, records_text, size_text, time_text


def page(review: Review | FleetReview) -> str:
    """The whole document."""
    whose = review.group if isinstance(review, Review) else review.groups
    title = f"Reset {review.run_id} of {whose}"
    return document(title, body(review))


def body(review: Review | FleetReview) -> Iterator[str]:
    """What is between the tags of its body."""
    return _body(review) if isinstance(review, Review) else fleet_body(review)


def _body(review: Review) -> Iterator[str]:
    yield "<header>"
    yield (
        f"<h1>Reset {foreign(review.run_id)} of group {foreign(review.group)} "
        f'<span class="badge">{escape(str(review.phase))}</span></h1>'
    )
    yield f"<p>To {foreign(review.target)}.</p>"
    yield (
        f'<p class="soft">OffsetReset {foreign(review.reset)}, planned {escape(time_text(review.made_at))} '
        f"({escape(ago_text(review.age))} when this page was written), strategy {escape(review.way)}.</p>"
        "</header><main>"
    )
    yield from _cards(review)
    yield from _notes(review)
    yield from outcome(review)
    yield "<section><h2>Topics</h2>"
    yield from topics_table(review.topics)
    for number, topic in enumerate(review.topics):
        if topic.evidence.histogram is not None:
            yield from histogram(topic, topic.evidence.histogram, f"h{number}", review.at)
    yield "</section>"
    yield from partitions(review.partitions)
    yield from samples(review)
    yield from _reading()
    yield from approval(review)
    yield "</main>"


def _cards(review: Review) -> Iterator[str]:
    yield '<div class="cards">'
    yield _card("read again", "again", review.replayed)
    yield _card("skipped", "skip", review.skipped)
    stay = len(review.partitions) - review.moved
    clamped = f", {review.clamped:,} clamped to an end of the log" if review.clamped else ""
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
        yield from (f"<li>{foreign(note)}</li>" for note in review.notes)
        yield "</ul>"
    yield from (f'<p class="soft">{foreign(note)}.</p>' for note in review.evidence_notes)


def _reading() -> Iterator[str]:
    yield (
        '<section><h2>How to read this page</h2><ul class="soft">'
        "<li>Records are counted as offsets: compacted records and transaction markers are counted with them. If the "
        "records were read, their number is next to that count.</li>"
        "<li>Bytes are the sizes of keys and values as consumers get them: uncompressed, and without headers.</li>"
        "<li>Different keys are counted with HyperLogLog, to within 2 %; if only some records were read, there may be "
        "more.</li>"
        "<li>Counts by the brokers’ time index are exact if timestamps only grow along a partition.</li>"
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
