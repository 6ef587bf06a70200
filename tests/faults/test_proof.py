"""The proof: its parts are run, taken up and left out; its page hides no miss and reads what commands really write."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.reporting.files import plain
from benchmarks.reporting.machine import machine, versions
from devtools.server_process import ROOT
from reliability.crash.options import CrashOptions
from reliability.crash.run import CrashResult
from reliability.faults.run import FaultsResult, Outcome
from reliability.faults.scenarios import SCENARIOS
from reliability.fuzz.coverage.__main__ import CoverageResult, TargetResult
from reliability.fuzz.run import FuzzOptions, FuzzResult
from reliability.http import SchemaReport
from reliability.load.result import PREDICT, LoadOptions, LoadResult, Slice
from reliability.memory import Memory
from reliability.proof import __main__ as command
from reliability.proof import results
from reliability.proof.checks import AuditResult, ContainerResult, PassedTests, PythonsResult
from reliability.proof.figures import Result
from reliability.proof.page import page
from reliability.proof.parts import PARTS, Part
from reliability.proof.results import Found
from reliability.simulation.run import SimulationOptions, SimulationResult
from reliability.write_order import Findings

_PARTS = {part.name: part for part in PARTS}
_OPERATIONS = {"snapshot": 3, "restore": 2, "forget": 2, "undo": 1}


def _memory(slope: float = 0.0) -> Memory:
    """Two processes over an hour, with a ripple on the line."""
    memory = Memory()
    for minute in range(60):
        for trace in (memory.front, memory.trainer):
            trace.add(float(minute), int(1e9 + 1e6 * (slope * minute + minute % 2)))
    return memory


def _crash(**more: Any) -> CrashResult:
    facts: dict[str, Any] = {
        "kills": {"server": 60, "teacher": 40},
        "operations": _OPERATIONS,
        "slowest_recovery": 8.5,
        "recoveries": {"server": {"median": 4.0, "slowest": 8.5}},
        "violations": {"nothing is lost": []},
    }
    return CrashResult(CrashOptions(kills=100), **{**facts, **more})


def _fuzz(slope: float = 0.0) -> FuzzResult:
    result = FuzzResult(FuzzOptions(), memory=_memory(slope), planted_same=True, planted_same_after_restart=True)
    result.tallies, result.exit_code = {"/sharp.v1.Admin/Watch": {"calls": 5, "messages": 100_000, "codes": {}}}, 0
    return result


class _LoadOfEqualLatencies(LoadResult):
    def percentile(self, share: float) -> float:
        return 0.02


def _load() -> LoadResult:
    result = _LoadOfEqualLatencies(LoadOptions(120), 5000.0, 7200.0, memory=_memory(), exit_code=0)
    result.slices = [Slice(0.0, 100, {}, 0.005, 0.02, 0.2)]
    result.still_connected = result.connected = result.options.connections
    result.calls.add(PREDICT, "OK", count=1000)
    result.calls.add(PREDICT, "RESOURCE_EXHAUSTED", count=3)
    result.calls.add("Teach", "INTERNAL", "it broke", count=2)
    result.background = {"episodes learned": 7}
    return result


def _faults() -> FaultsResult:
    outcomes = [Outcome(name, scenario.about, 10.0, answered=500) for name, scenario in SCENARIOS.items()]
    outcomes[-1].lost, outcomes[-1].problem = 7, "a restart | serves nothing"
    return FaultsResult(outcomes)


def _with_facts(result: dict[str, Any]) -> dict[str, Any]:
    return {"versions": versions(), "machine": machine(), **result}


_REAL: dict[str, Callable[[], dict[str, Any]]] = {
    "kills": lambda: _crash().to_dict(),
    "kills-postgres": lambda: _crash().to_dict(),
    "messages": lambda: _fuzz().to_dict(),
    "http": lambda: _with_facts(SchemaReport(Counter({("GET /v2", 200): 7})).to_dict()),
    "coverage": lambda: CoverageResult([TargetResult("journal", 5404, 700, 1200.0, 0, ())]).to_dict(),
    "hours": lambda: _load().to_dict(),
    "faults": lambda: _faults().to_dict(),
    "simulation": lambda: {
        **SimulationResult(SimulationOptions(), schedules=2000).to_dict(),
        "failed": {"7": ["a lesson was lost"]},
    },
    "write-order": lambda: Findings(1108, 20, 5).to_dict(),
    "accelerator": lambda: PassedTests(("tests/engine/test_accelerator.py",), 9, 0).to_dict(),
    "upgrade": lambda: PassedTests(("tests/upgrade",), 4, 1).to_dict(),
    "supply-chain": lambda: PassedTests(("tests/docker",), 4, 0).to_dict(),
    "audit": lambda: AuditResult(0, "all 204 installed packages were audited").to_dict(),
    "pythons": lambda: PythonsResult({"3.11": 0, "3.12": 1, "3.13": None}).to_dict(),
    "container": lambda: ContainerResult(1, ("it learns digits: 92 %",), "AssertionError: sigterm").to_dict(),
}
"""What each part's command writes, from its own classes: a key that is renamed there alone fails a test."""


