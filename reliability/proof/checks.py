"""Commands that write no result of their own, with one: tests, the audit, the versions of Python, the container."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.reporting.files import write_json
from benchmarks.reporting.machine import machine, versions
from devtools import pythons
from devtools.server_process import ROOT

app = typer.Typer(add_completion=False)
Output = Annotated[Path, typer.Option(help="JSON file for the result.")]


@dataclass(frozen=True)
class _Checked:
    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"versions": versions(), "machine": machine(), **asdict(self)}


@dataclass(frozen=True)
class PassedTests(_Checked):
    """What became of the tests of some files."""

    files: tuple[str, ...]
    passed: int
    failed: int
    """Or skipped: what did not run shows nothing."""


@dataclass(frozen=True)
class AuditResult(_Checked):
    """What the audit told."""

    exit_code: int
    told: str
    """Its last line."""


@dataclass(frozen=True)
class PythonsResult(_Checked):
    """pytest's exit code with each version of Python; None where it is absent."""

    exit_codes: dict[str, int | None]


@dataclass(frozen=True)
class ContainerResult(_Checked):
    """Which checks of the image passed, in their own words."""

    exit_code: int
    passed: tuple[str, ...]
    told: str
    """The last line, where a check failed."""


@app.command()
def tests(files: list[str], output: Output) -> None:
    """Run the tests of some files."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        argv = [sys.executable, "-m", "pytest", *files, "-n", "0", "-q", f"--junitxml={report}"]
        done = subprocess.run(argv, cwd=ROOT, check=False)
        suites = xml.etree.ElementTree.parse(report).getroot().iter("testsuite") if report.exists() else ()
        counts = [
            {name: int(suite.get(name, 0)) for name in ("tests", "errors", "failures", "skipped")} for suite in suites
        ]
    bad = sum(count["errors"] + count["failures"] + count["skipped"] for count in counts)
    passed = sum(count["tests"] for count in counts) - bad
    write_json(output, PassedTests(tuple(files), passed, bad or int(done.returncode != 0)).to_dict())
    raise typer.Exit(done.returncode)


@app.command()
def audit(output: Output) -> None:
    """Compare what is installed with the known vulnerabilities."""
    argv = [sys.executable, "tests/abuse/audit.py"]
    done = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    typer.echo("\n".join(lines))
    write_json(output, AuditResult(done.returncode, lines[-1] if lines else "it said nothing").to_dict())
    raise typer.Exit(done.returncode)


@app.command("pythons")
def each_python(output: Output) -> None:
    """Run the tests with every version of Python that the project promises to run on."""
    exit_codes = pythons.run_all(pythons.VERSIONS, pythons.TESTS.split())
    write_json(output, PythonsResult(exit_codes).to_dict())
    raise typer.Exit(int(any(code != 0 for code in exit_codes.values())))


@app.command()
def container(output: Output) -> None:
    """Build the image and run it."""
    argv = [sys.executable, "-m", "tests.docker.image_check"]
    done = subprocess.run(argv, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = done.stdout.strip().splitlines()
    typer.echo("\n".join(lines))
    passed = tuple(" ".join(line.split()[3:]) for line in lines if line.startswith("ok "))
    told = lines[-1] if lines and done.returncode else ""
    write_json(output, ContainerResult(done.returncode, passed, told).to_dict())
    raise typer.Exit(done.returncode)


if __name__ == "__main__":
    app()
