"""An audit's report for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tidegate.cli.audit_words import NEVER_SEEN, brokers_allow, possible_text, summary, where
from tidegate.cli.plan_screen import WIDTH
from tidegate.inspection.findings import ABOUT, Finding, FindingKind, Severity
from tidegate.inspection.report import Report, Unseen
from tidegate.printable import visible

MOST_GROUPS: Final = 8
"""Findings of one kind that are shown one by one; the page and the JSON have them all."""
_MOST_PARTITIONS: Final = 3
_MOST_NAMES: Final = 4

_STYLES: Final = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: "blue"}
_FAINT: Final = "dim"


def show(report: Report, out: TextIO) -> None:
    """Write it. Colours only where ``out`` is a terminal that has them (and ``NO_COLOR`` is not set)."""
    width = None if out.isatty() else WIDTH
    console = Console(file=out, width=width, highlight=False, markup=False, emoji=False)
    console.print(Group(*_parts(report)))


def _parts(report: Report) -> Iterator[RenderableType]:
    yield Text(visible(f"Kafka cluster {report.cluster_id}, {where(report)}"), "bold")
    yield Text(visible(summary(report)), _FAINT)
    if allowed := brokers_allow(report):
        yield Text(visible(allowed), _FAINT)
    yield _counts(report)
    for kind, findings in report.by_kind.items():
        yield Text()
        yield from _kind(kind, findings)
    yield Text()
    yield from _resets(report)
    yield Text()
    yield from _unseen(report.unseen)


def _counts(report: Report) -> Text:
    counts = report.counts
    if not report.findings:
        return Text("Nothing was found in what could be seen.")
    parts = [(f"{count:,} {severity}", _STYLES[severity] if count else _FAINT) for severity, count in counts.items()]
    return Text("   ").join(Text(text, style) for text, style in parts)


def _kind(kind: FindingKind, findings: Sequence[Finding]) -> Iterator[RenderableType]:
    about, worst = ABOUT[kind], findings[0].severity
    yield Text.assemble((f"{worst.upper()}  ", _STYLES[worst]), (f"{about.title} ({len(findings):,})", "bold"))
    yield _indented(Text(f"{about.meaning}."))
    known = ""
    for finding in findings[:MOST_GROUPS]:
        # How it is known is mostly the same for all groups.
        yield from _finding(finding, with_known=finding.known != known)
        known = finding.known
    if len(findings) > MOST_GROUPS:
        yield _indented(
            Text(f"and {len(findings) - MOST_GROUPS:,} more: --html FILE and --output json show them", _FAINT)
        )
    helps = f" Tidegate: {about.resource}." if about.resource else ""
    yield _indented(Text.assemble(("→ ", "green"), f"{about.remedy}.{helps}", (f" For {about.audience}.", _FAINT)))
    if about.guide:
        yield _indented(Text(f"  docs/{about.guide}", _FAINT))


def _finding(finding: Finding, *, with_known: bool) -> Iterator[RenderableType]:
    style = _STYLES[finding.severity]
    name = "" if finding.group is None else f"{visible(finding.group)}  "
    yield _indented(Text.assemble(("● ", style), (name, "bold"), visible(finding.what)))
    for partition in finding.partitions[:_MOST_PARTITIONS]:
        offsets = [
            f"{word} {offset:,}"
            for word, offset in (
                ("committed", partition.committed),
                ("log", partition.log_start),
                ("to", partition.log_end),
            )
            if offset is not None
        ]
        grown = f", {partition.grown:,} arrived" if partition.grown else ""
        where = visible(f"{partition.topic}-{partition.partition}")
        yield _indented(Text(f"{where}: {' '.join(offsets)}{grown}"), 6)
    left = finding.partition_count - len(finding.partitions[:_MOST_PARTITIONS])
    if finding.partitions and left:
        yield _indented(Text(f"and {left:,} more partitions", _FAINT), 6)
    if with_known:
        yield _indented(Text(f"How it is known: {visible(finding.known)}.", _FAINT), 6)


def _indented(what: RenderableType, by: int = 4) -> Padding:
    return Padding(what, (0, 0, 0, by))


def _resets(report: Report) -> Iterator[RenderableType]:
    if not report.verdicts:
        return
    yield Text("How these groups would be reset (if none of their members ran the agent)", "bold")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style=_FAINT, pad_edge=False)
    table.add_column("reset", no_wrap=True)
    table.add_column("strategy", no_wrap=True)
    table.add_column("groups", justify="right", no_wrap=True)
    table.add_column("such as", overflow="fold")
    for (possible, way), verdicts in report.ways.items():
        names = ", ".join(visible(verdict.group) for verdict in verdicts[:_MOST_NAMES])
        more = " …" if len(verdicts) > _MOST_NAMES else ""
        table.add_row(possible_text(possible), str(way or "-"), f"{len(verdicts):,}", Text(f"{names}{more}"))
    yield Padding(table, (0, 0, 0, 4))


def _unseen(unseen: Sequence[Unseen]) -> Iterator[RenderableType]:
    yield Text("What was not seen", "bold")
    for left in unseen:
        right = f" Needs {visible(left.right)}." if left.right else ""
        yield _indented(Text.assemble((f"● {visible(left.what)}: ", ""), (f"{visible(left.why)}.{right}", _FAINT)))
    for sentence in NEVER_SEEN:
        yield _indented(Text(f"● {sentence}", _FAINT))
