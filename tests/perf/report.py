"""How a benchmark reports: a table for people, ``build/bench/<name>.json`` for everything else.

``{"name", "unit", "lower_is_better", "rows": [{"case", "ours", "anchor", "ratio", "runs", "spread"}]}``; ``ours`` and
``anchor`` are medians, a ``ratio`` above 1 means that ours is better. ``spread``: of ours and of the anchor's, half the
distance between the quartiles in percent of the median; a ratio that is closer to 1 than that may be chance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Row:
    """One case, measured ``runs`` times each way in turns. ``extra`` goes into the file and the table as it is."""

    case: str
    ours: tuple[float, ...]
    anchor: tuple[float, ...]
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """``anchor`` names what a user would use instead."""

    name: str
    unit: str
    anchor: str
    rows: Sequence[Row]
    lower_is_better: bool = True

    def ratio(self, row: Row) -> float | None:
        """``None``: the better one is 0, and the ratio has no number."""
        ours, anchor = median(row.ours), median(row.anchor)
        over, under = (anchor, ours) if self.lower_is_better else (ours, anchor)
        return round(over / under, 3) if under else None

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "lower_is_better": self.lower_is_better,
            "anchor": self.anchor,
            "rows": [
                {
                    "case": row.case,
                    "ours": round(median(row.ours), 4),
                    "anchor": round(median(row.anchor), 4),
                    "ratio": self.ratio(row),
                    "runs": len(row.ours),
                    "spread": f"{_spread(row.ours)} / {_spread(row.anchor)}",
                    **row.extra,
                }
                for row in self.rows
            ],
        }

    def table(self) -> str:
        extra = list(dict.fromkeys(key for row in self.rows for key in row.extra))
        head = [
            "case",
            f"tidegate ({self.unit})",
            f"{self.anchor} ({self.unit})",
            "ratio",
            "runs",
            "spread (%)",
            *extra,
        ]
        keys = ("case", "ours", "anchor", "ratio", "runs", "spread", *extra)
        lines = [head, *([_shown(row.get(key, "")) for key in keys] for row in self.as_json()["rows"])]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        rows = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines]
        rows.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
        return "\n".join(rows)

    def publish(self, folder: Path | None = None) -> Path:
        """Print the table and write the file; returns its path."""
        folder = folder or ROOT / "build" / "bench"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(self.as_json(), indent=2) + "\n", encoding="utf-8")
        temporary.replace(path)
        print(f"\n{self.name}: medians; ratio > 1 means tidegate is better\n{self.table()}\n-> {path}", flush=True)
        return path


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2 or not median(values):
        return "–"
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return f"{100 * (upper - lower) / 2 / abs(median(values)):.1f}"


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
