"""The paper's tables and figures with ours beside, from what `sharp benchmark paper` measured.

Main results have one table; its supplement's budgets of memory, its values of m, its blurry sequences and pretrained
layers have one each, which is not there until it was measured. No figure is computed that is not in the files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.reporting.data_names import name_of, place_of
from benchmarks.reporting.markdown import Row, markdown_table

Run = dict[str, Any]

_BUDGETS = ("half", "full", "double")
_BOUNDS = ("Joint (upper bound)", "SGD (lower bound)")
_PRETRAINED = "architecture.pretrained"


def accuracy(results: Sequence[Run]) -> str:
    """Average accuracy over all classes after all episodes, beside the paper's."""
    scenarios: dict[str, dict[str, Any]] = {}
    for run in filter(_is_main, _runs(results)):
        row = scenarios.setdefault(_scenario(run), {"published": run["published"]})
        row[run["settings"]["preset"]] = _measured(run)
    rows = [
        (name, row.get("default", "–"), row.get("paper", "–"), *_beside(row["published"]),
         _published(row["published"].get("SGD (lower bound)")))
        for name, row in scenarios.items()
    ]  # fmt: skip
    columns = ("data set", "default preset", "the paper's settings", "SHARP there", "next there", "fine-tuning there")
    return markdown_table(columns, rows)


def memory(results: Sequence[Run]) -> str:
    """Half and double memory: tables 6 and 7 of the paper."""
    found = _family(results, lambda run: run["settings"]["memory"] != "full")
    found.sort(key=lambda run: (*_order(run), _BUDGETS.index(run["settings"]["memory"])))
    rows = [(_title(run), run["settings"]["memory"], _measured(run), *_beside(run["published"])) for run in found]
    columns = ("data set", "memory", "ours", "SHARP there", "next there")
    return _with_head("**Half and double memory** (the paper's tables 6 and 7).", columns, rows)


def window(results: Sequence[Run]) -> str:
    """Episodes that short-term memory holds: figure 5 of the paper."""
    found = _family(results, lambda run: run["settings"]["m"] is not None)
    rows_by_m = {(_title(run), _m(run)): run for run in sorted(found, key=lambda r: r["settings"]["m"] is not None)}
    ordered = sorted(rows_by_m.values(), key=lambda run: (*_order(run), _m(run)))
    head = (
        "**m = 0 … 4**, the episodes that short-term memory holds, at the same bytes (the paper's figure 5, of EMNIST "
        "and without numbers)."
    )
    return _with_head(head, ("data set", "m", "ours"), [(_title(run), str(_m(run)), _measured(run)) for run in ordered])


def blurry(results: Sequence[Run]) -> str:
    """Overlapping episodes: figure 3 of the paper."""
    found = [run for run in _runs(results) if run["settings"]["blurry"]]
    found.sort(key=lambda run: (*_order(run), run["settings"]["blurry"]["c"], run["settings"]["blurry"]["eta"]))
    rows = []
    for run in found:
        c, eta = run["settings"]["blurry"]["c"], run["settings"]["blurry"]["eta"]
        episodes = [one["episodes_given"] for one in run["runs"]]
        many = f"{min(episodes)} to {max(episodes)}" if len(set(episodes)) > 1 else f"{episodes[0]}"
        rows.append((_title(run), str(c), f"{eta:g}", many, _measured(run), _idle(run)))
    head = (
        "**Blurry sequences** (the paper's figure 3, without numbers): episodes of c classes, a place new with "
        "probability η; units of rank 0 are those that nothing has recruited in the end."
    )
    columns = ("data set", "c", "η", "episodes", "ours", "units of rank 0 left, %")
    return _with_head(head, columns, rows)


def pretrained(results: Sequence[Run]) -> str:
    """A pretrained G: figure 2 of the paper; its rivals there stand in the ring."""
    found = [run for run in _runs(results) if _PRETRAINED in run["settings"]["set"]]
    found.sort(key=_order)
    rows = [(_title(run), Path(run["settings"]["set"][_PRETRAINED]).stem, _measured(run)) for run in found]
    return _with_head("**Pretrained G** (the paper's figure 2, without numbers).", ("data set", "G", "ours"), rows)


