"""The ring's tables and its picture for the documents, from its results; and one contestant's row for everywhere else.

A record is what `result.json` holds of one contestant. No figure is computed here that is not in the files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.reporting import comparison_charts as charts
from benchmarks.reporting.data_names import name_of, place_of
from benchmarks.reporting.machine import describe
from benchmarks.reporting.markdown import Row, markdown_table

Record = dict[str, Any]

COLUMNS = (
    "contestant", "accuracy %", "the paper", "forgetting", "transfer", "CPU s to learn", "s per 1,000 answers",
    "kept", "raw", "no boundaries", "no class count", "forgets a class", "exact resume",
)  # fmt: skip

_PICTURED = "mnist"
"""The ring that the README shows."""
OUTDATED = "†"
"""Behind the title of ours where an earlier engine learned."""
OUTDATED_NOTE = f"{OUTDATED} learned by an earlier engine than today's."


def row(record: Record, published: dict[str, dict[str, float]]) -> Row:
    """The cells of one contestant."""
    figure = published.get(record["published"])
    title = record["title"]
    if record["fraction"] < 1.0:
        title += f", {record['fraction']:g} of the examples"
    mean = record["mean"]
    return (
        title,
        _percent(record, "accuracy"),
        "–" if figure is None else f"{figure['mean']:.1f} ± {figure['std']:.1f}",
        _percent(record, "forgetting"),
        _percent(record, "backward_transfer"),
        seconds(mean["learn_cpu_seconds"]),
        seconds(mean["answer_cpu_seconds_per_1000"]),
        size(mean["kept_bytes"]),
        size(mean["raw_bytes"]),
        _yes(record["without_boundaries"]),
        _yes(not record["needs_classes"]),
        _yes(record["forgets"]),
        _yes(record["resumes_exactly"]),
    )


def kind_of(record: Record) -> str:
    """How a contestant is drawn: `ours`, `bound` for everything at once, `raw` or `plain`."""
    if record["kind"] == "ours":
        return "ours"
    return "bound" if record["at_once"] else "raw" if record["keeps_raw"] else "plain"


def ahead_of_ours(records: Sequence[Record]) -> list[Record]:
    """Rivals that keep no raw data, see the stream episode by episode, and are more accurate than our best."""
    ours = max((record["mean"]["accuracy"] for record in records if record["kind"] == "ours"), default=1.0)
    return [record for record in records if kind_of(record) == "plain" and record["mean"]["accuracy"] > ours]


def episodes_chart(records: Sequence[Record]) -> str:
    """Accuracy over episodes, everyone."""
    series = [
        charts.Series(
            record["title"],
            [math.nan if value is None else value for value in record["accuracy_after_episode"]],
            kind_of(record),
        )
        for record in records
    ]
    return charts.lines(series, "episode", "Accuracy on the classes seen, after each episode")


def overview(results: Sequence[dict[str, Any]]) -> str:
    """Everyone's accuracy on every ring, by how far they are from our best where they ran; bold who leads without raw.

    Not everyone runs in every ring, so a plain mean would favour those that ran in the easy ones only.
    """
    rings = _rings(results)
    cells: dict[str, dict[str, str]] = {}
    ranks: dict[str, list[float]] = {}
    for ring in rings:
        ahead = {record["name"] for record in ahead_of_ours(ring["contestants"])}
        best = _best_of_ours(ring["contestants"]) if not ahead else ""
        level = max(
            (record["mean"]["accuracy"] for record in ring["contestants"] if record["kind"] == "ours"), default=0.0
        )
        for record in ring["contestants"]:
            text = _percent(record, "accuracy")
            text += f" ({record['fraction']:g})" if record["fraction"] < 1.0 else ""
            title = record["title"].removesuffix(f" {OUTDATED}")
            bold = record["name"] in ahead or record["name"] == best
            mark = "" if title == record["title"] else f" {OUTDATED}"
            cells.setdefault(title, {})[_name(ring)] = (f"**{text}**" if bold else text) + mark
            ranks.setdefault(title, []).append(record["mean"]["accuracy"] - level)
    order = sorted(cells, key=lambda title: -sum(ranks[title]) / len(ranks[title]))
    columns = ["", *map(_name, rings)]
    table = markdown_table(columns, [(title, *(cells[title].get(c, "–") for c in columns[1:])) for title in order])
    return f"{table}\n\n{OUTDATED_NOTE}" if OUTDATED in table else table


def details(results: Sequence[dict[str, Any]]) -> str:
    """All columns, ring by ring."""
    parts = []
    for ring in _rings(results):
        records = ring["contestants"]
        bold = {record["name"] for record in ahead_of_ours(records)} or {_best_of_ours(records)}
        rows = []
        for record in records:
            title, accuracy, *rest = row(record, ring["published"])
            strong = record["name"] in bold
            rows.append((f"**{title}**", f"**{accuracy}**", *rest) if strong else (title, accuracy, *rest))
        absent = "; ".join(f"{title} ({reason})" for title, reason in ring["absent"].items())
        ending = f"\n\nNot in this ring: {absent}." if absent else ""
        if any(record["title"].endswith(OUTDATED) for record in records):
            ending = f"\n\n{OUTDATED_NOTE}{ending}"
        elsewhere = on_other_machines(records, ring["machine"])
        ending += f"\n\n{elsewhere}" if elsewhere else ""
        parts.append(f"{_title(ring)}\n\n{markdown_table(COLUMNS, rows)}{ending}")
    return "\n\n".join(parts)


def picture(results: Sequence[dict[str, Any]]) -> str | None:
    """The README's picture, or nothing where its ring was not run."""
    found = [ring for ring in _rings(results) if _name(ring) == name_of(_PICTURED)]
    return charts.standalone(episodes_chart(found[0]["contestants"])) if found else None


