"""A ring as one self-contained page that reads at a glance. It shows figures and never computes new ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from benchmarks.reporting import comparison_charts as charts
from benchmarks.reporting.charts import STYLE
from benchmarks.reporting.comparison_charts import Dot
from benchmarks.reporting.files import write_text
from benchmarks.reporting.machine import describe
from benchmarks.reporting.ring_tables import (
    COLUMNS,
    Record,
    ahead_of_ours,
    at_other_commits,
    episodes_chart,
    kind_of,
    row,
    seconds,
    size,
)
from benchmarks.ring import notes
from benchmarks.ring.result import RingResult

_PAGE = Template((Path(__file__).parent / "report.template.html").read_text(encoding="utf-8"))

_LEGEND = (
    '<b class="swatch ours">ours</b> <b class="swatch plain">keeps no raw data</b> '
    '<b class="swatch raw">keeps raw data</b> <b class="swatch bound">everything at once</b>'
)


def write_report(path: Path, result: RingResult) -> None:
    """Write the page, complete or not at all."""
    write_text(path, page(result))


def page(result: RingResult) -> str:
    """The page as text."""
    settings = result.settings
    records = [standing.to_dict() for standing in result.standings]
    blurry = settings["blurry"]
    kind = f"blurry, c = {blurry['c']}, η = {blurry['eta']:g}" if blurry else "class-incremental"
    subtitle = (
        f"{result.data['classes']} classes, {settings['classes_per_episode']} at a time in {settings['order']} order"
        if not blurry
        else kind
    )
    return _PAGE.substitute(
        style=STYLE,
        title=escape(heading(settings)),
        subtitle=escape(f"{subtitle} · judged by {result.data['judged_by']}"),
        figures=_headline(records),
        remarks="".join(f'<p class="remark">{escape(remark)}</p>' for remark in notes.remarks(result)),
        legend=_LEGEND,
        episodes=episodes_chart(records),
        bytes=_bytes_chart(records),
        seconds=_seconds_chart(records),
        columns=escape(notes.COLUMNS),
        table=_table(result, records),
        notes="".join(f"<p>{escape(note)}</p>" for note in notes.explanations(result)),
        by_episode=_by_episode(records),
        settings=_settings(result),
        footer=escape(
            f"{describe(result.machine)} · {' · '.join(f'{k} {v}' for k, v in result.versions.items() if v)}"
            f" {at_other_commits(records, result.versions['commit'])}"
        ),
    )


def heading(settings: Mapping[str, Any]) -> str:
    """What the ring is about."""
    pretrained = settings.get("pretrained")
    behind = f", G pretrained on {pretrained['source']}" if pretrained else ""
    return f"The ring on {settings['dataset']}{behind}"


def _bytes_chart(records: Sequence[Record]) -> str:
    dots = [_dot(record, "kept_bytes", size) for record in records]
    return charts.plane(dots, "bytes", "Accuracy against bytes kept")


def _seconds_chart(records: Sequence[Record]) -> str:
    dots = [_dot(record, "learn_cpu_seconds", lambda value: f"{seconds(value)} s") for record in records]
    return charts.plane(dots, "processor seconds", "Accuracy against seconds to learn")


def _dot(record: Record, figure: str, words: Callable[[float], str]) -> Dot:
    value, accuracy = record["mean"][figure], record["mean"]["accuracy"]
    tip = f"{100 * accuracy:.1f} %, {words(value)}"
    return Dot(record["title"], max(value, 1e-4), accuracy, kind_of(record), tip)


def _headline(records: Sequence[Record]) -> str:
    names = {
        "ours": "ours",
        "plain": "best of those that keep no raw data",
        "raw": "best of those that keep raw data",
        "bound": "everything at once",
    }
    figures = []
    for kind, name in names.items():
        best = next((record for record in records if kind_of(record) == kind), None)
        if best is not None:
            figures.append((name, f"{100 * best['mean']['accuracy']:.1f} %", best["title"]))
    return "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(who)}</small></dd></div>"
        for name, value, who in figures
    )


def _table(result: RingResult, records: Sequence[Record]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in COLUMNS)
    ahead = {record["name"] for record in ahead_of_ours(records)}
    body = ""
    for record in records:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row(record, result.published))
        body += f'<tr class="{kind_of(record)}{" ahead" if record["name"] in ahead else ""}">{cells}</tr>'
    absent = "".join(f"<li>{escape(name)}: {escape(reason)}</li>" for name, reason in result.absent.items())
    broken = "".join(f"<li>{escape(name)} broke: {escape(reason)}</li>" for name, reason in result.failures.items())
    listed = f'<p class="hint">Not in this ring:</p><ul class="hint">{absent}{broken}</ul>' if absent or broken else ""
    return f'<div class="scroll"><table class="seeds ring"><tr>{head}</tr>{body}</table></div>{listed}'


def _by_episode(records: Sequence[Record]) -> str:
    """In %, on the classes seen so far; nothing where it was not judged."""
    count = max((len(record["accuracy_after_episode"]) for record in records), default=0)
    head = "<th>contestant</th>" + "".join(f"<th>{number}</th>" for number in range(1, count + 1))
    body = ""
    for record in records:
        shares = record["accuracy_after_episode"]
        cells = "".join(f"<td>{'–' if math.isnan(share) else f'{100 * share:.1f}'}</td>" for share in shares)
        body += f'<tr class="{kind_of(record)}"><td>{escape(record["title"])}</td>{cells}</tr>'
    return f'<div class="scroll"><table class="seeds ring"><tr>{head}</tr>{body}</table></div>'


def _settings(result: RingResult) -> str:
    rows = {"ring": {**result.settings, **result.data}}
    rows |= {standing.title: dict(standing.runs[0].settings) for standing in result.standings}
    cells = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(', '.join(f'{k}: {_word(v)}' for k, v in values.items()))}</td></tr>"
        for name, values in rows.items()
    )
    return f'<table class="settings">{cells}</table>'


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
