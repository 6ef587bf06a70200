"""Commands that write no result of their own, with one: tests of one file, and the audit."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.reporting.files import write_json
from benchmarks.reporting.machine import machine, versions
from devtools.server_process import ROOT

app = typer.Typer(add_completion=False)
Output = Annotated[Path, typer.Option(help="JSON file for the result.")]


@app.command()
def tests(file: str, output: Output) -> None:
    """Run the tests of one file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", file, "-n", "0", "-q", f"--junitxml={report}"], cwd=ROOT, check=False
        )
        suites = xml.etree.ElementTree.parse(report).getroot().iter("testsuite") if report.exists() else ()
        counts = [
            {name: int(suite.get(name, 0)) for name in ("tests", "errors", "failures", "skipped")} for suite in suites
        ]
    failed = sum(count["errors"] + count["failures"] + count["skipped"] for count in counts) or int(
        done.returncode != 0
    )
    passed = sum(count["tests"] for count in counts) - failed
    write_json(output, {"versions": versions(), "machine": machine(), "file": file, "passed": passed, "failed": failed})
    raise typer.Exit(done.returncode)


@app.command()
def audit(output: Output) -> None:
    """Compare what is installed with the known vulnerabilities."""
    done = subprocess.run(
        [sys.executable, "tests/abuse/audit.py"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    lines = (done.stdout + done.stderr).strip().splitlines()
    told = lines[-1] if lines else "it said nothing"
    typer.echo("\n".join(lines))
    write_json(output, {"versions": versions(), "machine": machine(), "exit_code": done.returncode, "told": told})
    raise typer.Exit(done.returncode)


if __name__ == "__main__":
    app()