def on_other_machines(records: Sequence[Record], machine: dict[str, Any]) -> str:
    """Who ran on another machine than the one the result was written on, so that seconds are not comparable."""
    return _differing(records, "machine", describe(machine), "Run on another machine")


def at_other_commits(records: Sequence[Record], commit: str | None) -> str:
    """Who ran with other code than the one the result was written with."""
    return _differing(records, "commit", commit or "", "Run at another commit")


def _differing(records: Sequence[Record], fact: str, usual: str, words: str) -> str:
    """Contestants by a fact of their runs that is not the usual one; earlier runs do not say."""
    others: dict[str, list[str]] = {}
    for record in records:
        for found in sorted({run.get(fact, "") for run in record.get("runs", ())} - {"", usual}):
            others.setdefault(found, []).append(record["title"])
    return f"{words}: {'; '.join(f'{who} ({what})' for what, who in _joined(others))}." if others else ""


def _joined(others: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(what, ", ".join(who)) for what, who in others.items()]


def size(count: float) -> str:
    """Bytes for people.

    >>> size(39_200), size(0), size(401_000_000)
    ('39 kB', '0', '401 MB')
    """
    if count >= 999_500:
        return f"{count / 1e6:,.1f} MB" if count < 99.5e6 else f"{count / 1e6:,.0f} MB"
    return f"{count / 1e3:,.0f} kB" if count >= 1 else "0"


def seconds(value: float) -> str:
    """Seconds with as many digits as mean something.

    >>> seconds(0.01234), seconds(3.21), seconds(312.7)
    ('0.012', '3.2', '313')
    """
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _rings(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rings judged by the test set, in the usual order of data sets; blurry and pretrained ones after the plain."""
    found = [result for result in results if "ring" in result and result["data"]["judged_by"] == "the test set"]
    return sorted(
        found,
        key=lambda ring: (
            place_of(ring["ring"]),
            bool(ring["settings"]["blurry"]),
            bool(ring["settings"].get("pretrained")),
        ),
    )


def _best_of_ours(records: Sequence[Record]) -> str:
    ours = [record for record in records if record["kind"] == "ours"]
    return str(max(ours, key=lambda record: record["mean"]["accuracy"])["name"]) if ours else ""


def _title(ring: dict[str, Any]) -> str:
    settings, seeds = ring["settings"], {len(record["seeds"]) for record in ring["contestants"]}
    blurry = settings["blurry"]
    kind = (
        f"{settings['classes_per_episode']} of {ring['data']['classes']} classes at a time, {settings['order']} order"
    )
    if blurry:
        kind = f"blurry, c = {blurry['c']}, η = {blurry['eta']:g}"
    many = f"{min(seeds)} to {max(seeds)} seeds" if len(seeds) > 1 else f"{min(seeds)} seed{'s' * (min(seeds) > 1)}"
    return f"**{_name(ring)}**, {kind}, {many}; those that replay examples may keep {settings['memory']:,}."


def _name(ring: dict[str, Any]) -> str:
    """Of the data, and what else tells a ring from the others."""
    blurry, pretrained = ring["settings"]["blurry"], ring["settings"].get("pretrained")
    words = [name_of(ring["ring"])]
    words += [f"blurry {blurry['c']}, {blurry['eta']:g}"] if blurry else []
    words += [f"G pretrained on {name_of(pretrained['source'])}"] if pretrained else []
    return ", ".join(words)


def _percent(record: Record, name: str) -> str:
    mean, std = record["mean"][name], record["std"][name]
    if mean is None or std is None:
        return "–"
    return f"{100 * mean:.1f} ± {100 * std:.1f}" if len(record["seeds"]) > 1 else f"{100 * mean:.1f}"


def _yes(fact: bool | None) -> str:
    return "–" if fact is None else "yes" if fact else "no"
