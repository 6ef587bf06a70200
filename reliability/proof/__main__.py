"""The command line of the proof."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.reporting.files import write_text
from benchmarks.reporting.machine import versions
from benchmarks.reporting.runner import entry_point, new_app
from devtools.server_process import ROOT
from reliability.proof.page import page
from reliability.proof.parts import PARTS, Part

app = new_app()
_FILES = {"kills": "crash", "kills-postgres": "crash-postgres", "messages": "fuzz", "hours": "load"}
"""Results that other pages name are called as there."""


@app.command()
def command(
    only: Annotated[list[str] | None, typer.Option(help=f"Only this part: {', '.join(p.name for p in PARTS)}.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A short form, below ./sharp-proof: it shows nothing.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Run also what is done for this commit.")] = False,
    results: Annotated[Path | None, typer.Option(help="Folder of the results.")] = None,
    to: Annotated[Path | None, typer.Option(help="File of the page.")] = None,
    page_only: Annotated[bool, typer.Option("--page", help="Run nothing: write the page from what is there.")] = False,
) -> None:
    """Run every part of the proof that is not done for this commit yet, and write the page."""
    console = Console()
    unknown = set(only or ()) - {part.name for part in PARTS}
    if unknown:
        raise typer.BadParameter(f"there is no part {', '.join(sorted(unknown))}")
    folder = results or (Path("sharp-proof") if quick else ROOT / "benchmarks" / "results")
    file = to or (folder / "proof.md" if quick else ROOT / "docs" / "proof.md")
    folder.mkdir(parents=True, exist_ok=True)
    codes = {}
    for part in PARTS:
        if page_only or (only and part.name not in only):
            continue
        codes[part.name] = _run(part, quick, again, _file(folder, part), console)
    entries = [(part, _read(_file(folder, part))) for part in PARTS]
    shown = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    write_text(file, page(entries, quick, shown))
    console.print(_table(codes), f"written: {file}", sep="\n", highlight=False)
    if any(codes.values()):
        raise typer.Exit(1)


def _file(folder: Path, part: Part) -> Path:
    return folder / f"{_FILES.get(part.name, part.name)}.json"


def _read(file: Path) -> dict[str, Any] | None:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _run(part: Part, quick: bool, again: bool, file: Path, console: Console) -> int | None:
    """Run a part, unless that was done; gives its exit code, none if it was not run."""
    why = part.why_not()
    if why:
        console.print(f"{part.name}: left out, {why}", highlight=False)
        return None
    before, commit = _read(file), versions()["commit"]
    known = commit is not None and not commit.endswith("-dirty")
    if before is not None and not again and known and before["versions"]["commit"] == commit:
        console.print(f"{part.name}: done for {commit}", highlight=False)
        return None
    words = part.command(quick, file)
    console.rule(f"{part.name}: {' '.join(words[1:])}")
    begun = time.monotonic()
    code = subprocess.run(words, cwd=ROOT, check=False).returncode
    console.print(f"{part.name}: exit code {code} after {time.monotonic() - begun:,.0f} s", highlight=False)
    return code


def _table(codes: dict[str, int | None]) -> Table:
    table = Table("part", "", box=None)
    for name, code in codes.items():
        table.add_row(name, "not run" if code is None else "held" if code == 0 else f"[bold red]exit code {code}")
    return table


main = entry_point(app, "reliability.proof")

if __name__ == "__main__":
    main()