def _real(name: str) -> Result:
    values: Result = json.loads(json.dumps(plain(_REAL[name]())))
    return values


def _page(name: str, *found: Result, current: bool = True, quick: bool = False) -> str:
    return page([(_PARTS[name], Found(found, current))], quick, Path("results"))


# ---- the page -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_the_page_reads_what_the_command_of_every_part_really_writes(part: Part) -> None:
    result = _real(part.name)
    assert part.figures([result], part.wanted(False))
    text = _page(part.name, result)
    assert f"## {part.title}\n\n| what | found | goal |\n" in text and "Not run" not in text
    assert f"ommit {result['versions']['commit'] or 'unknown'}; " in text


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("kills", ["| kills survived | **100** | at least 1,000 |", "| slowest recovery | 8.5 s |", "| server | 4.0"]),
        ("messages", ["| messages over every RPC | **100,000** |", "| memory of the front, after the warm-up | +0.0"]),
        ("http", ["| HTTP requests over every route | **7** | at least 100,000 |"]),
        ("coverage", ["| seconds of fuzzing by coverage | **1,200** | at least 3,600 |", "| journal | 5,404 | 700 |"]),
        (
            "hours",
            [
                "| minutes of load at 80 % of capacity | 120 |",
                "| failed calls but RESOURCE_EXHAUSTED at a limit | **2** | none |",
                "| failures of any kind | **1** | none |",
                "7 episodes learned",
            ],
        ),
        (
            "faults",
            [
                f"| faults in the middle | {len(SCENARIOS)} |",
                "| that broke a promise | **1** | none |",
                "| `full-disk`: every write to the data folder fails: no space | 500 answered | 0.00 | 0 | 0.0 | 0 |",
                "| **7** | **no**: a restart \\| serves nothing |",
            ],
        ),
        ("simulation", ["| simulated orders of events | 2,000 |", "did not hold | **1** | none |"]),
        ("write-order", ["| acknowledgements sent after their flush | 20 | at least 20 |", "| 5 | at least 5 |"]),
        ("upgrade", ["| that did not, or were skipped | **1** | none |"]),
        ("audit", ["| known vulnerabilities | all 204 installed packages were audited |"]),
        ("pythons", ["3.11 | passed |", "3.12 | **failed with exit code 1** |", "3.13 | **absent: no such"]),
        ("container", ["**1, and then AssertionError: sigterm**", "- it learns digits: 92 %"]),
    ],
)
def test_each_part_shows_its_figures_and_its_misses_in_bold(name: str, lines: list[str]) -> None:
    text = _page(name, _real(name))
    for line in lines:
        assert line in text


def test_what_holds_is_plain_and_said_to_be_shown() -> None:
    good = {**_real("simulation"), "failed": {}}
    assert "| Orders of events | shown |" in _page("simulation", good)
    assert "| Orders of events | **missed** |" in _page("simulation", _real("simulation"))
    fewer = _page("simulation", {**good, "schedules": 1999})
    assert "| simulated orders of events | **1,999** | at least 2,000 |" in fewer


def test_runs_with_seeds_of_their_own_add_up() -> None:
    slow = _crash(slowest_recovery=10.1, violations={"nothing is lost": ["a batch", "another"]}).to_dict()
    text = _page("kills", *[_real("kills")] * 9, slow)
    assert "| kills survived | **900** | at least 1,000 |" in text and "| broken promises | **2** |" in text
    assert "| what was killed | 600 server, 400 teacher |" in text and "| **10.1 s** |" in text
    assert "10 of 10 runs; commit" in text
    assert "| kills survived | 1,000 |" in _page("kills", *[_real("kills")] * 10)


def test_an_operation_that_never_came_is_a_miss() -> None:
    assert "| **3 undo** | all four kinds |" in _page("kills", _crash(operations={"undo": 3}).to_dict())


