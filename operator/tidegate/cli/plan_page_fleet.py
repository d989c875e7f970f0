"""The page of a fleet's plan: its groups, and those without a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tidegate.cli.fleet_review import FleetReview
from tidegate.cli.plan_page_parts import BAR, approval, foreign, outcome
from tidegate.cli.review import ago_text, time_text
from tidegate.reset.model.fleet import GroupPlan


def fleet_body(review: FleetReview) -> Iterator[str]:
    yield "<header>"
    yield (
        f"<h1>Reset {foreign(review.run_id)} of groups {foreign(review.groups)} "
        f'<span class="badge">{escape(str(review.phase))}</span></h1>'
    )
    yield f"<p>To {foreign(review.target)}.</p>"
    yield (
        f'<p class="soft">OffsetReset {foreign(review.reset)}, planned {escape(time_text(review.made_at))} '
        f"({escape(ago_text(review.age))} when this page was written).</p></header><main>"
    )
    yield '<div class="cards">'
    without = f"{len(review.refused):,} more without a plan" if review.refused else "each has a plan"
    clamped = f", {review.clamped:,} clamped to an end of the log" if review.clamped else ""
    for name, style, count, of in (
        ("Records read again", "again", review.replayed, "by the plan’s offsets"),
        ("Records skipped", "skip", review.skipped, "by the plan’s offsets"),
        ("Groups", "", len(review.planned), without),
        ("Partitions that move", "", review.moved, f"of {review.partitions:,}{clamped}"),
    ):
        yield f'<div class="card">{name}<b class="{style}">{count:,}</b><span class="of soft">{of}</span></div>'
    yield "</div>"
    yield f'<p class="soft">{review.on_failure}.</p>'
    if review.rollout is not None:
        yield f'<p class="soft">{review.rollout}.</p>'
    if review.notes:
        yield '<ul class="notes" aria-label="Notes on the plan">'
        yield from (f"<li>{foreign(note)}</li>" for note in review.notes)
        yield "</ul>"
    yield from outcome(review)
    yield from _groups(review.planned, review.waves)
    yield from _without_a_plan(review.refused)
    yield from approval(review)
    yield "</main>"


def _groups(groups: Sequence[GroupPlan], waves: Sequence[int]) -> Iterator[str]:
    yield '<section><h2>Groups</h2><div class="scroll"><table><thead><tr><th scope="col">group</th>'
    for name in (*(("wave",) if waves else ()), "partitions", "move", "to an end of the log", "read again", "skipped"):
        yield f'<th class="n" scope="col">{name}</th>'
    yield '<th scope="col">share of what moves</th><th scope="col">strategy</th></tr></thead><tbody>'
    most = max((g.records_replayed + g.records_skipped for g in groups), default=0)
    for n, g in enumerate(groups):
        counts = (*waves[n : n + 1], g.partitions, g.moved, g.clamped)
        yield (
            f'<tr><td class="name">{foreign(g.group_id)}</td>'
            + "".join(f'<td class="n">{count:,}</td>' for count in counts)
            + f'<td class="n {"again" if g.records_replayed else "soft"}">{g.records_replayed:,}</td>'
            f'<td class="n {"skip" if g.records_skipped else "soft"}">{g.records_skipped:,}</td>'
            f'<td>{_share(g, most)}</td><td class="soft">{escape(str(g.way or "not known yet"))}</td></tr>'
        )
    yield "</tbody></table></div></section>"


def _share(group: GroupPlan, most: int) -> str:
    """Read again, then skipped, as one bar; the longest is that of the group that moves most."""
    again, skipped = (BAR * count / max(most, 1) for count in (group.records_replayed, group.records_skipped))
    text = escape(f"{group.group_id}: {group.records_replayed:,} read again, {group.records_skipped:,} skipped")
    return (
        f'<svg viewBox="0 0 {BAR} 12" width="{BAR}" height="12" role="img" aria-label="{text}"><title>{text}</title>'
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
            f'<tr><td class="name">{foreign(g.group_id)}</td><td class="nowrap">{escape(g.refused)}</td>'
            f"<td>{foreign(g.message)}</td></tr>"
        )
    yield "</tbody></table></div></section>"
