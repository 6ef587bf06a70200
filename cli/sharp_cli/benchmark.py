"""`sharp benchmark …`: runs the benchmarks of a clone.

The benchmarks are not part of the installed package, so they are imported only when asked for. They read their own
options: what follows the command is passed on unchanged.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import typer
from rich.console import Console

app = typer.Typer(
    help="Re-run the paper's tables and measure the engine's and the server's speed, from a clone.",
    no_args_is_help=True,
)

_HAND_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Options, and --help, belong to the benchmark."""


@app.command(context_settings=_HAND_ON, add_help_option=False)
def paper(context: typer.Context) -> None:
    """Run the paper's class-incremental benchmark and print our figures beside the paper's."""
    _run("benchmarks.paper.__main__", context)


@app.command(context_settings=_HAND_ON, add_help_option=False)
def learner(context: typer.Context) -> None:
    """Measure the default learner: class by class, few examples, corrections, unknown classes, shares."""
    _run("benchmarks.learner.__main__", context)


@app.command(context_settings=_HAND_ON, add_help_option=False)
def ring(context: typer.Context) -> None:
    """Run our learner beside every rival of the paper and what a user would pick instead, on the same stream."""
    _run("benchmarks.ring.__main__", context)


@app.command(context_settings=_HAND_ON, add_help_option=False)
def speed(context: typer.Context) -> None:
    """Measure training, prediction, growth and snapshots against their floors."""
    _run("benchmarks.speed.__main__", context)


@app.command(context_settings=_HAND_ON, add_help_option=False)
def serving(context: typer.Context) -> None:
    """Measure a running server: latency while it learns, and throughput beside what is possible at most."""
    _run("benchmarks.serving.__main__", context)


@app.command(context_settings=_HAND_ON, add_help_option=False)
def fuzz(context: typer.Context) -> None:
    """Attack a server with hostile messages, files and connections."""
    _run("reliability.fuzz.__main__", context)


@app.command(context_settings=_HAND_ON, add_help_option=False)
def load(context: typer.Context) -> None:
    """Load a server to 80 % of its capacity for minutes, while everything else runs."""
    _run("reliability.load.__main__", context)


def _run(module: str, context: typer.Context) -> None:
    here = Path.cwd()
    if (here / "benchmarks" / "__init__.py").is_file() and str(here) not in sys.path:
        sys.path.insert(0, str(here))
    try:
        benchmark = importlib.import_module(module)
    except ModuleNotFoundError as error:
        _explain(error.name or module)
        raise typer.Exit(2) from None
    benchmark.main(list(context.args), context.command_path)


def _explain(missing: str) -> None:
    """Say what is missing and what to do about it."""
    if missing.partition(".")[0] in ("benchmarks", "reliability"):
        advice = "the benchmarks come with a clone of the repository, not with the package: run this in a clone"
    else:
        advice = f"the benchmarks need {missing}, which is not installed: run `make env` in a clone"
    Console(stderr=True).print(f"[bold red]cannot run:[/] {advice}", highlight=False)
