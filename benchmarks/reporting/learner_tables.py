"""The learner's tables, from its results: for the documents as Markdown, for a terminal as they are.

Documents quote only what was judged by the test sets, with whole training sets and the default preset. Shares are
shown in %. No figure is computed here that is not in the files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.reporting.markdown import Row, markdown_table

Result = dict[str, Any]


@dataclass(frozen=True)
class LearnerTable:
    """One group of experiments as a table."""

    columns: Row
    rows: Callable[[Result], Sequence[Row]]
    """Of one experiment."""


def markdown(group: str, results: Sequence[Result]) -> str:
    """The table of a group for the documents."""
    quoted = [result for result in results if result.get("learner") == group and result["settings"]["for_the_record"]]
    table = GROUPS[group]
    return markdown_table(table.columns, [row for result in in_order(quoted) for row in table.rows(result)])


_ORDER = ("mnist", "fashion-mnist", "cifar10", "cifar100", "banking77", "digits", "letters")


def in_order(results: Sequence[Result]) -> list[Result]:
    """As the data sets are usually told; cases with a longer name of the same set follow it."""

    def place(result: Result) -> tuple[int, str]:
        case = str(result["case"])
        known = [i for i, name in enumerate(_ORDER) if case == name or case.startswith(f"{name}-")]
        return max(known, default=len(_ORDER)), case

    return sorted(results, key=place)


def _sequences(result: Result) -> Sequence[Row]:
    mean, at_once = result["mean"], result["everything_at_once"]
    accuracy = f"**{100 * mean['accuracy']:.1f}** ± {100 * result['std']['accuracy']:.1f}"
    if result["to_reach"].startswith("spread"):
        accuracy += f", spread {100 * result['spread']['accuracy']:.1f}"
    kilobytes = (f"{mean['bytes'][name] / 1000:,.0f}" for name in ("semantic", "episodic", "features", "stm", "ltm"))
    return [
        (
            result["title"],
            accuracy,
            result["to_reach"],
            "–" if at_once is None else f"{100 * at_once:.1f}",
            *kilobytes,
            f"{mean['metric_seconds']:,.0f} of {mean['seconds']:,.0f}",
        )
    ]


def _few(result: Result) -> Sequence[Row]:
    rows = []
    for number in (name for name in result["mean"] if name.isdigit()):
        found = result["mean"][number]
        cells = [
            " / ".join(f"{100 * found[who][where]:.1f}" for where in ("few", "others", "overall"))
            for who in ("learner", "discriminant", "neighbours")
        ]
        rows.append((result["title"], number, f"**{cells[0]}**", *cells[1:], result["to_reach"]))
    return rows


def _corrections(result: Result) -> Sequence[Row]:
    mean, most = result["mean"], result["most"]
    what = {
        "single": f"{result['title']}: three of a class, {mean['classes']:.0f} classes one by one",
        "many": f"{result['title']}: {mean['many']['corrections']:.0f} over all classes",
    }
    rows = []
    for kind, title in what.items():
        if kind not in mean:
            continue
        for time, words in (("once", "taught"), ("twice", "taught again")):
            found, least, worst = mean[kind][time], result["least"][kind][time], most[kind][time]
            overall = worst.get("worst_overall_loss", worst["overall_loss"])
            rows.append(
                (
                    f"{title}, {words}",
                    f"{100 * least['right_when_taught']:.1f} / {100 * least['right']:.1f}",
                    f"{100 * found['class_loss']:+.2f} (worst {100 * worst['worst_class_loss']:+.2f})",
                    f"{100 * found['overall_loss']:+.2f} (worst {100 * overall:+.2f})",
                    result["to_reach"],
                )
            )
    return rows


def _novelty(result: Result) -> Sequence[Row]:
    mean = result["mean"]
    return [
        (
            result["title"],
            f"**{mean['auroc']:.3f}**",
            f"{mean['auroc_of_neighbours']:.3f}",
            f"{100 * mean['known_flagged']:.1f}",
            f"{100 * mean['unknown_flagged']:.1f}",
            result["to_reach"],
        )
    ]


def _shares(result: Result) -> Sequence[Row]:
    error, deviation = result["mean"]["calibration_error"], result["std"]["calibration_error"]
    return [(result["title"], f"**{error:.3f}** ± {deviation:.3f}", result["to_reach"])]


GROUPS: dict[str, LearnerTable] = {
    "sequences": LearnerTable(
        (
            *("", "accuracy", "to reach", "the paper, everything at once"),
            *("semantic kB", "episodic kB", "dictionary kB", "STM kB", "LTM kB", "seconds until the metric answers"),
        ),
        _sequences,
    ),
    "few": LearnerTable(
        ("", "examples", "learner: they / the others / all", "linear discriminant", "5-NN", "to reach"), _few
    ),
    "corrections": LearnerTable(
        ("", "right when taught / in the end", "lost on the class", "lost over all classes", "to reach"), _corrections
    ),
    "novelty": LearnerTable(
        ("", "AUROC", "of 5-NN distance", "known flagged", "unknown flagged", "to reach"), _novelty
    ),
    "shares": LearnerTable(("", "expected calibration error", "to reach"), _shares),
}
"""By the experiments' group."""
