"""The ring: what it is asked for, how contestants are run and judged, and what is kept of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import numpy as np
import pytest

from benchmarks.datasets import load
from benchmarks.errors import OptionError
from benchmarks.paper.scenario import Blurry
from benchmarks.reporting.runner import silently
from benchmarks.ring import environment, roster, worker
from benchmarks.ring import run as ring_run
from benchmarks.ring.options import RingOptions
from benchmarks.ring.ours import PaperPreset
from benchmarks.ring.pretrained import prepare
from benchmarks.ring.protocol import Outcome, Stream, Task
from benchmarks.ring.result import judge
from benchmarks.ring.rivals.contestant import Setup
from benchmarks.ring.run import Bout, Ring, run
from sharp_engine import preset, pretrain

REPOSITORY = Path(__file__).parents[2]


def options(root: Path, **values: object) -> RingOptions:
    return RingOptions(**{"dataset": "banking77", "data_root": root, "only": "means", **values})  # type: ignore[arg-type]


# ---- what is asked for ------------------------------------------------------------------------------------------


def test_options_that_cannot_be_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="fraction must be in"):
        options(tmp_path, fraction=0.0)
    with pytest.raises(OptionError, match="order must be label or random, not 'sideways'"):
        options(tmp_path, order="sideways")
    with pytest.raises(OptionError, match="no contestant 'nobody'"):
        roster.chosen("nobody")


def test_the_paper_sets_how_many_examples_rivals_keep_and_icarl_sets_it_elsewhere(tmp_path: Path) -> None:
    assert options(tmp_path, dataset="cifar10").memory_for(10) == 534
    assert options(tmp_path).memory_for(77) == 20 * 77
    assert options(tmp_path, memory=7).memory_for(77) == 7


def test_seeds_change_the_order_of_classes_only_where_it_is_random(tmp_path: Path) -> None:
    by_label = options(tmp_path, dataset="mnist")
    assert by_label.sequence(10, 0) == by_label.sequence(10, 1) == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    random = options(tmp_path, dataset="mnist", order="random")
    assert random.sequence(10, 0) != random.sequence(10, 1)


def test_two_folders_of_a_user_are_two_data_sets(tmp_path: Path) -> None:
    first, second = (options(tmp_path / name, dataset="folder") for name in ("leaves", "birds"))
    assert first.to_dict() != second.to_dict() and first.slug == "folder-leaves"
    assert options(tmp_path / "a").to_dict() == options(tmp_path / "b").to_dict(), "a known one may lie anywhere"


def test_names_of_contestants_are_all_different_and_their_code_is_there() -> None:
    assert len({entry.name for entry in roster.ROSTER}) == len(roster.ROSTER)
    for entry in roster.ROSTER:
        module, _, name = entry.code.partition(":")
        source = (REPOSITORY / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
        assert re.search(rf"^class {name}\b", source, re.MULTILINE), entry.code


def test_contestants_that_do_not_fit_are_absent_with_the_reason(learner_root: Path, tmp_path: Path) -> None:
    ring = Ring(options(learner_root, blurry=Blurry(3, 0.5)), tmp_path, load("banking77", learner_root))
    absent = ring.result().absent
    assert absent["SHARP Serve, the paper's preset"] == "it learns images"
    assert "takes every class" in absent["iCaRL"]
    assert absent["DER"] == "not run"


def test_a_run_of_an_earlier_engine_is_shown_as_such_until_ours_runs_again(learner_root: Path, tmp_path: Path) -> None:
    ring = Ring(options(learner_root), tmp_path, load("banking77", learner_root))
    bouts = [ring.bout(roster.entry("sharp"), seed, 1.0) for seed in (0, 1)]

    def keep(bout: Bout, engine: str) -> None:
        found = judge(
            replace(outcome((1,)), contestant="sharp", seed=bout.seed), np.array([[0, 1]]), np.array([0, 1]), ((0, 1),),
            2, key=bout.key, engine=engine, fraction=1.0, training_examples=2,
        )  # fmt: skip
        found.write(tmp_path / "runs" / f"{bout.name}.json")

    keep(bouts[0], "older")
    assert ring.finished(bouts[0]) is None
    assert [one.title for one in ring.result().standings] == ["SHARP Serve, default †"]
    keep(bouts[1], bouts[1].engine)
    assert ring.finished(bouts[1]) is not None
    (standing,) = ring.result().standings
    assert standing.title == "SHARP Serve, default" and [run.seed for run in standing.runs] == [1]


# ---- judging ----------------------------------------------------------------------------------------------------


def outcome(judged_after: tuple[int, ...]) -> Outcome:
    return Outcome(
        contestant="means", seed=0, judged_after=judged_after, learn_cpu_seconds=(1.0, 2.0), learn_seconds=(1.0, 2.0),
        answer_cpu_seconds=0.5, answered=4, kept_bytes=10, raw_bytes=0, peak_bytes=20, resumes_exactly=True,
        versions={}, settings={},
    )  # fmt: skip


def test_accuracy_counts_classes_seen_so_far_and_forgetting_what_was_lost() -> None:
    truth = np.array([0, 0, 1, 1])
    answers = np.array([[0, 0, 0, 0], [0, 1, 1, 1]])
    found = judge(outcome((1, 2)), answers, truth, ((0,), (1,)), 2, key="k", fraction=1.0, training_examples=4)
    assert found.accuracy_after_episode == (1.0, 0.75)
    assert found.accuracy == 0.75
    assert found.forgetting == 0.5 and found.backward_transfer == -0.5
    assert found.learn_cpu_seconds == 3.0 and found.answer_cpu_seconds_per_1000 == 125.0


def test_who_learns_everything_at_once_has_no_forgetting() -> None:
    found = judge(
        outcome((2,)), np.array([[0, 1]]), np.array([0, 1]), ((0,), (1,)), 2, key="k", fraction=1.0, training_examples=4
    )
    assert found.forgetting is None and found.backward_transfer is None
    assert np.isnan(found.accuracy_after_episode[0]) and found.accuracy_after_episode[1] == 1.0


def test_tasks_streams_and_outcomes_survive_their_files(tmp_path: Path) -> None:
    task = Task("knn", "mnist", 3, 4, ((0, 1), (2, 3)), 50, True, 0.5, 1, "stream.npz", "outcome.json")
    task.write(tmp_path / "task.json")
    assert Task.read(tmp_path / "task.json") == task
    stream = Stream(np.arange(12, dtype=np.uint8).reshape(6, 2), np.arange(6), np.array([2, 6]), np.zeros((1, 2)))
    stream.write(tmp_path / "stream.npz")
    episodes = Stream.read(tmp_path / "stream.npz").episodes()
    assert [len(y) for _, y in episodes] == [2, 4]
    outcome((1,)).write(tmp_path / "outcome.json", np.array([[1, 2]]))
    read, answers = Outcome.read(tmp_path / "outcome.json")
    assert read == outcome((1,)) and answers.tolist() == [[1, 2]]


# ---- running ----------------------------------------------------------------------------------------------------


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contestants without processes of their own, which take seconds to start: one test has real ones."""

    def fight(ring: Ring, bout: Bout, path: Path, errors: TextIO) -> Iterator[float]:
        task = Task.read(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, answers = worker.run(task, Stream.read(Path(task.stream)), errors)
        found.write(Path(task.outcome), answers)
        yield 1.0

    monkeypatch.setattr(Ring, "_process", fight)


@pytest.mark.usefixtures("in_this_process")
def test_a_ring_runs_judges_and_reports(learner_root: Path, tmp_path: Path) -> None:
    result = run(options(learner_root, only="means,knn,sharp"), tmp_path)
    assert not result.failures
    kept = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    found = {record["name"]: record for record in kept["contestants"]}
    assert set(found) == {"means", "knn", "sharp"}
    assert all(record["mean"]["accuracy"] > 0.5 for record in found.values())
    assert all(len(record["accuracy_after_episode"]) == 4 for record in found.values()), "22 classes, 7 at a time"
    assert found["knn"]["keeps_raw"] and not found["means"]["keeps_raw"]
    assert found["knn"]["mean"]["raw_bytes"] == 22 * 30 * 12 * 4
    assert found["sharp"]["keeps_raw"], "of vectors our memories are examples"
    assert found["sharp"]["resumes_exactly"] and found["means"]["resumes_exactly"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "5-NN, everything kept" in page and "http" not in page.replace("http-equiv", "")


@pytest.mark.usefixtures("in_this_process")
def test_finished_contestants_are_not_run_again_unless_asked(learner_root: Path, tmp_path: Path) -> None:
    run(options(learner_root), tmp_path)
    kept = tmp_path / "runs" / "means-0.json"
    first = kept.stat().st_mtime_ns
    run(options(learner_root), tmp_path)
    assert kept.stat().st_mtime_ns == first
    run(options(learner_root, again=True), tmp_path)
    assert kept.stat().st_mtime_ns > first


@pytest.mark.usefixtures("in_this_process")
def test_a_ring_goes_on_from_a_stored_result_and_refuses_one_of_another_ring(
    learner_root: Path, tmp_path: Path
) -> None:
    first = run(options(learner_root, only="means,sharp"), tmp_path / "there")
    stored = tmp_path / "there" / "result.json"
    here = run(options(learner_root, only="means,sharp", resume_from=stored), tmp_path / "here")
    assert [one.runs for one in here.standings] == [one.runs for one in first.standings], "nobody ran again"
    with pytest.raises(OptionError, match="another ring"):
        run(options(learner_root, order="label", resume_from=stored), tmp_path / "label")
    with pytest.raises(OptionError, match="resume_from must be a file"):
        options(learner_root, resume_from=tmp_path / "absent.json")


@pytest.mark.usefixtures("in_this_process")
def test_what_was_run_with_other_settings_is_neither_taken_nor_shown(learner_root: Path, tmp_path: Path) -> None:
    run(options(learner_root, only="means"), tmp_path)
    result = run(options(learner_root, only="knn", memory=5), tmp_path)
    assert [standing.entry.name for standing in result.standings] == ["knn"]


def test_a_contestant_that_breaks_is_named_and_the_others_go_on(
    learner_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = roster.Entry("knn", "5-NN", "user", "benchmarks.ring.rivals.scikit:Nothing")
    monkeypatch.setattr(roster, "ROSTER", (broken, roster.entry("means")))
    monkeypatch.setattr(ring_run, "ROOT", tmp_path / "elsewhere")
    script = tmp_path / "launcher.py"
    script.write_text("import sys; print('lost my way', file=sys.stderr); sys.exit(3)", encoding="utf-8")
    result = run(options(learner_root, only="", launcher=[sys.executable, str(script)]), tmp_path)
    assert result.failures == {"knn-0": "lost my way", "means-0": "lost my way"}


def test_those_that_are_slow_may_learn_from_less(learner_root: Path, tmp_path: Path) -> None:
    ring = Ring(options(learner_root, slow_fraction=0.5), tmp_path, load("banking77", learner_root))
    shares = {bout.entry.name: bout.fraction for bout in ring.bouts(roster.chosen("means,fdr"))}
    assert shares == {"means": 1.0, "fdr": 0.5}


def test_without_the_rivals_environment_it_says_how_to_make_it(learner_root: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="make ring-env"):
        run(options(learner_root, only="icarl", ring_python=tmp_path / "python"), tmp_path)
    assert environment.interpreter(Path(sys.executable)) == Path(sys.executable)


def test_an_interruption_ends_the_contestants_process_and_keeps_what_is_finished(
    learner_root: Path, tmp_path: Path
) -> None:
    script = tmp_path / "launcher.py"
    script.write_text(
        "import os, subprocess, sys, time\n"
        "if 'knn' in sys.argv[-1]:\n"
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}}.')\n"
        "    time.sleep(600)\n"
        "sys.exit(subprocess.call(sys.argv[1:]))\n",
        encoding="utf-8",
    )
    command = [
        sys.executable, "-m", "benchmarks.ring", "--dataset", "banking77", "--data-root", str(learner_root),
        "--only", "means,knn", "--output", str(tmp_path), "--launcher", f"{sys.executable} {script}",
    ]  # fmt: skip
    # A shell's background job ignores SIGINT, and so would everything that is started within it.
    heard = signal.signal(signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    signal.signal(signal.SIGINT, heard)
    try:
        deadline = time.monotonic() + 180
        begun = tmp_path / "pid"
        while not begun.is_file() or not begun.read_text(encoding="utf-8").endswith("."):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        assert (tmp_path / "runs" / "means-0.json").is_file()
        pid = int(begun.read_text(encoding="utf-8").removesuffix("."))
        process.send_signal(signal.SIGINT)
        process.wait(timeout=180)
    finally:
        process.kill()
        process.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    result = run(options(learner_root, only="means,knn"), tmp_path)
    assert not result.failures
    assert {standing.entry.name for standing in result.standings} == {"means", "knn"}


# ---- pretrained layers ------------------------------------------------------------------------------------------


def pretraining(root: Path, **values: object) -> RingOptions:
    asked = {"dataset": "fashion-mnist", "pretrained": "mnist", "pretrained_epochs": 1, "only": "remind", **values}
    return options(root, **asked)


def test_what_layers_are_pretrained_on_is_part_of_the_name_and_of_the_settings(tmp_path: Path) -> None:
    asked = pretraining(tmp_path)
    assert asked.slug == "fashion-mnist-pretrained-mnist"
    assert pretraining(tmp_path, dataset="letters").memory_for(26) == 50, "as EMNIST, for which they stand"
    assert options(tmp_path, dataset="letters").memory_for(26) == 20 * 26
    for wrong in ("digits", "fashion-mnist", "nowhere.safetensors"):
        with pytest.raises(OptionError, match="pretrained"):
            pretraining(tmp_path, pretrained=wrong)
    with pytest.raises(OptionError, match="for images"):
        run(pretraining(tmp_path, dataset="banking77"), tmp_path, dataset=load("digits", tmp_path))


@pytest.mark.usefixtures("in_this_process")
def test_layers_are_pretrained_once_and_everyone_who_freezes_layers_gets_them(
    learner_root: Path, tmp_path: Path
) -> None:
    only = "sharp,means,remind"
    result = run(pretraining(learner_root, only=only, fraction=0.08), tmp_path)
    assert not result.failures
    assert {standing.entry.name for standing in result.standings} == {"sharp", "remind"}
    assert result.absent["mean per class"] == "it freezes no layers that could be pretrained"
    assert result.absent["Deep SLDA"] == "not run" and result.published == {}
    (made,) = tmp_path.glob("pretrained-mnist-*.safetensors")
    described = result.settings["pretrained"]
    assert (described["source"], described["epochs"], described["examples"]) == ("mnist", 1, 260)
    architecture = next(s for s in result.standings if s.entry.name == "sharp").runs[0].settings["architecture"]
    assert "pretrained conv16-pool, conv16-pool" in architecture
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The ring on fashion-mnist, G pretrained on mnist" in page

    first, runs = made.stat().st_mtime_ns, sorted((tmp_path / "runs").iterdir())
    times = [path.stat().st_mtime_ns for path in runs]
    run(pretraining(learner_root, only=only, fraction=0.08), tmp_path)
    assert made.stat().st_mtime_ns == first and [path.stat().st_mtime_ns for path in runs] == times
    by_file = run(pretraining(learner_root, pretrained=str(made), only="remind", fraction=0.08), tmp_path / "other")
    (again,) = by_file.standings
    assert again.runs[0].accuracy == next(s for s in result.standings if s.entry.name == "remind").runs[0].accuracy
    assert by_file.settings["pretrained"]["digest"] == described["digest"]


def test_a_ring_with_other_pretrained_weights_is_another_ring(learner_root: Path, tmp_path: Path) -> None:
    dataset = load("fashion-mnist", learner_root)
    keys = set()
    for asked in (pretraining(learner_root), pretraining(learner_root, pretrained_epochs=2)):
        ring = Ring(asked, tmp_path, dataset, prepare(asked, dataset, tmp_path, silently))
        keys.add(ring.bout(roster.entry("remind"), 0, 1.0).key)
    plain = Ring(pretraining(learner_root, pretrained=None), tmp_path, dataset)
    keys.add(plain.bout(roster.entry("remind"), 0, 1.0).key)
    assert len(keys) == 3 and "pretrained" not in plain.settings


def test_who_freezes_more_than_a_file_holds_stands_aside_and_a_file_that_does_not_fit_is_refused(
    learner_root: Path, tmp_path: Path
) -> None:
    dataset = load("fashion-mnist", learner_root)
    for cut, fits in ((2, True), (1, False)):
        path = tmp_path / f"g{cut}.safetensors"
        config = preset("mnist").with_options({"architecture.cut": cut})
        pretrain(dataset.train.x[:64], dataset.train.y[:64], path, config, epochs=1)
        asked = pretraining(learner_root, pretrained=str(path))
        if not fits:
            with pytest.raises(OptionError, match="G has 2 layers, and 1 of them are there"):
                prepare(asked, dataset, tmp_path, silently)
            continue
        ring = Ring(asked, tmp_path, dataset, prepare(asked, dataset, tmp_path, silently))
        assert ring.unfit(roster.entry("remind")) is None and ring.unfit(roster.entry("bir")) is None
        assert ring.unfit(roster.entry("slda")) == "it freezes 3 layers, and 2 are pretrained"


def test_the_papers_preset_behind_a_pretrained_g_takes_the_papers_rows_for_it(
    learner_root: Path, tmp_path: Path
) -> None:
    dataset, path = load("fashion-mnist", learner_root), tmp_path / "g.safetensors"
    pretrain(dataset.train.x[:64], dataset.train.y[:64], path, preset("mnist"), epochs=1)
    config = PaperPreset(Setup("letters", (1, 28, 28), 26, (), 50, 0, pretrained=str(path))).config()
    training = config.training
    assert (training.tau_min, training.temperature, training.batch_size, training.phases) == (0.4, 0.05, 512, 15)
    assert training.min_steps == 57 and config.memory.stm_capacity == 50
    assert config.architecture.pretrained == str(path)
