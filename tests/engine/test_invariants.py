"""What must always hold (algorithm.md), for random architectures, settings and sequences of episodes."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from sharp_engine import (
    ArchitectureConfig,
    Cancelled,
    EpisodeFailedError,
    EpisodeStateError,
    LayerConfig,
    Learner,
    LearnerConfig,
    MemoryConfig,
    Progress,
    StreamConfig,
    TrainingConfig,
)
from sharp_engine.checks import check_resume, check_same, main, run_all
from tests.engine.fixtures import DEVICES, IMAGE, VECTOR, CancelAfter, change, convnet, examples, linear, mlp, trained
from tests.engine.watched import learn_watched


@dataclass(frozen=True)
class Case:
    """A learner's settings and what it is to learn."""

    config: LearnerConfig
    shape: tuple[int, ...]
    sequence: list[list[int]]
    each: int


@st.composite
def architectures(draw: st.DrawFn) -> tuple[ArchitectureConfig, tuple[int, ...]]:
    """A small network for images or vectors, cut anywhere, of any density."""
    layers: list[LayerConfig] = []
    shape: tuple[int, ...] = (draw(st.integers(2, 7)),)
    if draw(st.booleans()):
        height, width = draw(st.integers(3, 7)), draw(st.integers(3, 7))
        shape = (draw(st.integers(1, 3)), height, width)
        for _ in range(draw(st.integers(1, 2))):
            pool = min(height, width) >= 2 and draw(st.booleans())
            height, width = (height // 2, width // 2) if pool else (height, width)
            layers.append(LayerConfig("conv", draw(st.integers(2, 6)), pool))
    layers += [linear(draw(st.integers(3, 12))) for _ in range(draw(st.integers(1, 3)))]
    cut = draw(st.integers(0, len(layers) - 1))
    density = draw(st.floats(0.1, 1.0))
    return ArchitectureConfig("mlp", layers=tuple(layers), cut=cut, density=density), shape


@st.composite
def cases(draw: st.DrawFn, blurry: bool | None = None) -> Case:
    """Anything a small learner can be asked to do."""
    architecture, shape = draw(architectures())
    config = LearnerConfig(
        architecture=architecture,
        training=TrainingConfig(
            phases=draw(st.integers(1, 3)),
            batch_size=draw(st.integers(4, 32)),
            tau_min=draw(st.floats(0.3, 1.0)),
            selection=draw(st.sampled_from(["covered", "greedy-all"])),
        ),
        memory=MemoryConfig(
            replayed_episodes=draw(st.integers(0, 3)),
            stm_capacity=draw(st.integers(12, 24)),  # room for every class there is
            ltm_per_class=draw(st.integers(1, 5)),
            holdout=draw(st.sampled_from([0.0, 0.2])),
        ),
        stream=StreamConfig(blurry=draw(st.booleans()) if blurry is None else blurry),
        seed=draw(st.integers(0, 2**31)),
        device="cpu",
    )
    episode = st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True)
    sequence = draw(st.lists(episode, min_size=2, max_size=5))
    return Case(config, shape, sequence, draw(st.integers(2, 24)))


@settings(max_examples=60)
@given(cases(blurry=False))
def test_all_invariants_hold_after_every_phase_and_episode(case: Case) -> None:
    learn_watched(case.config, case.shape, case.sequence, case.each)


@settings(max_examples=25)
@given(cases(blurry=True))
def test_all_invariants_hold_on_blurry_streams(case: Case) -> None:
    learn_watched(case.config, case.shape, case.sequence, case.each)


def test_all_invariants_hold_where_short_term_memory_has_room_for_one_example_of_a_class() -> None:
    learn_watched(mlp(stm_capacity=4, replayed_episodes=2), VECTOR, [[0, 1], [2, 3], [4, 5], [1, 2]])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("config", "shape"), [(mlp(), VECTOR), (convnet(), IMAGE)], ids=["mlp", "conv"])
def test_all_invariants_hold_on_every_device(config: LearnerConfig, shape: tuple[int, ...], device: str) -> None:
    learner = learn_watched(change(config, device=device), shape, [[0, 1], [2, 3], [0, 4]])
    assert learner.network.device.type == device


# ---- 6: resumed is never interrupted ----------------------------------------------------------------------------


def saved_and_loaded(learner: Learner) -> Learner:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.safetensors"
        learner.save(path)
        return Learner.load(path)


def check_same_answers(one: Learner, other: Learner, shape: tuple[int, ...]) -> None:
    x, _ = examples(range(8), shape, each=2, seed=77)
    answers = [learner.predict(x, top=3, memories=4) for learner in (one, other)]
    for name in ("share", "distance", "novelty", "top_share", "memory_distance", "memory_episode"):
        assert (getattr(answers[0], name) == getattr(answers[1], name)).all(), name
    assert answers[0].labels == answers[1].labels
    assert answers[0].memory_labels == answers[1].memory_labels


def learn_all(case: Case) -> Learner:
    learner = Learner(case.config)
    try:
        for number, classes in enumerate(case.sequence):
            learner.learn_episode(*examples(classes, case.shape, case.each, seed=number))
    except EpisodeFailedError:
        reject()  # a network too thin to learn from
    return learner


@settings(max_examples=30)
@given(cases(), st.integers(0, 40))
def test_a_learner_cancelled_at_any_step_and_loaded_goes_on_as_if_never_interrupted(case: Case, asked: int) -> None:
    uninterrupted = learn_all(case)
    learner = Learner(case.config)
    cancel: CancelAfter | None = CancelAfter(asked)
    for number, classes in enumerate(case.sequence):
        x, y = examples(classes, case.shape, case.each, seed=number)
        try:
            learner.learn_episode(x, y, cancel=cancel)
        except Cancelled:
            loaded, cancel = saved_and_loaded(learner), None
            check_same(loaded, learner)
            learner.resume_episode()
            loaded.resume_episode()
            check_same(loaded, learner)
            learner = loaded
    check_same(learner, uninterrupted)
    check_same_answers(learner, uninterrupted, case.shape)