EXTRA: dict[str, Callable[[Sequence[Run]], str]] = {
    "paper-memory": memory,
    "paper-window": window,
    "paper-blurry": blurry,
    "paper-pretrained": pretrained,
}
"""Tables that are not there until they were measured, by the name of their markers."""


# ---- inside -----------------------------------------------------------------------------------------------------


def _runs(results: Sequence[Run]) -> list[Run]:
    """Runs judged by the test set, in the usual order of data sets; those that the paper has no figures for last."""
    runs = [result for result in results if "average_accuracy" in result and not result["settings"]["validate"]]
    return sorted(runs, key=lambda run: (not run["published"], place_of(run["settings"]["dataset"])))


def _is_main(run: Run) -> bool:
    settings = run["settings"]
    own_table = settings["memory"] != "full" or settings["m"] is not None or settings["blurry"]
    return not own_table and _PRETRAINED not in settings["set"]


def _family(results: Sequence[Run], varied: Callable[[Run], bool]) -> list[Run]:
    """Runs that vary a setting, and the main runs of the same data, for comparison; none where nothing varies."""
    runs = [run for run in _runs(results) if not run["settings"]["blurry"]]
    family = [run for run in runs if varied(run)]
    titles = {_title(run) for run in family}
    return family + [run for run in runs if _is_main(run) and _title(run) in titles]


def _order(run: Run) -> tuple[int, str]:
    return place_of(run["settings"]["dataset"]), _title(run)


def _title(run: Run) -> str:
    """Data set, preset and share: what a row shares with others of its table."""
    settings = run["settings"]
    words = [name_of(settings["dataset"])]
    words += [f"{settings['preset']} preset"] if settings["preset"] != "paper" else []
    return ", ".join([*words, *_circumstances(settings)])


def _scenario(run: Run) -> str:
    return ", ".join([name_of(run["settings"]["dataset"]), *_circumstances(run["settings"])])


def _circumstances(settings: dict[str, Any]) -> list[str]:
    words = ["boundaries found"] if settings["boundaries"] not in ("explicit", "given") else []
    words += [f"{settings['fraction']:g} of the examples"] if settings["fraction"] != 1.0 else []
    return words + [f"{key} = {value}" for key, value in settings["set"].items() if key != _PRETRAINED]


def _m(run: Run) -> int:
    """Episodes in short-term memory; where none are asked for, the preset's."""
    settings = run["settings"]
    return int(settings["m"] if settings["m"] is not None else settings["engine"]["memory"].get("replayed_episodes", 1))


def _idle(run: Run) -> str:
    """Share of all units that have rank 0 after the last episode, mean over seeds."""
    shares = []
    for one in run["runs"]:
        layers = one["units_by_rank"][-1].values()
        shares.append(100 * sum(layer.get("0", 0) for layer in layers) / sum(sum(layer.values()) for layer in layers))
    return f"{sum(shares) / len(shares):.1f}"


def _measured(run: Run) -> str:
    """Average accuracy in %, with its deviation over seeds."""
    mean, std, seeds = run["average_accuracy"], run["std"]["average_accuracy"], len(run["seeds"])
    return f"**{100 * mean:.1f}** ± {100 * std:.1f} ({seeds} seed{'s' if seeds > 1 else ''})"


def _beside(published: dict[str, dict[str, float]]) -> tuple[str, str]:
    """The paper's SHARP, and the best of its rivals."""
    others = {method: figure for method, figure in published.items() if method not in ("SHARP", *_BOUNDS)}
    best = max(others, key=lambda method: others[method]["mean"], default=None)
    following = "–" if best is None else f"{best} {_published(others[best])}"
    return _published(published.get("SHARP")), following


def _published(figure: dict[str, float] | None) -> str:
    return "–" if figure is None else f"{figure['mean']:.1f} ± {figure['std']:.1f}"


def _with_head(head: str, columns: Row, rows: Sequence[Row]) -> str:
    return f"{head}\n\n{markdown_table(columns, rows)}" if rows else ""
