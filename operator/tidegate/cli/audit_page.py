"""An audit's report as one self-contained HTML page. Pure.

As the page of a plan: no script, nothing from elsewhere, and a Content-Security-Policy that would refuse it. Names of
groups, topics, clients and hosts are hostile input, and every text that may hold one is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from tidegate.cli.audit_words import NEVER_SEEN, changed, possible_text, summary, where
from tidegate.cli.plan_page_parts import document, foreign
from tidegate.inspection.findings import ABOUT, Finding, FindingKind, PartitionFinding, Severity
from tidegate.inspection.report import Report
from tidegate.inspection.resetting import Verdict
from tidegate.printable import visible

MOST_FINDINGS: Final = 500
"""Of one kind on the page; the JSON has them all."""
MOST_VERDICTS: Final = 2_000
"""Of groups that are listed with their strategy."""

_STYLE: Final = """
:root{--critical:#b3261e;--warning:#8a5a00;--info:#0b5cad}
@media(prefers-color-scheme:dark){:root{--critical:#ff8a80;--warning:#e3b341;--info:#6cb0ff}}
.critical{color:var(--critical)}.warning{color:var(--warning)}.info{color:var(--info)}
section.kind{border-left:4px solid var(--line);padding-left:1rem;margin-top:2rem}
section.kind.is-critical{border-color:var(--critical)}section.kind.is-warning{border-color:var(--warning)}
section.kind.is-info{border-color:var(--info)}section.kind h2{margin-top:0}
p.remedy{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.5rem .75rem}
td.sev{white-space:nowrap;font-weight:600}td.who{min-width:9rem}td.owner{min-width:13rem}
td details{margin:.25rem 0 0}td table{margin-top:.25rem}
td.who{width:18%}
td small{font-size:.9em}
@media print{body{font-size:12px}table{font-size:12px}td.owner{min-width:9rem}td.who{min-width:6rem}
td table tr,p.remedy,.card{break-inside:avoid}
h2{break-after:avoid}details::details-content{content-visibility:visible;block-size:auto}}
"""


def page(report: Report) -> str:
    """The whole document."""
    return document(f"Audit of Kafka cluster {visible(report.cluster_id)}", _body(report), _STYLE)


def _body(report: Report) -> Iterator[str]:
    yield f"<header><h1>Audit of Kafka cluster {foreign(visible(report.cluster_id))}</h1>"
    yield f'<p class="soft">{escape(visible(f"{where(report)}: {summary(report)}"))}. {changed(report)}</p></header>'
    yield "<main>"
    yield '<div class="cards">'
    for severity, count in report.counts.items():
        style = severity.value if count else "soft"
        yield f'<div class="card">{severity.value.capitalize()}<b class="{style}">{count:,}</b></div>'
    yield f'<div class="card">Groups<b>{report.groups:,}</b></div></div>'
    if not report.findings:
        yield "<p>Nothing was found in what could be seen.</p>"
    for kind, findings in report.by_kind.items():
        yield from _kind(kind, findings)
    yield from _resets(report)
    yield from _capabilities(report)
    yield from _unseen(report)
    yield "</main>"


# --- findings ---------------------------------------------------------------------------------------------------------


def _kind(kind: FindingKind, findings: Sequence[Finding]) -> Iterator[str]:
    about, worst = ABOUT[kind], findings[0].severity
    yield (
        f'<section class="kind is-{worst.value}"><h2>{escape(about.title)} '
        f'<span class="badge {worst.value}">{len(findings):,}</span></h2>'
    )
    yield f"<p>{escape(about.meaning)}.</p>"
    helps = f" Tidegate: <b>{escape(about.resource)}</b>." if about.resource else ""
    guide = f' <span class="soft">docs/{escape(about.guide)}</span>' if about.guide else ""
    yield (
        f'<p class="remedy">{escape(about.remedy)}.{helps} <span class="soft">For {escape(about.audience)}.</span>'
        f"{guide}</p>"
    )
    yield '<div class="scroll"><table><thead><tr><th scope="col">severity</th><th scope="col">group</th>'
    yield '<th scope="col">what was seen, and how it is known</th></tr></thead><tbody>'
    for finding in findings[:MOST_FINDINGS]:
        yield from _finding(finding)
    yield "</tbody></table></div>"
    if len(findings) > MOST_FINDINGS:
        yield f'<p class="soft">and {len(findings) - MOST_FINDINGS:,} more: --output json has them all.</p>'
    yield "</section>"


def _finding(finding: Finding) -> Iterator[str]:
    group = '<span class="soft">brokers</span>' if finding.group is None else foreign(visible(finding.group))
    yield (
        f'<tr><td class="sev {finding.severity.value}">{finding.severity.value}</td><td class="name who">{group}</td>'
        f'<td>{foreign(visible(finding.what))}<small class="soft">{foreign(visible(finding.known))}.</small>'
    )
    if finding.partitions:
        yield from _partitions(finding)
    yield "</td></tr>"


def _partitions(finding: Finding) -> Iterator[str]:
    yield f"<details{' open' if finding.severity is Severity.CRITICAL else ''}><summary>partitions</summary><table><tr>"
    yield '<th scope="col">partition</th>'
    for name in ("log start", "committed", "log end", "lag", "came"):
        yield f'<th class="n" scope="col">{name}</th>'
    yield '<th scope="col">owner</th></tr>'
    yield from map(_partition, finding.partitions)
    yield "</table>"
    left = finding.partition_count - len(finding.partitions)
    if left:
        yield f'<p class="soft">and {left:,} more</p>'
    yield "</details>"


def _partition(partition: PartitionFinding) -> str:
    numbers = "".join(
        f'<td class="n">{"" if number is None else f"{number:,}"}</td>'
        for number in (
            partition.log_start,
            partition.committed,
            partition.log_end,
            partition.lag,
            partition.grown or None,
        )
    )
    owner = "" if partition.owner is None else foreign(visible(partition.owner))
    name = foreign(visible(f"{partition.topic}-{partition.partition}"))
    return f'<tr><td class="name">{name}</td>{numbers}<td class="soft owner">{owner}</td></tr>'


# --- resets, brokers, what is missing ---------------------------------------------------------------------------------


def _resets(report: Report) -> Iterator[str]:
    if not report.verdicts:
        return
    yield (
        '<section><h2>How the groups would be reset</h2><p class="soft">The strategy that a reset of all '
        "partitions would use now if no member ran the agent. With the agent it uses <b>Gated</b>, "
        "without a rebalance. docs/explanation/live-reset.md</p>"
    )
    yield '<div class="scroll"><table><thead><tr><th scope="col">reset</th><th scope="col">strategy</th>'
    yield '<th class="n" scope="col">groups</th><th scope="col">which, and why</th></tr></thead><tbody>'
    for (possible, way), verdicts in report.ways.items():
        yield (
            f'<tr><td class="nowrap">{escape(possible_text(possible))}</td><td>{escape(str(way or "–"))}</td>'
            f'<td class="n">{len(verdicts):,}</td><td>'
        )
        yield from _verdicts(verdicts)
        yield "</td></tr>"
    yield "</tbody></table></div></section>"


def _verdicts(verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield f"<details><summary>{foreign(visible(verdicts[0].group))}{' …' if len(verdicts) > 1 else ''}</summary><table>"
    for verdict in verdicts[:MOST_VERDICTS]:
        yield (
            f'<tr><td class="name">{foreign(visible(verdict.group))}</td>'
            f'<td class="soft">{foreign(visible(verdict.because))}</td></tr>'
        )
    yield "</table>"
    if len(verdicts) > MOST_VERDICTS:
        yield f'<p class="soft">and {len(verdicts) - MOST_VERDICTS:,} more: --output json has them all.</p>'
    yield "</details>"


def _capabilities(report: Report) -> Iterator[str]:
    if not report.capabilities:
        return
    yield '<section><h2>What the brokers allow</h2><div class="scroll"><table><thead><tr><th scope="col">groups</th>'
    yield '<th scope="col">offsets from outside the group</th><th scope="col">how it is known</th></tr></thead><tbody>'
    for kind, found in report.capabilities.items():
        yield (
            f"<tr><td>{escape(kind.value)}</td><td>{escape(found.support.value)}</td>"
            f'<td class="soft">{foreign(visible(f"{found.reason}: {found.message}"))}</td></tr>'
        )
    yield "</tbody></table></div></section>"


def _unseen(report: Report) -> Iterator[str]:
    yield "<section><h2>What was not seen</h2><ul>"
    for left in report.unseen:
        right = f" Needs <b>{foreign(visible(left.right))}</b>." if left.right else ""
        yield f'<li>{foreign(visible(left.what))}: <span class="soft">{foreign(visible(left.why))}.{right}</span></li>'
    for sentence in NEVER_SEEN:
        yield f'<li class="soft">{escape(sentence)}</li>'
    yield "</ul></section>"
