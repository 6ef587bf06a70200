"""Charts that compare many contestants, as inline SVG: lines over episodes, and dots in a plane with logarithmic width.

Ours stand out and everyone is named at the mark itself, so that the chart reads without a legend. Like all charts here
they take their colours from the page and load nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 460
_LEFT, _TOP, _BOTTOM = 44, 14, 40
_NAMES = 256
"""Room for names at the right of lines."""
_LINE = 13.0
"""Height of a name."""
_MARKS = (100, 98, 95, 90, 80, 70, 60, 50, 40, 30, 20, 10, 0)
"""Shares in % that may be marked, where there is room."""

Box = tuple[float, float, float, float]
"""Left, right, top and bottom."""


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
    finals = [known[-1] for one in series if (known := [v for v in one.values if not math.isnan(v)])]
    scale = Scale.of(finals, top=1.0)
    parts = [_grid_y(scale, right)]
    for place in range(0, count, max(1, math.ceil(count / 14))):
        parts.append(_text("tick", _LEFT + step * place, HEIGHT - _BOTTOM + 16, str(place + 1)))
    parts.append(_text("title", (_LEFT + right) / 2, HEIGHT - 6, x_title))
    ends = []
    for one in sorted(series, key=lambda s: s.kind == "ours"):
        points = [(_LEFT + step * i, scale.y(v)) for i, v in enumerate(one.values) if not math.isnan(v)]
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
        parts.append(f'<line class="leader" x1="{right + 5}" x2="{right + 20}" y1="{y:.1f}" y2="{height:.1f}"/>')
        parts.append(_text(f"name {kind}", right + 23, height + 4, name, anchor="start"))
    return _svg(parts, title)


def plane(dots: Sequence[Dot], x_title: str, title: str) -> str:
    """Shares in % against a figure on a logarithmic scale; names stand beside their dots where there is room."""
    right = WIDTH - 16
    least, most = math.log10(min(dot.x for dot in dots)), math.log10(max(dot.x for dot in dots))
    low, high = math.floor(least - 0.05), math.ceil(max(most + 0.05, least + 1))
    scale = Scale.of([dot.y for dot in dots])
    parts = [_grid_y(scale, right)]
    for power in range(low, high + 1):
        x = _LEFT + (right - _LEFT) * (power - low) / (high - low)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        parts.append(_text("tick", x, HEIGHT - _BOTTOM + 16, _power_name(power)))
    parts.append(_text("title", (_LEFT + right) / 2, HEIGHT - 6, x_title))
    places = [
        (dot, _LEFT + (right - _LEFT) * (math.log10(dot.x) - low) / (high - low), scale.y(dot.y))
        for dot in sorted(dots, key=lambda d: (d.kind != "ours", -d.y))
    ]
    taken = [(x - 6, x + 6, y - 6, y + 6) for _, x, y in places]
    for dot, x, y in places:
        size = 6 if dot.kind == "ours" else 4.5
        tip = escape(f"{dot.name}: {dot.tip}")
        place = _room((7.3 if dot.kind == "ours" else 6.6) * len(dot.name), x, y, right, taken)
        if place is not None:
            taken.append(place.box)
            parts.append(place.leader(x, y))
            parts.append(_text(f"name {dot.kind}", place.x, place.box[3] - 3, dot.name, anchor=place.anchor))
        parts.append(
            f'<circle class="mark {dot.kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"><title>{tip}</title></circle>'
        )
    return _svg(parts, title)


@dataclass(frozen=True)
class Scale:
    """Heights of shares. What is near the top is stretched, the more the better the best is, as errors are compared.

    Between 98 and 99 % lies half of all errors; on an even scale good contestants would stand on each other.
    """

    top: float
    softness: float
    """Error up to which the scale is nearly even; above it is logarithmic."""

    @classmethod
    def of(cls, shares: Sequence[float], top: float | None = None) -> Scale:
        """For what is to be compared."""
        best = max(shares, default=1.0)
        above = min((mark / 100 for mark in _MARKS if mark and mark / 100 >= best), default=1.0)
        return cls(top or above, max(0.02, 4.0 * (1.0 - best) ** 2))

    def y(self, share: float) -> float:
        """Where a share stands in the chart."""
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * self._depth(share) / self._depth(0.0)

    def _depth(self, share: float) -> float:
        return math.log((1.0 - share + self.softness) / (1.0 - self.top + self.softness))


_STYLE = """
:root { --card: #fff; --ink: #1a1f27; --soft: #5d6673; --rule: #e1e5ea; --accent: #1f6feb; --level: #c2500a; }
@media (prefers-color-scheme: dark) { :root { --card: #0d1117; --ink: #e6eaf0; --soft: #98a3b3; --rule: #2b3340;
  --accent: #6cabff; --level: #ffa657; } }
text { font: 11px system-ui, sans-serif; fill: var(--ink); } .tick, .title { fill: var(--soft); }
.grid { stroke: var(--rule); } .leader { stroke: var(--soft); stroke-opacity: .55; }
.track { fill: none; stroke-width: 1.4; stroke-linejoin: round; }
.track.ours { stroke: var(--accent); stroke-width: 2.8; } .track.plain { stroke: var(--ink); stroke-opacity: .65; }
.track.raw { stroke: var(--level); stroke-opacity: .7; stroke-dasharray: 5 3; } .track.bound { stroke: var(--soft); }
.mark.ours { fill: var(--accent); } .mark.plain { fill: var(--ink); fill-opacity: .7; }
.mark.raw, .mark.bound { fill: var(--card); stroke: var(--level); stroke-width: 1.8; }
.mark.bound { stroke: var(--soft); stroke-dasharray: 2 1.5; }
.name.ours { fill: var(--accent); font-weight: 650; } .name.raw { fill: var(--level); }
.name.bound { fill: var(--soft); }
"""
"""The colours and lines of the page, for a chart that stands alone."""


def standalone(svg: str) -> str:
    """A chart as a file of its own."""
    head, rest = svg.split(">", 1)
    frame = f'{head} xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">'
    return f'{frame}<style>{_STYLE}</style><rect width="100%" height="100%" fill="var(--card)"/>{rest}\n'


@dataclass(frozen=True)
class _Place:
    """Where a name stands."""

    x: float
    anchor: str
    box: Box

    def leader(self, x: float, y: float) -> str:
        """A line from a dot to a name that stands apart from it."""
        left, right, top, bottom = self.box
        near = min(max(x, left), right), min(max(y, top + 3), bottom - 1)
        if math.hypot(near[0] - x, near[1] - y) < _LINE:
            return ""
        return f'<line class="leader" x1="{x:.1f}" x2="{near[0]:.1f}" y1="{y:.1f}" y2="{near[1]:.1f}"/>'


def _room(wide: float, x: float, y: float, right: float, taken: Sequence[Box]) -> _Place | None:
    """The free place for a dot's name that is nearest to it, or nothing."""
    sides = [(x + 9, "start", x + 9), (x - 9, "end", x - 9 - wide), (x, "middle", x - wide / 2)]
    found = []
    for step in range(-8, 9):
        top = y - 7 + step * 0.75 * _LINE
        for at, anchor, left in sides:
            box = (left, left + wide, top, top + _LINE)
            inside = box[0] >= _LEFT and box[1] <= right + 14 and box[2] >= 0 and box[3] <= HEIGHT - _BOTTOM
            if inside and all(box[1] < t[0] or t[1] < box[0] or box[3] < t[2] or t[3] < box[2] for t in taken):
                found.append((abs(step), anchor == "middle", _Place(at, anchor, box)))
    return min(found, key=lambda one: one[:2])[2] if found else None


def _spread(heights: Sequence[float]) -> list[float]:
    """Places for names, in the order of their rising heights: none over another, each as near as can be, all inside.

    >>> _spread([20.0, 21.0, 60.0])
    [14.0, 27.0, 60.0]
    """
    blocks: list[tuple[float, int]] = []  # mean place of names that touch, as if all had no height; and how many
    for number, height in enumerate(heights):
        mean, count = height - number * _LINE, 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        blocks.append((mean, count))
    lowest = HEIGHT - 4.0 - (len(heights) - 1) * _LINE
    means = [min(max(mean, _LINE), lowest) for mean, count in blocks for _ in range(count)]
    return [mean + number * _LINE for number, mean in enumerate(means)]


def _grid_y(scale: Scale, right: float) -> str:
    parts: list[str] = []
    above = -math.inf
    for mark in (mark for mark in _MARKS if mark / 100 <= scale.top):
        y = scale.y(mark / 100)
        if min(y - above, scale.y(0.0) - y) < 18 and mark:
            continue
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text("tick", _LEFT - 6, y + 4, f"{mark}{' %' if not above > 0 else ''}", anchor="end"))
        above = y
    return "".join(parts)


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
