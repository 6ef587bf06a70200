"""A result as one self-contained page: no request leaves it, it follows the reader's light or dark theme.

It shows figures and never computes new ones: everything on it is in `result.json` too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from benchmarks.paper import metrics
from benchmarks.paper.result import Result
from benchmarks.paper.tables import ours, percent
from benchmarks.reporting import charts
from benchmarks.reporting.charts import STYLE, Line
from benchmarks.reporting.files import write_text
from benchmarks.reporting.machine import describe

_PAGE = Template((Path(__file__).parent / "report.template.html").read_text(encoding="utf-8"))

_MOST_RANKS = 8
"""Ranks shown one by one; higher ones are shown together."""


def write_report(path: Path, result: Result) -> None:
    """Write the page, complete or not at all."""
    write_text(path, page(result))


def page(result: Result) -> str:
    """The page as text."""
    settings = result.settings
    kind = f"blurry, c = {settings['blurry']['c']}, η = {settings['blurry']['eta']:g}" if settings["blurry"] else ""
    subtitle = [
        f"{settings['preset']} preset",
        f"{settings['memory']} memory",
        kind or "class-incremental",
        f"boundaries {settings['boundaries']}",
        f"seeds {', '.join(str(run.seed) for run in result.runs)}",
    ]
    return _PAGE.substitute(
        style=STYLE,
        title=escape(f"SHARP on {settings['dataset']}"),
        subtitle=escape(" · ".join(subtitle)),
        figures=_headline(result),
        remarks="".join(f'<p class="remark">{escape(remark)}</p>' for remark in result.remarks),
        accuracy=_accuracy(result),
        comparison=_comparison(result),
        matrix=_matrix(result),
        confusion=_confusion(result),
        layers=_layers(result),
        time=charts.bar_chart(_line(result, "seconds", "seconds_per_episode"), "episode", "s"),
        memory=_memory(result),
        seeds=_seeds(result),
        settings=_settings(result),
        footer=escape(
            f"{describe(result.machine)} · {' · '.join(f'{k} {v}' for k, v in result.versions.items() if v)}"
        ),
    )


def _headline(result: Result) -> str:
    last = result.runs[-1].episodes[-1]
    seconds = np.mean([sum(e.seconds for e in run.episodes) for run in result.runs])
    figures = [
        ("average accuracy", percent(result.mean("average_accuracy"), result.std("average_accuracy")) + " %"),
        ("the paper", f"{result.published['SHARP']['mean']:.1f} ± {result.published['SHARP']['std']:.1f} %")
        if "SHARP" in result.published
        else (
            "episodes learned, of given",
            ", ".join(f"{len(run.episodes)} of {len(run.given)}" for run in result.runs),
        ),
        *((("boundaries given", percent(*given) + " %"),) if (given := result.if_given()) is not None else ()),
        ("forgetting", percent(result.mean("forgetting"), result.std("forgetting")) + " %"),
        ("backward transfer", percent(result.mean("backward_transfer"), result.std("backward_transfer")) + " %"),
        ("time per run", f"{seconds:.0f} s"),
        ("short-term memory", f"{max(result.mean('stm_bytes')):,.0f} of {last.stm_budget_bytes:,} bytes"),
    ]
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in figures)


def _line(result: Result, name: str, figure: str) -> Line:
    return Line(name, result.mean(figure), result.std(figure))


def _accuracy(result: Result) -> str:
    levels = []
    if "SHARP" in result.published:
        levels.append(
            (f"the paper, at the end: {result.published['SHARP']['mean']:.1f} %", result.published["SHARP"]["mean"])
        )
    if (given := result.if_given()) is not None:
        levels.append((f"boundaries given, at the end: {100 * given[0]:.1f} %", 100 * given[0]))
    return charts.line_chart(_line(result, "accuracy on the classes seen", "accuracy_after_episode"), "episode", levels)


def _comparison(result: Result) -> str:
    """Our figure among the paper's; where it has none, our classes one by one."""
    if not result.published:
        counts = result.confusion()
        shares = metrics.class_accuracies(counts)
        rows = [
            (name, f"{100 * share:.1f}", 100 * share, "ours")
            for name, share in zip(result.classes, shares, strict=True)
        ]
        return f"<h2>By class</h2>{_hint('After the last episode, % right, all seeds together.')}{_bars(rows)}"
    figures = [(method, f["mean"], f["std"], "") for method, f in result.published.items()]
    mean, std = 100 * result.mean("average_accuracy"), 100 * result.std("average_accuracy")
    figures.append((ours(result), mean, std, "ours strong"))
    figures.sort(key=lambda row: -row[1])
    rows = [(method, f"{figure:.1f} ± {deviation:.1f}", figure, mark) for method, figure, deviation, mark in figures]
    return f"<h2>Beside the paper</h2>{_hint('Average accuracy over all classes after all episodes, %.')}{_bars(rows)}"