def test_memory_whose_slope_lies_above_zero_is_a_miss() -> None:
    assert "MB per 10000 messages** | not growing |" in _page("messages", _fuzz(slope=0.5).to_dict())
    assert "MB per 10000 messages** |" not in _page("messages", _real("messages"))


def test_many_runs_tell_a_slope_that_no_single_one_tells() -> None:
    def result(slope: float, low: float, high: float) -> Result:
        trace = {"slope_mb": slope, "slope_interval_mb": [low, high]}
        return {**_real("messages"), "memory": {"front": trace, "trainer": trace, "slopes_per": "minute"}}

    assert "| +1.00 (-0.50 to +2.50) MB per minute |" in _page("messages", result(1.0, -0.5, 2.5))
    assert "| **+1.00 (+0.53 to +1.47) MB per minute** |" in _page("messages", *[result(1.0, -0.5, 2.5)] * 10)


def test_load_shows_its_slices_descriptors_files_and_the_teacher_and_says_which_were_not_measured() -> None:
    flat = {"slope_mb": 0.1, "slope_interval_mb": [-0.1, 0.3]}
    measured = _real("hours")
    measured["memory"] |= {"teacher": flat}
    measured |= {
        "ten_minute_slices": [{"requests": 2_000_000, "p50_seconds": 0.003, "p99_seconds": 0.02}] * 12,
        "descriptors": {"first": 530, "last": 528, "most": 560},
        "files": {"first": 40, "last": 400, "most": 410},
    }
    text = _page("hours", measured)
    assert (
        "| 110 to 120 | 2,000,000 | 3.0 | 20 |" in text and "| descriptors: first, last, most | 530, 528, 560 |" in text
    )
    assert "| files: first, last, most | **40, 400, 410** |" in text
    assert "| memory of the teacher, after the warm-up | +0.10 (-0.10 to +0.30) MB per minute |" in text
    for key in ("descriptors", "files"):
        measured.pop(key)
    assert _page("hours", measured).count("**not measured**") == 2


def test_a_part_without_a_result_or_with_an_older_one_is_called_so() -> None:
    assert "## Hours of load\n\n**Not run**" in _page("hours")
    older = {"versions": versions(), "machine": machine(), "older": True}
    assert "## Hours of load\n\n**Not run**: its result was written by an older" in _page("hours", older)


def test_a_result_of_code_that_has_changed_is_shown_and_called_so() -> None:
    text = _page("write-order", _real("write-order"), current=False)
    assert "| Order of writes | **shown, with older code** |" in text
    assert text.endswith("**The code that this exercises has changed since.**\n")


# ---- the runs -------------------------------------------------------------------------------------------------------


def test_the_digest_is_of_what_is_named_and_of_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "server" / "__pycache__").mkdir(parents=True)
    (tmp_path / "server" / "run.py").write_text("run()\n")
    (tmp_path / "one.py").write_text("1\n")
    before = results.digest(["server", "one.py"], tmp_path)
    (tmp_path / "server" / "__pycache__" / "run.pyc").write_text("")
    (tmp_path / "other.py").write_text("2\n")
    assert results.digest(["server", "one.py"], tmp_path) == before
    (tmp_path / "server" / "run.py").rename(tmp_path / "server" / "walk.py")
    assert results.digest(["server", "one.py"], tmp_path) != before


def test_a_command_that_was_run_by_itself_counts_while_its_commit_has_the_same_code(tmp_path: Path) -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if head.returncode:
        pytest.skip("no clone")
    part = _PARTS["audit"]
    kept = Part(**{**vars(part), "code": ("LICENSE",), "lasts": True})

    def current(commit: str | None) -> bool:
        result = {**_real("audit"), "versions": {"commit": commit}}
        (tmp_path / "audit.json").write_text(json.dumps(result))
        return results.find(kept, tmp_path, False).current

    assert current(head.stdout.strip())
    assert not current(f"{head.stdout.strip()}-dirty") and not current(None) and not current("0" * 40)


