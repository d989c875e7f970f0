"""What the pages of plans and of an audit have: the document, its style sheet, names and messages made safe to show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from tidegate.cli.fleet_review import FleetReview
from tidegate.cli.review import Review

STYLE: Final = """
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
.key-again{background:var(--again)}.key-skip{background:var(--skip)}
@media print{body{max-width:none;padding:0}.scroll{overflow:visible}}
"""

BAR: Final = 170
"""How wide a bar in a table is, in pixels."""


def document(title: str, body: Iterable[str], style: str = "") -> str:
    """The whole document. ``style``: what is added to the style sheet."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            # Nothing of this page may load or run anything, whatever a record contains.
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            '<meta name="referrer" content="no-referrer"><meta name="robots" content="noindex">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}{style}</style></head><body>",
            *body,
            "</body></html>",
            "",
        ]
    )


def foreign(text: str) -> str:
    """A name or a message of others, escaped, whose writing direction ends with it."""
    return f'<bdi class="foreign">{escape(text)}</bdi>'


def outcome(review: Review | FleetReview) -> Iterator[str]:
    if review.outcome is not None:
        yield f"<section><h2>How it ended</h2><p>{foreign(review.outcome)}</p></section>"


def approval(review: Review | FleetReview) -> Iterator[str]:
    """Last: what it is about comes before."""
    if review.approval is not None:
        whole = "all partitions or none" if isinstance(review, Review) else "in each group all partitions or none"
        yield (
            "<section><h2>How to approve it</h2><p>Nothing has been changed. This command lets the plan "
            "be applied exactly as it is shown here, "
            f"{whole}:</p><pre>{escape(review.approval)}</pre></section>"
        )
