"""The demo's report: one self-contained page with the plots, and every promise with what became of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template

from benchmarks.reporting import charts
from benchmarks.reporting.charts import STYLE, Line
from benchmarks.reporting.files import write_text
from benchmarks.reporting.machine import describe, machine
from demo.picture import picture
from demo.record import Promise, Record, percent

_PAGE = Template((Path(__file__).parent / "report.template.html").read_text(encoding="utf-8"))


def write_report(path: Path, record: Record) -> None:
    """Write the page, complete or not at all."""
    write_text(path, page(record))


def page(record: Record) -> str:
    """The page as text."""
    episodes = record.episodes
    seconds = [episode.seconds for episode in episodes]
    taught = sum(episode.examples for episode in episodes)
    subtitle = (
        f"scikit-learn's digits in {len(episodes)} episodes of two classes: "
        f"{taught} examples taught through the client, judged on {record.test_examples} others"
    )
    return _PAGE.substitute(
        style=STYLE,
        subtitle=escape(subtitle),
        figures=_figures(record),
        picture=picture(record),
        sharp=_map(record, [episode.sharp_by_class for episode in episodes]),
        plain=_map(record, [episode.plain_by_class for episode in episodes]),
        time=charts.bar_chart(Line("time", seconds, [0.0] * len(seconds)), "episode", "s"),
        promises=_promises(record.promises),
        footer=escape(f"{record.architecture} · {describe(machine())} · {record.seconds:.0f} s in all"),
    )


def _figures(record: Record) -> str:
    last = record.episodes[-1]
    figures = [
        ("SHARP, in the end", percent(last.sharp)),
        ("plain network, fine-tuned", percent(last.plain)),
        (f"others, after forgetting {record.forgotten}", percent(record.accuracy_of_the_others)),
        ("promises held", f"{sum(p.holds for p in record.promises)} of {len(record.promises)}"),
    ]
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in figures)


def _map(record: Record, known: Sequence[Mapping[int, float]]) -> str:
    values = [[shares.get(label, math.nan) for shares in known] for label in record.classes]
    columns = [str(number + 1) for number in range(len(known))]
    tip = "{row} after episode {column}: {value}"
    return charts.heat_map(values, [str(label) for label in record.classes], columns, "digit", "after episode", tip=tip)


def _promises(promises: Sequence[Promise]) -> str:
    rows = []
    for promise in promises:
        mark, kind = ("✓", "") if promise.holds else ("✗", ' class="broken"')
        seen = f'<br><span class="hint">{escape(promise.seen)}</span>'
        rows.append(f"<tr{kind}><td>{mark}</td><td>{escape(promise.what)}{seen}</td></tr>")
    return f'<table class="promises">{"".join(rows)}</table>'
