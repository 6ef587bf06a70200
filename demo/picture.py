"""The README's picture: what both know after each episode, as one SVG that stands alone.

It follows the reader's light or dark theme and brings its own ground, so that it is legible on any page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from demo.record import Record, percent

WIDTH, HEIGHT = 880, 372
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 420.0, 104.0, 306.0
"""Of the chart's frame."""
_CELL = 21.0
_MAPS = (612.0, 748.0)
"""Left edges of the two maps."""

# Every rule begins with the picture's own class: in the report it stands in a page that has rules of its own.
_STYLE = """
.learning { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
.learning .ground { fill: #ffffff; stroke: #d8dee4; }
.learning text { fill: #1f2328; font-size: 13px; }
.learning .head { font-size: 19px; font-weight: 650; }
.learning .soft { fill: #59636e; }
.learning .small { font-size: 11.5px; }
.learning .end { font-size: 14px; font-weight: 650; }
.learning .grid { stroke: #d8dee4; stroke-width: 1; }
.learning .line { fill: none; stroke-width: 3; stroke-linejoin: round; stroke-linecap: round; }
.learning .dot { stroke: #ffffff; stroke-width: 2; }
.learning .cell { fill: none; stroke: #d8dee4; }
.learning .sharp { stroke: #0969da; }
.learning .plain { stroke: #bc4c00; }
.learning .sharp-fill { fill: #0969da; }
.learning .plain-fill { fill: #bc4c00; }
@media (prefers-color-scheme: dark) {
  .learning .ground { fill: #0d1117; stroke: #3d444d; }
  .learning text { fill: #f0f6fc; }
  .learning .soft { fill: #9198a1; }
  .learning .grid, .learning .cell { stroke: #3d444d; }
  .learning .dot { stroke: #0d1117; }
  .learning .sharp { stroke: #4493f8; }
  .learning .plain { stroke: #f0883e; }
  .learning .sharp-fill { fill: #4493f8; }
  .learning .plain-fill { fill: #f0883e; }
}
"""


def picture(record: Record) -> str:
    """The SVG as text."""
    parts = [
        f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="12"/>',
        _text("head", 28, 38, f"{_number(len(record.classes))} digits, two at a time, none of them shown again"),
        _text("soft", 28, 60, "Right answers on all digits seen so far"),
        _text("soft", _MAPS[0] - 4, 60, "Right answers digit by digit"),
        *_axes(len(record.episodes)),
        *_line("plain", [episode.plain for episode in record.episodes], ("plain network,", "fine-tuned: ")),
        *_line("sharp", [episode.sharp for episode in record.episodes], ("", "SHARP: ")),
        *_map("sharp", "SHARP", _MAPS[0], record, [episode.sharp_by_class for episode in record.episodes]),
        *_map("plain", "plain network", _MAPS[1], record, [episode.plain_by_class for episode in record.episodes]),
    ]
    last = record.episodes[-1]
    alt = f"In the end SHARP knows {percent(last.sharp)}, a plain network that is fine-tuned {percent(last.plain)}"
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" class="learning" {size} role="img" aria-label="{escape(alt)}">'
    return "\n".join((opening, f"<style>{_STYLE}</style>", *parts, "</svg>\n"))


def _axes(episodes: int) -> list[str]:
    parts = []
    for mark in (0, 25, 50, 75, 100):
        y = _y(mark / 100)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text("soft small", _LEFT - 10, y + 4, f"{mark} %", anchor="end"))
    for place in range(episodes):
        parts.append(_text("soft small", _x(place, episodes), _BOTTOM + 22, str(place + 1), anchor="middle"))
    parts.append(_text("soft small", (_LEFT + _RIGHT) / 2, _BOTTOM + 44, "after episode", anchor="middle"))
    return parts


def _line(kind: str, shares: Sequence[float], name: tuple[str, str]) -> list[str]:
    points = [(_x(place, len(shares)), _y(share)) for place, share in enumerate(shares)]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = [f'<polyline class="line {kind}" points="{joined}"/>']
    for share, (x, y) in zip(shares, points, strict=True):
        dot = f'<circle class="dot {kind}-fill" cx="{x:.1f}" cy="{y:.1f}" r="5.5">'
        parts.append(f"{dot}<title>{percent(share)}</title></circle>")
    x, y = points[-1]
    first, second = name
    if first:
        parts.append(_text(f"end {kind}-fill", x + 14, y - 13, first))
    parts.append(_text(f"end {kind}-fill", x + 14, y + 5, f"{second}{percent(shares[-1])}"))
    return parts


def _map(kind: str, name: str, left: float, record: Record, known: Sequence[Mapping[int, float]]) -> list[str]:
    """One row per digit, one column per episode; the fuller a cell, the more is known."""
    parts = [_text(f"end {kind}-fill", left, _TOP - 12, name)]
    for row, label in enumerate(record.classes):
        y = _TOP + row * _CELL
        parts.append(_text("soft small", left - 9, y + 14, str(label), anchor="end"))
        for column, shares in enumerate(known):
            if label not in shares:
                continue
            x, share = left + column * _CELL, shares[label]
            place = f'x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{_CELL - 3:.0f}" height="{_CELL - 3:.0f}" rx="4"'
            tip = f"<title>{label} after episode {column + 1}: {percent(share)}</title>"
            parts.append(f'<rect class="cell" {place}/>')
            parts.append(f'<rect class="{kind}-fill" {place} fill-opacity="{share:.3f}">{tip}</rect>')
    bottom = _TOP + len(record.classes) * _CELL
    for column in range(len(known)):
        parts.append(_text("soft small", left + (column + 0.5) * _CELL - 1, bottom + 16, str(column + 1), "middle"))
    parts.append(_text("soft small", left + len(known) * _CELL / 2, bottom + 36, "after episode", "middle"))
    return parts


def _x(place: int, places: int) -> float:
    return _LEFT + 14 + (_RIGHT - _LEFT - 28) * place / (places - 1)


def _y(share: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * share


def _number(count: int) -> str:
    return {4: "Four", 6: "Six", 8: "Eight", 10: "Ten"}.get(count, str(count))


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
