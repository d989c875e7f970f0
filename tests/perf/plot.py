"""Line charts as SVG, without a plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 200
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 30, 34
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
FONT = 'font-family="sans-serif" font-size="12"'


@dataclass(frozen=True, slots=True)
class Chart:
    """Series over the same x values (seconds); a dashed line stands at x = 0. ``y_label`` names what is counted."""

    title: str
    y_label: str
    xs: Sequence[float]
    series: Sequence[tuple[str, Sequence[float]]]

    def svg(self, top: int) -> str:
        """Its part of a drawing, ``top`` pixels down."""
        low, high = self.xs[0], self.xs[-1]
        most = max(max(values) for _, values in self.series) or 1.0

        def x(value: float) -> float:
            return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

        def y(value: float) -> float:
            return top + TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM)

        base = top + HEIGHT - BOTTOM
        parts = [f'<text x="{LEFT}" y="{top + 14}" {FONT} font-weight="bold">{escape(self.title)}</text>']
        for number in range(int(low), int(high) + 1):
            parts.append(f'<line x1="{x(number):.1f}" y1="{base}" x2="{x(number):.1f}" y2="{base + 4}" stroke="#555"/>')
            parts.append(f'<text x="{x(number):.1f}" y="{base + 18}" {FONT} text-anchor="middle">{number} s</text>')
        for value in (0.0, most / 2, most):
            parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" {FONT} text-anchor="end">{value:.0f}</text>')
            parts.append(
                f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}" stroke="#ddd"/>'
            )
        parts.append(
            f'<text x="14" y="{top + HEIGHT / 2:.0f}" {FONT} text-anchor="middle" '
            f'transform="rotate(-90 14 {top + HEIGHT / 2:.0f})">{escape(self.y_label)}</text>'
        )
        parts.append(
            f'<line x1="{x(0):.1f}" y1="{top + TOP}" x2="{x(0):.1f}" y2="{base}" stroke="#555" stroke-dasharray="4 3"/>'
        )
        for index, (name, values) in enumerate(self.series):
            colour = COLOURS[index % len(COLOURS)]
            points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(self.xs, values, strict=True))
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
            at = WIDTH - RIGHT - 190 * (len(self.series) - index)
            parts.append(f'<rect x="{at}" y="{top + 6}" width="12" height="4" fill="{colour}"/>')
            parts.append(f'<text x="{at + 17}" y="{top + 13}" {FONT}>{escape(name)}</text>')
        return "\n".join(parts)


def drawing(charts: Sequence[Chart]) -> str:
    """One SVG file with the charts below one another."""
    height = HEIGHT * len(charts)
    body = "\n".join(chart.svg(HEIGHT * number) for number, chart in enumerate(charts))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{body}\n</svg>\n'
    )