def _bars(rows: Sequence[tuple[str, str, float, str]]) -> str:
    """A table of (name, figure, length of its bar in %, class)."""
    body = "".join(
        f'<tr class="{mark}"><td>{escape(name)}</td><td class="track"><i style="width:{length:.1f}%"></i></td>'
        f"<td>{figure}</td></tr>"
        for name, figure, length, mark in rows
    )
    return f'<div class="tall"><table class="comparison">{body}</table></div>'


def _hint(text: str) -> str:
    return f'<p class="hint">{escape(text)}</p>'


def _memory(result: Result) -> str:
    kilobytes = [[value / 1000 for value in values] for values in (result.mean("ltm_bytes"), result.std("ltm_bytes"))]
    return charts.bar_chart(Line("long-term memory", *kilobytes), "episode", "kB")


def _matrix(result: Result) -> str:
    values = result.mean("accuracy_matrix")
    names = [str(i + 1) for i in range(len(values))]
    tip = "after episode {row}, classes first seen in episode {column}: {value}"
    return charts.heat_map(values, names, names, "after episode", "classes first seen in episode", tip=tip)


def _confusion(result: Result) -> str:
    counts = result.confusion()
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    names = result.classes
    tip = "{row} taken for {column}: {value}"
    return charts.heat_map(shares.tolist(), names, names, "class", "predicted", tip=tip)


def _layers(result: Result) -> str:
    """Per layer: how many units have which rank, after each episode, mean over seeds."""
    episodes = max(len(run.episodes) for run in result.runs)
    layers = list(result.runs[0].episodes[0].units_by_rank)
    tables = [[[e.units_by_rank[name] for e in run.episodes] for run in result.runs] for name in layers]
    bands = _bands({rank for layer in tables for run in layer for counts in run for rank in counts})
    parts = []
    for name, runs in zip(layers, tables, strict=True):
        units = sum(runs[0][0].values())
        series = []
        for label, colour, low, high in bands:
            start = float(units) if low == 0 else 0.0
            values = [start]
            for i in range(episodes):
                there = [run[i] for run in runs if i < len(run)]
                counts = [sum(n for rank, n in c.items() if low <= rank <= high) for c in there]
                values.append(float(np.mean(counts)))
            series.append((label, colour, values))
        chart = charts.area_chart(series, "episode", f"Units of {name} by rank")
        parts.append(f"<figure><figcaption>{escape(name)} <span>{units} units</span></figcaption>{chart}</figure>")
    legend = "".join(
        f'<li><i style="background:{colour}"></i>{escape(label)}</li>' for label, colour, _, _ in bands[::-1]
    )
    return f'<ul class="legend">{legend}</ul><div class="grid">{"".join(parts)}</div>'


def _bands(ranks: set[int]) -> list[tuple[str, str, int, int]]:
    """(name, colour, least rank, greatest rank), the highest first: what is settled stands at the bottom."""
    busy = sorted(ranks - {0})
    shown = busy[:_MOST_RANKS]
    bands = []
    for place, rank in reversed(list(enumerate(shown))):
        share = place / max(len(shown) - 1, 1)
        colour = f"hsl({190 + 90 * share:.0f} {62 - 12 * share:.0f}% {62 - 22 * share:.0f}%)"
        last = busy[-1] if place == len(shown) - 1 else rank
        bands.append((f"rank {rank}{' and more' if last > rank else ''}", colour, rank, last))
    return [*bands, ("rank 0, idle", "var(--idle)", 0, 0)]


def _seeds(result: Result) -> str:
    head = ("seed", "accuracy %", "forgetting %", "transfer %", "episodes", "seconds", "STM bytes", "LTM bytes")
    found = result.settings["boundaries"] == "automatic"
    rows = []
    for run in result.runs:
        figures = run.figures()
        cells = [
            str(run.seed),
            *(f"{100 * figures[name]:.1f}" for name in ("average_accuracy", "forgetting", "backward_transfer")),
            f"{len(run.episodes)} for {len(run.given)}" if found else str(len(run.given)),
            f"{sum(figures['seconds_per_episode']):.1f}",
            f"{max(figures['stm_bytes']):,}",
            f"{figures['ltm_bytes'][-1]:,}",
        ]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    names = "".join(f"<th>{name}</th>" for name in head)
    return f'<div class="scroll"><table class="seeds"><tr>{names}</tr>{"".join(rows)}</table></div>'


def _settings(result: Result) -> str:
    asked = {key: value for key, value in result.settings.items() if key != "engine"}
    values = {**asked, **result.data, "architecture": result.architecture, **_flat(result.settings["engine"])}
    rows = "".join(
        f"<tr><td>{escape(key)}</td><td>{escape(value if isinstance(value, str) else json.dumps(value))}</td></tr>"
        for key, value in values.items()
    )
    return f'<table class="settings">{rows}</table>'


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under their dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
