"""The command line: runs each target in a process of its own, for so many seconds, and says what was found."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table

from benchmarks.reporting.machine import machine, versions
from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app

app = new_app()
NAMES = ("decoders", "snapshots", "journal")
_RUNS, _COVERED = re.compile(rb"Done (\d+) runs"), re.compile(rb"cov: (\d+)")
_LONGEST = 1 << 20
_SLOWEST_SECONDS = 20
"""An input that takes longer is a finding."""
_MEBIBYTES = 3000
"""A process that takes more memory is a finding."""


@dataclass(frozen=True)
class TargetResult:
    """What fuzzing one target came to."""

    target: str
    runs: int
    covered: int
    """Places of the code that were reached."""
    seconds: float
    exit_code: int
    findings: tuple[str, ...]
    """Files with inputs that broke it."""
    said: str = ""
    """The end of what the process wrote, where it found something."""


@dataclass
class CoverageResult:
    """All targets."""

    targets: list[TargetResult] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing was found, and every target ran."""
        return all(not t.exit_code and not t.findings and t.runs > 0 for t in self.targets)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        facts = {"versions": versions(), "machine": machine(), "clean": self.clean}
        return {**facts, "targets": [asdict(target) for target in self.targets]}


@app.command()
def command(
    only: Annotated[list[str] | None, typer.Option(help=f"{', '.join(NAMES)}; may be repeated.")] = None,
    seconds: Annotated[int, typer.Option(min=1, help="For each target.")] = 60,
    seed: Annotated[int, typer.Option(min=1, help="Of the mutations.")] = 1,
    folder: Annotated[Path | None, typer.Option(help="Keep the corpus and findings here.")] = None,
    output: Annotated[Path | None, typer.Option(help="JSON file for the result.")] = None,
) -> None:
    """Fuzz what reads bytes from outside, guided by coverage, and fail if anything but a refusal came of it."""
    if importlib.util.find_spec("atheris") is None:
        raise typer.BadParameter("atheris is not installed: pip install 'atheris>=3', or make fuzz-decoders")

    def fuzz(bar: ProgressBar) -> CoverageResult:
        kept, result = folder or Path(tempfile.mkdtemp(prefix="sharp-fuzz-")), CoverageResult()
        for name in only or NAMES:
            bar(f"{name}: {seconds} s")
            result.targets.append(run(name, seconds, seed, kept / name))
        return result

    execute(fuzz, show, output=output, failed=lambda result: not result.clean)


def run(name: str, seconds: int, seed: int, folder: Path) -> TargetResult:
    """Fuzz one target in a process of its own."""
    corpus, findings = folder / "corpus", folder / "findings"
    for place in (corpus, findings):
        place.mkdir(parents=True, exist_ok=True)
    words = [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={_LONGEST}", f"-timeout={_SLOWEST_SECONDS}"]
    words += [f"-rss_limit_mb={_MEBIBYTES}", f"-artifact_prefix={findings}/", "-print_final_stats=0", str(corpus)]
    started = time.monotonic()
    command = [sys.executable, "-m", "reliability.fuzz.coverage.process", name, *words]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    runs, covered = _RUNS.findall(done.stderr), _COVERED.findall(done.stderr)
    return TargetResult(
        target=name,
        runs=int(runs[-1]) if runs else 0,
        covered=int(covered[-1]) if covered else 0,
        seconds=time.monotonic() - started,
        exit_code=done.returncode,
        findings=tuple(str(path) for path in sorted(findings.iterdir())),
        said=(done.stdout + done.stderr).decode(errors="replace")[-3000:] if done.returncode else "",
    )


def show(result: CoverageResult) -> Iterator[RenderableType]:
    """What is printed at the end."""
    table = Table("target", "inputs", "places reached", "seconds", "findings", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in result.targets:
        found = ", ".join(row.findings) or ("none" if not row.exit_code else f"exit code {row.exit_code}")
        table.add_row(row.target, f"{row.runs:,}", str(row.covered), f"{row.seconds:.0f}", found)
    yield table
    yield from (row.said for row in result.targets if row.said)


main = entry_point(app, "reliability.fuzz.coverage")

if __name__ == "__main__":
    main()
