"""How good a version is, in words and tables: for status, watch, learn, show and evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from sharp_cli.output import count, table
from sharp_client import ClassFall, Confusion, EpisodeReport, Evaluation, Quality, QualityReport

PAIRS = 5
"""Confused pairs that are shown."""


def summary(report: QualityReport | None) -> str:
    """Say it in a few words: "96.2 % of 104 held-out examples, 1.3 points more than before"; empty if not measured."""
    if report is None or report.quality is None:
        return ""
    now = report.quality
    words = f"{now.accuracy:.1%} of {count(now.examples, 'held-out example')}"
    if report.before is None:
        return words
    points = 100 * (now.accuracy - report.before.accuracy)
    if abs(points) < 0.05:
        return f"{words}, as before"
    return f"{words}, {abs(points):.1f} points {'more' if points > 0 else 'less'} than before"


def short(report: QualityReport | None) -> str:
    """The accuracy alone, for a column."""
    return "–" if report is None or report.quality is None else f"{report.quality.accuracy:.1%}"


def fall(fallen: ClassFall) -> str:
    """Say that a class got worse."""
    before, now = fallen.before, fallen.now
    return (
        f"{now.label} got worse: {now.accuracy:.0%} of {count(now.examples, 'held-out example')} right, "
        f"before {before.accuracy:.0%} of {before.examples:,}"
    )


def fallen_in(reports: Sequence[EpisodeReport]) -> list[str]:
    """What to warn about after learning: the classes that got worse with each episode."""
    found = []
    for report in reports:
        learned = report.learned
        statistics = learned.statistics if learned is not None else None
        if learned is not None and statistics is not None and statistics.quality is not None:
            found += [f"version {learned.model_version}: {fall(one)}" for one in statistics.quality.fallen]
    return found


def pairs(confusions: Sequence[Confusion]) -> Table:
    """The most confused pairs."""
    rows = [[pair.label, pair.answered, pair.examples] for pair in confusions[:PAIRS]]
    return table("confused", "answered", "times", rows=rows, numbers=("times",))


def confused_pairs(result: Evaluation) -> list[Confusion]:
    """The pairs of an evaluation, most frequent first."""
    found = [
        Confusion(result.classes[row], result.classes[column], int(times))
        for row, line in enumerate(result.confusion)
        for column, times in enumerate(line)
        if row != column and times
    ]
    return sorted(found, key=lambda pair: (-pair.examples, str(pair.label), str(pair.answered)))


def over_versions(qualities: Sequence[Quality]) -> Table:
    """A row for each version, newest first."""
    rows: list[list[Any]] = [
        [
            one.model_version,
            f"{one.accuracy:.1%}",
            one.examples,
            ", ".join(
                f"{entry.label} {entry.accuracy:.0%}" for entry in one.classes[:3] if entry.right < entry.examples
            ),
        ]
        for one in qualities
    ]
    return table("version", "accuracy", "examples", "worst", rows=rows, numbers=("version", "accuracy", "examples"))
