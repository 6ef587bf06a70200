"""Named settings × data sets × seeds, each run once and kept as one line of a file."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import datasets
from benchmarks.datasets import Dataset
from benchmarks.errors import OptionError
from benchmarks.paper.options import PaperOptions, parse_blurry
from benchmarks.paper.result import Result
from benchmarks.paper.run import run as run_paper
from benchmarks.reporting.files import plain
from benchmarks.reporting.machine import machine, versions
from benchmarks.reporting.runner import ReportProgress, silently
from sharp_engine.config import to_dict

RESULTS = Path(__file__).parents[1] / "results"

_SHARED = ("fraction", "memory", "preset", "m", "blurry", "boundaries")
"""Keys that may stand at the top, for all settings, or in one."""


@dataclass(frozen=True)
class Trial:
    """One run to make: a named setting on one data set with one seed."""

    name: str
    options: PaperOptions

    @property
    def key(self) -> str:
        """What the run depends on, as a short digest: the same key gives the same run."""
        seed = self.options.seeds[0]
        what = {**self.options.to_dict(), "set": None, "engine": to_dict(self.options.learner_config(seed))}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def read_trials(path: Path, data_root: Path) -> list[Trial]:
    """All runs that a settings file asks for, seed by seed, so that a stopped search has compared what it has."""
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise OptionError(f"cannot read settings from {path}: {error}") from None
    if not isinstance(table, dict):
        raise OptionError(f"{path} must be a table of settings, not a {type(table).__name__}")
    _only(table, ("datasets", "seeds", "settings", *_SHARED), str(path))
    named = table.get("settings", [])
    names = [setting.get("name") for setting in named]
    if not names or not all(names) or len(set(names)) < len(names):
        raise OptionError(f"{path}: settings must have names, all different, not {names!r}")
    shared = {key: table[key] for key in _SHARED if key in table}
    return [
        Trial(setting["name"], _options(setting, shared, dataset, data_root, seed))
        for seed in table.get("seeds", [0])
        for setting in named
        for dataset in table.get("datasets", ["mnist"])
    ]


def _options(
    setting: Mapping[str, Any], shared: Mapping[str, Any], dataset: str, data_root: Path, seed: int
) -> PaperOptions:
    _only(setting, ("name", "set", *_SHARED), f"setting {setting['name']!r}")
    values = {"preset": "default", **shared, **{key: setting[key] for key in _SHARED if key in setting}}
    if isinstance(values.get("blurry"), str):
        values["blurry"] = parse_blurry(values["blurry"])
    try:
        return PaperOptions(
            dataset=dataset,
            data_root=data_root,
            seeds=(seed,),
            settings=dict(setting.get("set", {})),
            validate=True,
            **values,
        )
    except (TypeError, ValueError) as error:  # a word where a number belongs
        raise OptionError(f"setting {setting['name']!r}: {error}") from None


def _only(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise OptionError(f"{where} has no key {unknown[0]!r}: there are {', '.join(known)}")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The runs that were finished; a last line that was cut off by a crash is passed over."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines


def line_of(trial: Trial, result: Result) -> dict[str, Any]:
    """What is kept of a run."""
    figures = result.runs[0].figures()
    options = trial.options
    return {
        "key": trial.key,
        "name": trial.name,
        "dataset": options.dataset,
        "seed": options.seeds[0],
        "average_accuracy": figures["average_accuracy"],
        "forgetting": figures["forgetting"],
        "accuracy_after_episode": figures["accuracy_after_episode"],
        "seconds": sum(figures["seconds_per_episode"]),
        "cpu_seconds": sum(figures["cpu_seconds_per_episode"]),
        "stm_bytes": max(figures["stm_bytes"]),
        "ltm_bytes": figures["ltm_bytes"][-1],
        "settings": options.to_dict(),
        "versions": versions(),
        "machine": machine(),
    }


def search(
    trials: list[Trial], path: Path, console: Console, progress: ReportProgress = silently
) -> list[dict[str, Any]]:
    """Make the runs that are not in `path` yet, append each, and return the lines of all trials."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {line["key"] for line in read_lines(path)}
    loaded: dict[str, Dataset] = {}
    for number, trial in enumerate(trials, 1):
        what = f"{number}/{len(trials)} {trial.name} on {trial.options.dataset}, seed {trial.options.seeds[0]}"
        if trial.key in done:
            console.print(f"{what}: done before", style="dim", highlight=False)
            continue
        name = trial.options.dataset
        if name not in loaded:
            loaded[name] = datasets.load(name, trial.options.data_root, test=False)
        console.print(what, highlight=False)
        line = line_of(trial, run_paper(trial.options, progress=progress, dataset=loaded[name]))
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(plain(line), allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        done.add(trial.key)
        console.print(f"  {100 * line['average_accuracy']:.2f} %, {line['seconds']:.0f} s", highlight=False)
    wanted = {trial.key for trial in trials}
    newest = {line["key"]: line for line in read_lines(path) if line["key"] in wanted}
    return list(newest.values())


def summary(lines: list[dict[str, Any]], trials: list[Trial]) -> Table:
    """Means by setting and data set, the best setting first."""
    names = list(dict.fromkeys(trial.name for trial in trials))
    datasets = list(dict.fromkeys(trial.options.dataset for trial in trials))
    table = Table(
        "setting", title="Validation accuracy, %", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for column in (*datasets, "mean", "CPU s"):
        table.add_column(column, justify="right")
    keys = {name: {trial.key for trial in trials if trial.name == name} for name in names}
    rows = [(name, *_row([line for line in lines if line["key"] in keys[name]], datasets)) for name in names]
    for name, cells, mean, seconds in sorted(rows, key=lambda row: -row[2] if row[2] == row[2] else 1.0):
        table.add_row(name, *cells, f"{100 * mean:.2f}", f"{seconds:.0f}")
    return table


def _row(lines: list[dict[str, Any]], datasets: list[str]) -> tuple[list[str], float, float]:
    """Cells per data set, the mean over data sets, and the mean time of a run."""
    cells, means = [], []
    for dataset in datasets:
        values = [line["average_accuracy"] for line in lines if line["dataset"] == dataset]
        cells.append(f"{100 * np.mean(values):.2f} ± {100 * np.std(values):.2f} ({len(values)})" if values else "–")
        means.append(float(np.mean(values)) if values else float("nan"))
    seconds = [line["cpu_seconds"] for line in lines]
    return cells, float(np.mean(means)), float(np.mean(seconds)) if seconds else float("nan")


def chosen(trials: list[Trial], only: list[str] | None) -> Iterator[Trial]:
    """The trials of the named settings, or all."""
    unknown = set(only or ()) - {trial.name for trial in trials}
    if unknown:
        raise OptionError(f"no setting is named {sorted(unknown)[0]!r}")
    return (trial for trial in trials if not only or trial.name in only)