class _Commands:
    """Stands for the processes of a proof: writes what they would, and notes what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, write: Callable[[list[str]], Result | None]) -> None:
        self.asked: list[list[str]] = []
        self._write, self._run = write, subprocess.run
        self.digest = "same"
        monkeypatch.setattr(subprocess, "run", self)
        monkeypatch.setattr(results, "digest", lambda code: self.digest)

    def __call__(self, argv: list[str], **options: Any) -> Any:
        if "reliability" not in argv[2]:
            return self._run(argv, **options)
        self.asked.append(argv)
        result = self._write(argv)
        if result is not None:
            Path(argv[argv.index("--output") + 1]).write_text(json.dumps(result), encoding="utf-8")
        return subprocess.CompletedProcess(argv, int(result is None))


def _prove(folder: Path, *arguments: str) -> tuple[int, str]:
    fixed = ["--results", str(folder), "--to", str(folder / "proof.md")]
    outcome = CliRunner().invoke(command.app, [*arguments, *fixed])
    return outcome.exit_code, (folder / "proof.md").read_text(encoding="utf-8")


def test_a_part_is_run_once_for_the_same_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = _Commands(monkeypatch, lambda argv: {**_real("simulation"), "failed": {}})
    for code, again, expected in (("a", (), 1), ("a", (), 1), ("a", ("--again",), 2), ("b", (), 3)):
        commands.digest = code
        exit_code, text = _prove(tmp_path, "--only", "simulation", *again)
        assert exit_code == 0 and len(commands.asked) == expected and "| Orders of events | shown |" in text
    assert commands.asked[0][1:5] == ["-m", "reliability.simulation", "--schedules", "2000"]
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".json"] == ["simulation.json"]


def test_a_long_part_goes_on_with_the_runs_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = {"3"}

    def write(argv: list[str]) -> Result | None:
        seed = argv[argv.index("--seed") + 1]
        return None if seed in failing else _real("kills")

    commands = _Commands(monkeypatch, write)
    exit_code, text = _prove(tmp_path, "--only", "kills")
    assert exit_code == 1 and len(commands.asked) == 10 and "| kills survived | **900** |" in text
    assert "9 of 10 runs" in text
    failing.clear()
    exit_code, text = _prove(tmp_path, "--only", "kills")
    assert exit_code == 0 and len(commands.asked) == 11 and "| kills survived | 1,000 |" in text
    assert commands.asked[-1][3:7] == ["--kills", "100", "--seed", "3"]
    assert (tmp_path / "crash.json").exists() and (tmp_path / "crash-9.json").exists()


def test_a_run_that_missed_is_not_made_again_until_it_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = _Commands(monkeypatch, lambda argv: _real("simulation"))
    assert [_prove(tmp_path, "--only", "simulation")[0] for _ in range(2)] == [1, 1]
    assert len(commands.asked) == 1


def test_an_interrupted_run_leaves_no_result_and_an_older_one_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "simulation.json").write_text(json.dumps({**_real("simulation"), "versions": {"commit": "0" * 40}}))
    _Commands(monkeypatch, lambda argv: None)
    exit_code, text = _prove(tmp_path, "--only", "simulation")
    assert exit_code == 1 and "| Orders of events | **missed, with older code** |" in text


def test_code_that_changes_during_a_run_makes_it_show_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(argv: list[str]) -> Result:
        commands.digest = "changed"
        return {**_real("simulation"), "failed": {}}

    commands = _Commands(monkeypatch, write)
    exit_code, text = _prove(tmp_path, "--only", "simulation")
    assert exit_code == 1 and "## Orders of events\n\n**Not run**" in text


def test_a_part_that_cannot_be_run_here_says_why_and_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    exit_code, text = _prove(
        tmp_path, *(f"--only={name}" for name in ("coverage", "faults", "write-order", "container"))
    )
    assert exit_code == 0
    for why in ("atheris is not installed", "no C compiler", "no strace", "missing: "):
        assert f"**Not run**: {why}" in text or why in text


def test_a_short_form_that_ran_is_no_failure_whatever_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Commands(monkeypatch, lambda argv: _crash(operations={"undo": 1}).to_dict())
    exit_code, text = _prove(tmp_path, "--quick", "--only", "kills")
    assert exit_code == 0 and "| Kills | ran |" in text and "**1 undo**" in text


def test_the_short_form_runs_a_real_part(tmp_path: Path) -> None:
    exit_code, text = _prove(tmp_path, "--quick", "--only", "simulation")
    assert exit_code == 0 and "it shows nothing" in text
    assert json.loads((tmp_path / "simulation.json").read_text(encoding="utf-8"))["schedules"] == 4


def test_a_part_that_does_not_exist_is_refused() -> None:
    assert CliRunner().invoke(command.app, ["--only", "prayers"]).exit_code == 2


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_part_has_a_command_for_both_forms_and_code_that_exists(part: Part) -> None:
    for quick in (False, True):
        for run in part.runs(quick):
            argv = run.command(Path("out.json"))
            assert argv[1] == "-m" and "out.json" in argv and not any("{" in word for word in argv)
    assert all((ROOT / name).exists() for name in part.code)
    assert not part.run_size or part.full % part.run_size == 0
