"""Charts that compare many contestants, as inline SVG: lines over episodes, and dots in a plane with logarithmic width.

Ours stand out and everyone is named at the mark itself, so that the chart reads without a legend. Like all charts here
they take their colours from the page and load nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 420
_LEFT, _TOP, _BOTTOM = 44, 14, 40
_NAMES = 240
"""Room for names at the right of lines."""
_LINE = 13.0
"""Height of a name."""


@dataclass(frozen=True)
class Series:
    """One contestant's line; NaN where nothing was measured."""

    name: str
    values: Sequence[float]
    """Shares in [0, 1], one per episode."""
    kind: str
    """A class of the page's style: `ours`, `raw` or `plain`."""


@dataclass(frozen=True)
class Dot:
    """One contestant in a plane."""

    name: str
    x: float
    """Above 0."""
    y: float
    """A share in [0, 1]."""
    kind: str
    tip: str


def lines(series: Sequence[Series], x_title: str, title: str) -> str:
    """Shares over episodes in %, each line named at its end, from the highest down."""
    count = max(len(one.values) for one in series)
    right = WIDTH - _NAMES
    step = (right - _LEFT) / max(count - 1, 1)
    parts = [_grid_y(right)]
    for place in range(0, count, max(1, math.ceil(count / 14))):
        parts.append(_text("tick", _LEFT + step * place, HEIGHT - _BOTTOM + 16, str(place + 1)))
    parts.append(_text("title", (_LEFT + right) / 2, HEIGHT - 6, x_title))
    ends = []
    for one in sorted(series, key=lambda s: s.kind == "ours"):
        points = [(_LEFT + step * i, _y(v)) for i, v in enumerate(one.values) if not math.isnan(v)]
        if not points:
            continue
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        last = [v for v in one.values if not math.isnan(v)][-1]
        tip = f"{one.name}: {100 * last:.1f} % in the end"
        parts.append(f'<polyline class="track {one.kind}" points="{joined}"><title>{escape(tip)}</title></polyline>')
        parts += [f'<circle class="mark {one.kind}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in points[-1:]]
        ends.append((points[-1][1], f"{one.name} {100 * last:.1f}", one.kind))
    ends.sort()
    for height, (y, name, kind) in zip(_spread([end[0] for end in ends]), ends, strict=True):
        parts.append(f'<line class="leader" x1="{right + 4}" x2="{right + 14}" y1="{y:.1f}" y2="{height:.1f}"/>')
        parts.append(_text(f"name {kind}", right + 17, height + 4, name, anchor="start"))
    return _svg(parts, title)


def plane(dots: Sequence[Dot], x_title: str, title: str) -> str:
    """Shares in % against a figure on a logarithmic scale; names stand beside their dots where there is room."""
    right = WIDTH - 16
    least, most = math.log10(min(dot.x for dot in dots)), math.log10(max(dot.x for dot in dots))
    low, high = math.floor(least - 0.05), math.ceil(max(most + 0.05, least + 1))
    parts = [_grid_y(right)]
    for power in range(low, high + 1):
        x = _LEFT + (right - _LEFT) * (power - low) / (high - low)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        parts.append(_text("tick", x, HEIGHT - _BOTTOM + 16, _power_name(power)))
    parts.append(_text("title", (_LEFT + right) / 2, HEIGHT - 6, x_title))
    taken: list[tuple[float, float, float, float]] = []
    places = [
        (dot, _LEFT + (right - _LEFT) * (math.log10(dot.x) - low) / (high - low), _y(dot.y))
        for dot in sorted(dots, key=lambda d: (d.kind != "ours", -d.y))
    ]
    taken += [(x - 6, x + 6, y - 6, y + 6) for _, x, y in places]
    for dot, x, y in places:
        size = 6 if dot.kind == "ours" else 4.5
        tip = escape(f"{dot.name}: {dot.tip}")
        parts.append(
            f'<circle class="mark {dot.kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"><title>{tip}</title></circle>'
        )
        wide = (6.9 if dot.kind == "ours" else 6.3) * len(dot.name)
        place = _room(wide, x, y, right, taken)
        if place is not None:
            taken.append(place)
            parts.append(_leader(x, y, place))
            parts.append(_text(f"name {dot.kind}", place[0], place[3] - 3, dot.name, anchor="start"))
    return _svg(parts, title)


_STYLE = """
:root { --card: #fff; --ink: #1a1f27; --soft: #5d6673; --rule: #e1e5ea; --accent: #1f6feb; --level: #c2500a; }
@media (prefers-color-scheme: dark) { :root { --card: #0d1117; --ink: #e6eaf0; --soft: #98a3b3; --rule: #2b3340;
  --accent: #6cabff; --level: #ffa657; } }
text { font: 11px system-ui, sans-serif; fill: var(--ink); } .tick, .title { fill: var(--soft); }
.grid, .leader { stroke: var(--rule); } .track { fill: none; stroke-width: 1.4; stroke-linejoin: round; }
.track.ours { stroke: var(--accent); stroke-width: 2.8; } .track.plain { stroke: var(--ink); stroke-opacity: .65; }
.track.raw { stroke: var(--level); stroke-opacity: .7; stroke-dasharray: 5 3; } .track.bound { stroke: var(--soft); }
.mark.ours { fill: var(--accent); } .mark.plain { fill: var(--ink); fill-opacity: .7; }
.mark.raw { fill: none; stroke: var(--level); stroke-width: 1.8; } .mark.bound { fill: var(--soft); }
.name.ours { fill: var(--accent); font-weight: 650; } .name.raw { fill: var(--level); }
.name.bound { fill: var(--soft); }
"""
"""The colours and lines of the page, for a chart that stands alone."""


def standalone(svg: str) -> str:
    """A chart as a file of its own."""
    head, rest = svg.split(">", 1)
    frame = f'{head} xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">'
    return f'{frame}<style>{_STYLE}</style><rect width="100%" height="100%" fill="var(--card)"/>{rest}\n'


def _room(
    wide: float, x: float, y: float, right: float, taken: Sequence[tuple[float, float, float, float]]
) -> tuple[float, float, float, float] | None:
    """A free box (left, right, top, bottom) for a dot's name, beside it or further below, or nothing."""
    beside = [(x + 9, y - 7), (x - 9 - wide, y - 7)]
    around = [(left, y + high) for high in (-19, 6) for left in (x + 6, x - 6 - wide)]
    apart = [(x - wide / 2, y - 22), (x - wide / 2, y + 9)]
    below = [(left, y + step * _LINE) for step in range(2, 7) for left in (x - wide / 2, x + 12, x - 12 - wide)]
    for left, top in (*beside, *around, *apart, *below):
        box = (left, left + wide, top, top + _LINE)
        inside = box[0] >= _LEFT and box[1] <= right + 14 and box[2] >= 0 and box[3] <= HEIGHT - _BOTTOM
        if inside and all(box[1] < t[0] or t[1] < box[0] or box[3] < t[2] or t[3] < box[2] for t in taken):
            return box
    return None


def _leader(x: float, y: float, box: tuple[float, float, float, float]) -> str:
    """A line from a dot to a name that stands apart from it."""
    left, right, top, _ = box
    if top < y + 1.5 * _LINE:
        return ""
    return f'<line class="leader" x1="{x:.1f}" x2="{min(max(x, left), right):.1f}" y1="{y:.1f}" y2="{top + 2:.1f}"/>'


def _spread(heights: Sequence[float]) -> list[float]:
    """Places for names, in the order of their rising heights: none over another, none below the chart.

    >>> _spread([20.0, 21.0, 60.0])
    [20.0, 33.0, 60.0]
    """
    places: list[float] = []
    for height in heights:
        places.append(max(height, places[-1] + _LINE) if places else max(height, _LINE))
    lowest = HEIGHT - 4.0
    for i in reversed(range(len(places))):
        places[i] = min(places[i], lowest)
        lowest = places[i] - _LINE
    return places


def _grid_y(right: float) -> str:
    parts = []
    for mark in range(0, 101, 20):
        y = _y(mark / 100)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text("tick", _LEFT - 6, y + 4, f"{mark}{' %' if mark == 100 else ''}", anchor="end"))
    return "".join(parts)


def _y(share: float) -> float:
    return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1.0 - share)


def _power_name(power: int) -> str:
    """A power of ten for people.

    >>> [_power_name(power) for power in (-2, 0, 3, 7)]
    ['0.01', '1', '1k', '10M']
    """
    if power < 0:
        return f"{10.0**power:g}"
    unit = ("", "k", "M", "G", "T")[power // 3]
    return f"{10 ** (power % 3)}{unit}"


def _text(kind: str, x: float, y: float, text: str, *, anchor: str = "middle") -> str:
    return f'<text class="{kind}" text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _svg(parts: Sequence[str], title: str) -> str:
    label = escape(title)
    return (
        f'<svg class="large" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        + "".join(parts)
        + "</svg>"
    )
