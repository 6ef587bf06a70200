"""The command line of the proof."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.reporting.files import write_text
from benchmarks.reporting.runner import entry_point, new_app
from devtools.server_process import ROOT
from reliability.proof import results
from reliability.proof.page import page
from reliability.proof.parts import PARTS, Part, Run

app = new_app()


@app.command()
def command(
    only: Annotated[list[str] | None, typer.Option(help=f"Only this part: {', '.join(p.name for p in PARTS)}.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A short form, below ./sharp-proof: it shows nothing.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Run also what is shown for the code as it is.")] = False,
    folder: Annotated[Path | None, typer.Option("--results", help="Folder of the results.")] = None,
    to: Annotated[Path | None, typer.Option(help="File of the page.")] = None,
    page_only: Annotated[bool, typer.Option("--page", help="Run nothing: write the page from the results.")] = False,
) -> None:
    """Run every part of the proof that is not shown for the code as it is, and write the page after each."""
    console = Console()
    unknown = set(only or ()) - {part.name for part in PARTS}
    if unknown:
        raise typer.BadParameter(f"there is no part {', '.join(sorted(unknown))}")
    folder = folder or (Path("sharp-proof") if quick else ROOT / "benchmarks" / "results")
    file = to or (folder / "proof.md" if quick else ROOT / "docs" / "proof.md")
    folder.mkdir(parents=True, exist_ok=True)

    def write() -> None:
        entries = [(part, results.find(part, folder, quick)) for part in PARTS]
        write_text(file, page(entries, quick, folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder))

    write()
    outcomes = {}
    for part in PARTS:
        if not page_only and (not only or part.name in only):
            outcomes[part.name] = _show(part, quick, again, folder, console)
            write()
    console.print(_table(outcomes), f"written: {file}", sep="\n", highlight=False)
    if not set(outcomes.values()) <= {"shown", "ran", "left out"}:
        raise typer.Exit(1)


def _show(part: Part, quick: bool, again: bool, folder: Path, console: Console) -> str:
    """Run what is missing of a part; says how it stands then."""
    found = results.find(part, folder, quick)
    if part.lasts and not again and not quick and results.is_shown(part, found, quick):
        console.print(f"{part.name}: shown for the code as it is", highlight=False)
        return "shown"
    why = part.left_out(quick)
    if why:
        console.print(f"{part.name}: left out, {why}", highlight=False)
        return "left out"
    codes = [
        _run(part, run, folder, console)
        for run in part.runs(quick)
        if again or quick or not results.is_done(run, part, folder)
    ]
    if quick:
        return "missed" if any(codes) else "ran"
    return "shown" if not any(codes) and results.is_shown(part, results.find(part, folder, quick), quick) else "missed"


def _run(part: Part, run: Run, folder: Path, console: Console) -> int:
    """Run one process of a part and keep its result; gives its exit code."""
    code, written = results.digest(part.code), folder.absolute() / f".{run.name}.json.part"
    written.unlink(missing_ok=True)
    argv = run.command(written)
    console.rule(f"{part.name}: {' '.join(argv[1:])}")
    begun = time.monotonic()
    exit_code = subprocess.run(argv, cwd=ROOT, check=False).returncode
    console.print(f"{run.name}: exit code {exit_code} after {time.monotonic() - begun:,.0f} s", highlight=False)
    if results.digest(part.code) != code:
        console.print(f"{run.name}: the code was changed meanwhile, so this shows nothing", style="bold red")
        written.unlink(missing_ok=True)
        return exit_code or 1
    if not written.exists():
        return exit_code or 1
    results.keep(written, folder / f"{run.name}.json", run, code)
    return exit_code


def _table(outcomes: dict[str, str]) -> Table:
    table = Table("part", "", box=None)
    for name, outcome in outcomes.items():
        table.add_row(name, outcome if outcome != "missed" else f"[bold red]{outcome}")
    return table


main = entry_point(app, "reliability.proof")

if __name__ == "__main__":
    main()
