"""The tables of a plan's page: topics, partitions, and records next to the targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from tidegate.cli.plan_page_parts import BAR, foreign
from tidegate.cli.review import Review, Topic, keys_text, position_text, reading_text, size_text, time_text
from tidegate.printable import visible
from tidegate.reset.evidence import Amount, Content
from tidegate.reset.model.plan import PartitionPlan

MAX_ROWS: Final = 2_000
"""Partitions shown one by one."""


def topics_table(topics: Sequence[Topic]) -> Iterator[str]:
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
        head = f'<td class="name">{foreign(topic.name)}</td><td class="n">{topic.partitions:,}</td>'
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


def partitions(partitions: Sequence[PartitionPlan]) -> Iterator[str]:
    yield "<section><h2>Partitions</h2>"
    yield (
        '<p class="soft">Each bar is the log of one partition, from its first record to its end. ○ is '
        "where the group is, ▼ where it goes; between them is what is read again or skipped.</p>"
    )
    yield '<div class="scroll"><table><thead><tr><th scope="col">partition</th><th scope="col">in its log</th>'
    for name in ("log start", "committed", "target", "log end", "read again", "skipped"):
        yield f'<th class="n" scope="col">{name}</th>'
    yield '<th scope="col">first and last record</th></tr></thead><tbody>'
    yield from map(_partition, partitions[:MAX_ROWS])
    yield "</tbody></table></div>"
    if len(partitions) > MAX_ROWS:
        yield f'<p class="soft">and {len(partitions) - MAX_ROWS:,} more partitions, which move less.</p>'
    yield "</section>"


def _partition(p: PartitionPlan) -> str:
    committed = "none" if p.committed is None else f"{p.committed:,}"
    clamped = "" if p.clamped is None else f'<small class="skip">clamped to {p.clamped.lower()}</small>'
    ends = "" if p.end is None else f"<small>up to {p.end:,}</small>"
    return (
        f'<tr><td class="name">{foreign(visible(str(p.topic_partition)))}</td><td>{_position(p)}</td>'
        f'<td class="n">{p.earliest:,}</td><td class="n">{committed}</td>'
        f'<td class="n"><b>{p.target:,}</b>{clamped}{ends}</td><td class="n">{p.latest:,}</td>'
        f'<td class="n {"again" if p.replayed else "soft"}">{p.replayed:,}</td>'
        f'<td class="n {"skip" if p.skipped else "soft"}">{p.skipped:,}</td>'
        f'<td class="soft nowrap">{_times_of(p)}</td></tr>'
    )


def _times_of(p: PartitionPlan) -> str:
    if p.span_from is None and p.span_to is None:
        return ""
    return "<br>".join("?" if at is None else time_text(at) for at in (p.span_from, p.span_to))


def _position(p: PartitionPlan) -> str:
    # A committed offset may lie outside the log: the drawing covers both.
    known = [p.earliest, p.latest, p.target, *([] if p.committed is None else [p.committed])]
    least, most = min(known), max(known)

    def x(offset: int) -> float:
        return 8 + (BAR - 16) * ((offset - least) / (most - least) if most > least else 0.5)

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
        f'<svg viewBox="0 0 {BAR} 24" width="{BAR}" height="24" role="img" aria-label="{text}"><title>{text}</title>'
        + "".join(parts)
        + "</svg>"
    )


def samples(review: Review) -> Iterator[str]:
    if not review.samples:
        return
    yield "<section><h2>Records next to the targets</h2>"
    hidden = any(c is not None and c.text is None for s in review.samples for c in (s.key, s.value))
    if hidden:
        yield (
            '<p class="soft">Contents are hidden: sizes and salted digests are shown instead, which are '
            "equal for equal contents within this plan, and tell nothing else. "
            "<code>spec.evidence.showValues: true</code> shows the contents.</p>"
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
        side = "<b>from target</b>" if s.from_target else '<span class="soft">before it</span>'
        yield (
            f'<tr{" class=first" if first else ""}><td class="name">{foreign(visible(name))}</td>'
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
    return f'<code>{foreign(visible(content.text))}{cut}</code> <span class="soft">{content.bytes:,} B</span>'