@settings(max_examples=15)
@given(cases(), st.data())
def test_a_learner_saved_between_any_two_batches_goes_on_as_if_never_interrupted(
    case: Case, data: st.DataObject
) -> None:
    uninterrupted = learn_all(case)
    learner = Learner(case.config)
    for number, classes in enumerate(case.sequence):
        x, y = examples(classes, case.shape, case.each, seed=number)
        ends = sorted(data.draw(st.sets(st.integers(1, len(y) - 1), max_size=3))) if len(y) > 1 else []
        for begin, end in zip([0, *ends], [*ends, len(y)], strict=True):
            learner.observe(x[begin:end], y[begin:end])
            if data.draw(st.booleans()):
                learner = saved_and_loaded(learner)
        learner.end_episode()
    check_same(learner, uninterrupted)


@pytest.mark.parametrize(
    ("config", "shape"), [(mlp(replayed_episodes=2), VECTOR), (convnet(), IMAGE)], ids=["mlp", "conv"]
)
def test_a_learner_saved_by_its_observer_at_every_phase_goes_on_as_if_never_interrupted(
    config: LearnerConfig, shape: tuple[int, ...], tmp_path: Path
) -> None:
    config = change(config, phases=3, holdout=0.2)
    learner = trained(config, ((0, 1), (2, 3)), shape, each=24)
    saved: list[Path] = []

    def save(progress: Progress) -> None:
        if progress.event in ("phase-ended", "episode-learned"):
            saved.append(tmp_path / f"{len(saved)}.safetensors")
            learner.save(saved[-1])

    learner.learn_episode(*examples((4, 0), shape, each=24, seed=9), observer=save)
    assert len(saved) == 4
    for phases_done, path in enumerate(saved, start=1):
        loaded = Learner.load(path)
        if phases_done < 4:
            assert loaded.inspect().phases_done == phases_done
            report = loaded.resume_episode()
            assert len(report.losses) == 3
        check_same(loaded, learner)


CONTINUE = """
import sys, torch
from sharp_engine import Learner
from tests.engine.fixtures import examples
torch.set_num_threads(1)
learner = Learner.load(sys.argv[1])
shape = learner.architecture.input_shape
learner.resume_episode()
learner.learn_episode(*examples((5, 0), shape, seed=5))
learner.save(sys.argv[2])
"""


def test_a_learner_goes_on_in_a_new_process_as_if_never_interrupted(tmp_path: Path) -> None:
    config = convnet(phases=3, holdout=0.1)
    sequence, now, then = ((0, 1), (2, 3)), examples((4, 1), IMAGE, seed=4), examples((5, 0), IMAGE, seed=5)
    uninterrupted = trained(config, sequence, IMAGE)
    uninterrupted.learn_episode(*now)
    uninterrupted.learn_episode(*then)
    learner = trained(config, sequence, IMAGE)
    with pytest.raises(Cancelled):
        learner.learn_episode(*now, cancel=CancelAfter(6))
    assert learner.inspect().phases_done == 1
    before, after = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    learner.save(before)
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", CONTINUE, str(before), str(after)]
    subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, text=True)
    continued = Learner.load(after)
    check_same(continued, uninterrupted)
    check_same_answers(continued, uninterrupted, IMAGE)


@pytest.mark.parametrize("device", DEVICES)
def test_check_resume_holds_between_episodes_and_in_one(device: str) -> None:
    learner = trained(mlp(device=device))
    check_resume(learner, lambda copy: copy.learn_episode(*examples((6, 0), seed=6)))
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples((6, 0), seed=6), cancel=CancelAfter(5))
    check_resume(learner, lambda copy: copy.resume_episode())
    learner.abandon_episode()
    learner.observe(*examples((6, 0), seed=6))
    check_resume(learner, lambda copy: copy.end_episode())


def test_a_deep_copy_and_a_snapshot_are_the_same_learner() -> None:
    learner = trained(mlp())
    check_same(copy.deepcopy(learner), saved_and_loaded(learner))


# ---- for users --------------------------------------------------------------------------------------------------


def test_run_all_names_every_invariant_and_changes_nothing() -> None:
    learner = trained(convnet(), shape=IMAGE)
    before = copy.deepcopy(learner)
    results = run_all(learner)
    assert {name[0] for name, _ in results} >= set("1234567")
    assert [wrong for _, wrong in results] == [None] * len(results)
    check_same(before, learner)


def test_checks_print_each_invariant_of_a_snapshot_and_that_it_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "learner.safetensors"
    trained(mlp()).save(path)
    assert main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.strip().startswith("holds") for line in lines) == len(lines) - 1 >= 7


def test_checks_of_something_that_is_no_snapshot_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "learner.safetensors"
    path.write_text("no snapshot")
    assert main([str(path)]) == 2
    assert "learner.safetensors" in capsys.readouterr().err
    assert main(["one", "two"]) == 2


def test_checks_say_what_is_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learner = trained(mlp())
    learner.network.layers[0].ranks.zero_()  # what old classes stand on is free to be taken away
    path = tmp_path / "learner.safetensors"
    learner.save(path)
    assert main([str(path)]) == 1
    broken = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.strip().startswith("BROKEN")]
    assert "3:" in broken and "4:" in broken


def test_checks_need_a_learner_between_two_episodes() -> None:
    learner = trained(mlp())
    learner.observe(*examples((0, 1)))
    with pytest.raises(EpisodeStateError, match="between two episodes"):
        run_all(learner)
