"""A result as tables for a terminal: our figures beside the paper's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.paper.result import SCALARS, Result
from benchmarks.reporting.machine import describe

_LOOK: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "pad_edge": False}


def paper_tables(result: Result) -> Iterator[RenderableType]:
    """What is printed at the end of a run."""
    yield _accuracy(result)
    yield _figures(result)
    if any(run.checks is not None for run in result.runs):
        yield _checks(result)
    for remark in result.remarks:
        yield Text(remark, style="yellow")
    yield Text(f"{result.architecture}\n{describe(result.machine)}", style="dim")


def ours(result: Result) -> str:
    """What our line is called."""
    return f"SHARP here, {result.settings['preset']} preset"


def percent(mean: float, std: float) -> str:
    """A share as per cent.

    >>> percent(0.8804, 0.013)
    '88.0 ± 1.3'
    """
    return f"{100 * mean:.1f} ± {100 * std:.1f}"


def _accuracy(result: Result) -> Table:
    settings = result.settings
    title = f"{settings['dataset']}: average accuracy after all episodes, %"
    table = Table("method", title=title, **_LOOK)
    table.add_column("accuracy", justify="right")
    table.add_column("", style="dim")
    rows = [(method, figure["mean"], figure["std"], "the paper") for method, figure in result.published.items()]
    mean, std = result.mean("average_accuracy"), result.std("average_accuracy")
    note = f"seeds {', '.join(str(run.seed) for run in result.runs)}"
    rows.append((ours(result), 100 * mean, 100 * std, note))
    if (given := result.if_given()) is not None:
        rows.append(("the same, boundaries given", 100 * given[0], 100 * given[1], note))
    for method, figure, deviation, remark in sorted(rows, key=lambda row: -row[1]):
        style = "bold green" if method == ours(result) else "bold" if method == "SHARP" else None
        table.add_row(method, f"{figure:.1f} ± {deviation:.1f}", remark, style=style)
    return table


def _figures(result: Result) -> Table:
    budget = result.runs[-1].episodes[-1].stm_budget_bytes
    caption = f"accuracy, forgetting and backward transfer in %; the STM budget is {budget:,} bytes"
    table = Table(title="By seed", caption=caption, caption_justify="left", **_LOOK)
    table.add_column("seed", no_wrap=True)
    for column in ("accuracy", "forgetting", "transfer", "seconds", "STM kB", "LTM kB", "episodes"):
        table.add_column(column, justify="right", no_wrap=True)
    for run in result.runs:
        figures = run.figures()
        learned, given = len(run.episodes), len(run.given)
        table.add_row(
            str(run.seed),
            *(f"{100 * figures[name]:.1f}" for name in SCALARS),
            f"{sum(figures['seconds_per_episode']):.1f}",
            f"{max(figures['stm_bytes']) / 1000:,.1f}",
            f"{figures['ltm_bytes'][-1] / 1000:,.1f}",
            f"{learned} for {given}" if result.settings["boundaries"] == "automatic" else str(given),
        )
    table.add_section()
    seconds = [sum(e.seconds for e in run.episodes) for run in result.runs]
    table.add_row(
        "mean", *(f"{100 * result.mean(name):.1f}" for name in SCALARS), f"{np.mean(seconds):.1f}", style="bold"
    )
    table.add_row("std", *(f"{100 * result.std(name):.1f}" for name in SCALARS), f"{np.std(seconds):.1f}", style="dim")
    return table


def _checks(result: Result) -> Table:
    """One line per invariant: it holds for every seed, or what is wrong with which."""
    table = Table("invariant", "found", title="Checks", **_LOOK)
    found: dict[str, list[str]] = {}
    for run in result.runs:
        for name, wrong in run.checks or ():
            found.setdefault(name, []).extend([f"seed {run.seed}: {wrong}"] if wrong else [])
    for name, wrongs in found.items():
        table.add_row(name, "\n".join(wrongs) or "holds", style="bold red" if wrongs else None)
    return table
