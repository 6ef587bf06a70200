"""Charts as inline SVG, made from numbers alone.

Colours are CSS variables of the page around them, so that they follow its theme; every mark has a tooltip. Nothing here
may load anything from anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

STYLE = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
"""The look that all pages with charts share; it defines the colours."""
WIDTH = 420
"""Of a chart, in its own units: about a phone's, so that text stays readable there."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 42, 12, 12, 38

_MOST_NAMED = 30
"""Rows and columns of a heat map that are named; larger maps name them in tooltips only."""

_LONGEST_NAME = 12
"""Letters of a name in a heat map."""


@dataclass(frozen=True)
class Line:
    """A line over episodes with its deviation."""

    name: str
    values: Sequence[float]
    deviations: Sequence[float]


def line_chart(line: Line, x_title: str, levels: Sequence[tuple[str, float]] = ()) -> str:
    """A share in [0, 1] over episodes, in %, with a band of one deviation, and level lines to compare with."""
    shown = [100 * (v - d) for _, v, d in _numbered(line.values, line.deviations)] + [level for _, level in levels]
    base = 20.0 * math.floor(max(0.0, min(shown, default=0.0) - 5.0) / 20.0)
    frame = _Frame(200, len(line.values), 100.0, base=base)
    parts = [frame.axes([str(i + 1) for i in range(len(line.values))], x_title, unit="%")]
    points = [(frame.x(i), frame.y(100 * v), 100 * v, 100 * d) for i, v, d in _numbered(line.values, line.deviations)]
    upper = [(x, frame.y(min(100.0, v + d))) for x, _, v, d in points]
    lower = [(x, frame.y(max(0.0, v - d))) for x, _, v, d in reversed(points)]
    parts.append(f'<polygon class="band" points="{_points(upper + lower)}"/>')
    for name, value in levels:
        y = frame.y(value)
        parts.append(f'<line class="level" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text("level-name", _LEFT + 5, y + 13, name, anchor="start"))
    parts.append(f'<polyline class="line" points="{_points([(x, y) for x, y, _, _ in points])}"/>')
    for i, (x, y, value, deviation) in enumerate(points, 1):
        tip = f"after episode {i}: {value:.1f} ± {deviation:.1f} %"
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{tip}</title></circle>')
    return frame.svg(parts, f"{line.name} after each episode")


def bar_chart(line: Line, x_title: str, unit: str) -> str:
    """One bar per episode with a whisker of one deviation."""
    top = max((v + d for _, v, d in _numbered(line.values, line.deviations)), default=0.0)
    frame = _Frame(200, len(line.values), top, inset=True)
    parts = [frame.axes([str(i + 1) for i in range(len(line.values))], x_title, unit)]
    width = min(36.0, 0.7 * frame.step)
    for i, value, deviation in _numbered(line.values, line.deviations):
        x, y, base = frame.x(i), frame.y(value), frame.y(0)
        tip = f"episode {i + 1}: {value:.2f} ± {deviation:.2f} {unit}"
        parts.append(
            f'<rect class="bar" x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{base - y:.1f}" rx="2">'
            f"<title>{tip}</title></rect>"
        )
        if deviation > 0:
            low, high = frame.y(max(0.0, value - deviation)), frame.y(value + deviation)
            parts.append(f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>')
    return frame.svg(parts, f"{line.name} per episode")


def area_chart(series: Sequence[tuple[str, str, Sequence[float]]], x_title: str, title: str) -> str:
    """Stacked areas: (name, colour, values) each, the first at the bottom; x starts at 0, before the first episode."""
    count = len(series[0][2])
    total = max(sum(values[i] for _, _, values in series) for i in range(count))
    frame = _Frame(160, count, total, tight=True)
    parts = [frame.axes([str(i) for i in range(count)], x_title)]
    below = [0.0] * count
    for name, colour, values in series:
        above = [low + value for low, value in zip(below, values, strict=True)]
        top = [(frame.x(i), frame.y(v)) for i, v in enumerate(above)]
        bottom = [(frame.x(i), frame.y(v)) for i, v in enumerate(below)]
        tip = f"{escape(name)}: {values[-1]:.0f} units at the end"
        outline = _points(top + bottom[::-1])
        parts.append(f'<polygon class="area" fill="{colour}" points="{outline}"><title>{tip}</title></polygon>')
        below = above
    return frame.svg(parts, title)


def heat_map(
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    row_title: str,
    column_title: str,
    *,
    tip: str,
) -> str:
    """Shares in [0, 1] as cells, in %; NaN is left empty. `tip` is a pattern with {row}, {column} and {value}."""
    named = max(len(rows), len(columns)) <= _MOST_NAMED
    longest = min(_LONGEST_NAME, max(map(len, (*rows, *columns)), default=1)) if named else 0
    left = 32.0 + 6.5 * longest
    size = min((WIDTH - left - 8) / max(len(columns), 1), 56.0)
    left += (WIDTH - left - 8 - size * len(columns)) / 2  # a small map stands in the middle
    wide, high = size * len(columns), size * len(rows)
    upright = longest <= 2
    height = 6 + high + (38 if named and upright else 26 + 6.5 * longest)
    parts = [f'<rect class="map" x="{left - 1:.1f}" y="5" width="{wide + 1:.1f}" height="{high + 1:.1f}"/>']
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if math.isnan(value) or (not named and value == 0.0):
                continue
            tooltip = tip.format(row=rows[i], column=columns[j], value=f"{100 * value:.1f} %")
            parts.append(_cell(left + j * size, 6 + i * size, size, value, tooltip))
    if named:
        for i, name in enumerate(rows):
            parts.append(_text("tick", left - 5, 6 + (i + 0.5) * size + 4, _short(name), anchor="end"))
        for j, name in enumerate(columns):
            x = left + (j + 0.5) * size
            if upright:
                parts.append(_text("tick", x, 6 + high + 15, _short(name)))
            else:
                parts.append(_text("tick", x + 4, 6 + high + 6, _short(name), anchor="end", upwards=True))
    parts.append(_text("title", left + wide / 2, height - 6, column_title))
    parts.append(_text("title", left - 18 - 6.5 * longest, 6 + high / 2, row_title, upwards=True))
    return _svg(parts, height, f"{row_title} by {column_title}")


def _cell(x: float, y: float, size: float, value: float, tip: str) -> str:
    side = size - 1 if size > 8 else size
    cell = (
        f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}" '
        f'fill-opacity="{value:.3f}"><title>{escape(tip)}</title></rect>'
    )
    if size < 22 or value < 0.005:
        return cell
    tone = "figure strong" if value > 0.55 else "figure"
    return cell + _text(tone, x + size / 2 - 0.5, y + size / 2 + 4, f"{100 * value:.0f}")


class _Frame:
    """Axes of a chart over equally spaced places."""

    def __init__(
        self, height: float, places: int, top: float, *, base: float = 0.0, inset: bool = False, tight: bool = False
    ) -> None:
        """`base`: value of the bottom. `inset`: places have room on both sides. `tight`: nothing above the top."""
        self.height = height + _TOP + _BOTTOM
        self._span = height
        self._base = base
        self._marks = [base + mark for mark in _round_marks(top - base)]
        if tight:
            self._marks = [mark for mark in self._marks if mark <= top]
        self._top = top if tight else max(top, self._marks[-1])
        self._inset = inset or places == 1
        room = WIDTH - _LEFT - _RIGHT
        self.step = room / places if self._inset else room / (places - 1)

    def x(self, place: int) -> float:
        return _LEFT + self.step * (place + (0.5 if self._inset else 0.0))

    def y(self, value: float) -> float:
        return _TOP + self._span * (1.0 - (value - self._base) / (self._top - self._base))

    def axes(self, names: Sequence[str], x_title: str, unit: str = "") -> str:
        parts = []
        for mark in self._marks:
            y = self.y(mark)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            name = f"{mark:g}{' ' + unit if unit and mark == self._marks[-1] else ''}"
            parts.append(_text("tick", _LEFT - 5, y + 4, name, anchor="end"))
        every = max(1, math.ceil(len(names) / 14))
        for place in range(0, len(names), every):
            parts.append(_text("tick", self.x(place), _TOP + self._span + 15, names[place]))
        parts.append(_text("title", _LEFT + (WIDTH - _LEFT - _RIGHT) / 2, self.height - 6, x_title))
        return "".join(parts)

    def svg(self, parts: Sequence[str], title: str) -> str:
        return _svg(parts, self.height, title)


def _round_marks(top: float) -> list[float]:
    """Four or five round marks from 0 up to, or just beyond, the top."""
    if top <= 0:
        return [0.0, 1.0]
    raw = top / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    return [step * i for i in range(math.ceil(top / step * 0.999) + 1)]


def _numbered(values: Sequence[float], deviations: Sequence[float]) -> list[tuple[int, float, float]]:
    pairs = enumerate(zip(values, deviations, strict=True))
    return [(i, v, d) for i, (v, d) in pairs if not math.isnan(v)]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _text(kind: str, x: float, y: float, text: str, *, anchor: str = "middle", upwards: bool = False) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if upwards else ""
    return f'<text class="{kind}" text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}"{turn}>{escape(text)}</text>'


def _svg(parts: Sequence[str], height: float, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">' + "".join(parts) + "</svg>"
    )
