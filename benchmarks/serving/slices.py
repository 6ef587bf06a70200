"""One large and ten small learners on one trainer: how long a small episode waits, with slices and without.

`python -m benchmarks.serving.slices` teaches the same data to two servers in turns: one whose trainer leaves an episode
after a phase when others wait, and one that learns whole episodes. Waiting is from the end of an episode until its
version serves. The figures of one run are to be compared with each other only.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.reporting.machine import describe, machine
from benchmarks.reporting.runner import ReportProgress, entry_point, execute, new_app, silently
from devtools.server_process import ONE_THREAD, ServerProcess
from sharp_client import Client, LearnStream

app = new_app()

FEATURES = 64
_WAIT = 1800.0


@dataclass(frozen=True)
class SlicesOptions:
    """How much of everything."""

    rounds: int = 3
    large_examples: int = 40_000
    small_examples: int = 200
    phases: int = 8
    small_learners: int = 10
    niceness: int = 10
    """Of the trainer."""
    settings: tuple[tuple[str, Any], ...] = ()
    """Engine settings of every learner, on top of the phases."""


TINY = SlicesOptions(
    rounds=1,
    large_examples=400,
    small_examples=40,
    phases=3,
    small_learners=3,
    niceness=0,
    settings=(
        ("architecture.kind", "mlp"),
        ("architecture.layers", [{"kind": "linear", "units": 40}] * 3),
        ("training.min_steps", 8),
    ),
)
"""Enough for slices to fall between phases."""


@dataclass
class Waits:
    """Seconds until versions served, over all rounds."""

    small: list[float] = field(default_factory=list)
    small_alone: list[float] = field(default_factory=list)
    """The small ones without the large one."""
    large: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, float]:
        """Medians, the longest wait of a small one, and what the large one adds to it."""
        small, alone = statistics.median(self.small), statistics.median(self.small_alone)
        return {
            "small_median": small,
            "small_longest": max(self.small),
            "small_alone_median": alone,
            "small_added_median": small - alone,
            "large_median": statistics.median(self.large),
        }


@dataclass(frozen=True)
class SlicesResult:
    """Both sides of one run."""

    options: SlicesOptions
    slices: Waits
    whole: Waits

    def to_dict(self) -> dict[str, Any]:
        """For the JSON file."""
        slices, whole = self.slices.to_dict(), self.whole.to_dict()
        return {
            "machine": machine(),
            "options": vars(self.options),
            "slices": slices,
            "whole_episodes": whole,
            "ratios": {key: slices[key] / whole[key] for key in slices},
        }


def run(options: SlicesOptions, progress: ReportProgress = silently) -> SlicesResult:
    """Measure both, in turns."""
    result = SlicesResult(options, Waits(), Waits())
    done = 0
    for number in range(options.rounds):
        for slices in (True, False) if number % 2 == 0 else (False, True):
            progress("slices" if slices else "whole episodes", done, 2 * options.rounds)
            with tempfile.TemporaryDirectory() as folder:
                settings = {
                    "trainer.slices": slices,
                    "trainer.niceness": options.niceness,
                    "limits.unlearned_bytes": 1 << 32,
                }
                with (
                    ServerProcess(Path(folder), settings, environment=ONE_THREAD).start() as server,
                    Client(server.address) as client,
                ):
                    _measure(client, options, result.slices if slices else result.whole)
            done += 1
    return result


def _measure(client: Client, options: SlicesOptions, waits: Waits) -> None:
    settings = {"training.phases": options.phases, **dict(options.settings)}
    client.create_learner("large", overrides=settings)
    for kind in ("alone", "small"):
        for number in range(options.small_learners):
            client.create_learner(f"{kind}-{number}", overrides=settings, seed=number)
    waits.small_alone += _together(client, "alone", options)
    begun = time.perf_counter()
    with client.learn("large") as stream:
        _send(stream, options.large_examples, 20)
        report = stream.end_episode()
        while report.progress is None:  # the trainer is at it
            time.sleep(0.02)
        waits.small += _together(client, "small", options)
        report.wait(_WAIT)
    waits.large.append(time.perf_counter() - begun)


def _together(client: Client, kind: str, options: SlicesOptions) -> list[float]:
    """Teach the small learners at the same time; returns how long each waited."""

    def teach(number: int) -> float:
        with client.learn(f"{kind}-{number}") as stream:
            _send(stream, options.small_examples, 2, number)
            stream.flush(_WAIT)
            begun = time.perf_counter()
            stream.end_episode().wait(_WAIT)
            return time.perf_counter() - begun

    with ThreadPoolExecutor(options.small_learners) as pool:
        return list(pool.map(teach, range(options.small_learners)))


def _send(stream: LearnStream, examples: int, classes: int, seed: int = 0) -> None:
    """Made-up vectors: a place for each class, and noise."""
    rng = np.random.default_rng(seed)
    places = rng.normal(size=(classes, FEATURES))
    y = np.arange(examples) % classes
    x = (places[y] + rng.normal(size=(examples, FEATURES))).astype(np.float32)
    for first in range(0, examples, 1000):
        stream.send(x[first : first + 1000], y[first : first + 1000])


@app.command()
def command(
    rounds: Annotated[int, typer.Option(min=1, help="Both sides are measured this often, in turns.")] = 3,
    large_examples: Annotated[int, typer.Option(min=100, help="Examples of the large episode.")] = 40_000,
    output: Annotated[Path | None, typer.Option(help="JSON file for the figures.")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="See that it runs, in seconds; figures mean nothing.")] = False,
) -> None:
    """Measure how long small episodes wait behind a large one, with slices and without."""
    options = TINY if tiny else SlicesOptions(rounds, large_examples)
    execute(lambda bar: run(options, bar), tables, output=output)


def tables(result: SlicesResult) -> Iterator[RenderableType]:
    """What is printed at the end."""
    found = result.to_dict()
    table = Table("seconds until it serves", "slices", "whole episodes", "ratio")
    names = {
        "small_median": "small episode behind a large one, median",
        "small_longest": "the same, the longest",
        "small_alone_median": "small episode without a large one, median",
        "small_added_median": "what the large one adds to that",
        "large_median": "large episode",
    }
    for key, name in names.items():
        slices, whole, ratio = found["slices"][key], found["whole_episodes"][key], found["ratios"][key]
        table.add_row(name, f"{slices:.2f}", f"{whole:.2f}", f"{ratio:.2f}")
    yield table
    yield Text(describe(machine()), style="dim")


main = entry_point(app, "benchmarks.serving.slices")

if __name__ == "__main__":
    main()
