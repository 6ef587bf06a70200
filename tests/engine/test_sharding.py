"""Shards: the same bits on one process or many, and an error, not a hang, when a process is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from sharp_engine import Cancelled, ConfigError, Learner, LearnerConfig, Progress, ShardingError, TrainingConfig
from sharp_engine.checks import InvariantError, check_same
from tests.engine.fingerprint import PAPER, tiny
from tests.engine.fixtures import IMAGE, VECTOR, CancelAfter, change, convnet, examples, metric, mlp, trained
from tests.engine.processes import Team

KINDS = {"vectors": (mlp(), VECTOR), "images": (convnet(), IMAGE), "metric": (metric(), VECTOR)}
EPISODES = ((0, 1), (2, 3))


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    team = Team(4, tmp_path_factory.mktemp("team"))
    yield team
    team.end()


def sharded(kind: str, shards: int, **options: Any) -> tuple[LearnerConfig, tuple[int, ...]]:
    config, shape = KINDS[kind]
    return change(config, shards=shards, **options), shape


# ---- what processes do ------------------------------------------------------------------------------------------


def learn_two_episodes(rank: int, folder: Path, config: LearnerConfig, shape: tuple[int, ...], each: int) -> None:
    trained(config, EPISODES, shape, each).save(folder / f"{rank}.safetensors")


def stop_in_second_episode(rank: int, folder: Path, config: LearnerConfig, shape: tuple[int, ...]) -> int:
    """Only the last process is asked to stop, in the middle of a phase."""
    learner = trained(config, EPISODES[:1], shape)
    cancel = CancelAfter(7) if rank == dist.get_world_size() - 1 else None
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples(EPISODES[1], shape, seed=1), cancel=cancel)
    learner.save(folder / f"{rank}.safetensors")
    assert learner.running is not None
    return learner.running.phases_done


def go_on(rank: int, folder: Path) -> None:
    learner = Learner.load(folder / f"{rank}.safetensors")
    learner.resume_episode()
    learner.save(folder / f"{rank}.safetensors")


def learn_until_one_is_gone(rank: int, config: LearnerConfig, how: str) -> float:
    """The last process goes at the end of the first phase; seconds until the others know."""
    gone_at = 0.0

    def observer(progress: Progress) -> None:
        nonlocal gone_at
        if progress.event == "phase-ended":
            gone_at = time.monotonic()
            if rank == dist.get_world_size() - 1:
                if how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise KeyError("something of its own")

    learner = Learner(config)
    if how == "leaves" and rank:
        learner.learn_episode(*examples((0, 1)), observer=observer)
    with pytest.raises(ShardingError, match="another process that shares the learner's shards is lost"):
        learner.learn_episode(*examples((0, 1)), observer=observer)
    assert learner.running is not None and learner.running.phases_done == 1
    return time.monotonic() - gone_at


def learn_beside_one_that_hangs(rank: int, config: LearnerConfig, seconds: float) -> str:
    learner = Learner(config)
    if rank == 0:
        time.sleep(seconds)
        return ""
    with pytest.raises(ShardingError, match="is lost") as raised:
        learner.learn_episode(*examples((0, 1)))
    return str(raised.value)


def learn_differently(rank: int, config: LearnerConfig, what: str) -> None:
    learner = Learner(change(config, seed=rank) if what == "seed" else config)
    try:
        torch.set_num_threads(1 + rank if what == "threads" else 1)
        learner.learn_episode(*examples((0, 1), seed=rank if what == "examples" else 0))
    finally:
        torch.set_num_threads(1)


def learn_one_episode(rank: int, folder: Path, config: LearnerConfig) -> None:
    learner = Learner(config)
    try:
        learner.learn_episode(*examples((0, 1)))
    finally:
        learner.save(folder / f"{rank}.safetensors")


def run(team: Team, processes: int, task: Any, *arguments: Any, seconds: float = 20.0) -> list[Any]:
    results = team.run(processes, task, *arguments, seconds=seconds)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


# ---- the same bits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shards", "processes"), [(2, 2), (4, 2), (4, 4)])
def test_shards_make_the_same_learner_on_one_process_or_many(
    team: Team, tmp_path: Path, kind: str, shards: int, processes: int
) -> None:
    config, shape = sharded(kind, shards)
    run(team, processes, learn_two_episodes, tmp_path, config, shape, 20)
    alone = trained(config, EPISODES, shape)
    for rank in range(processes):
        check_same(Learner.load(tmp_path / f"{rank}.safetensors"), alone)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_presets_make_the_same_weights_in_four_processes(team: Team, tmp_path: Path, name: str) -> None:
    config = change(tiny(name), shards=4, phases=3)
    assert config.architecture.input_shape is not None
    run(team, 4, learn_two_episodes, tmp_path, config, config.architecture.input_shape, 12)
    alone = trained(config, EPISODES, config.architecture.input_shape, 12)
    check_same(Learner.load(tmp_path / "3.safetensors"), alone)


def test_batches_smaller_than_the_shards_leave_some_empty_and_are_learned_all_the_same(
    team: Team, tmp_path: Path
) -> None:
    config, shape = sharded("images", 4)
    run(team, 4, learn_two_episodes, tmp_path, config, shape, 9)  # 18 examples: a batch of 16 and one of 2
    check_same(Learner.load(tmp_path / "2.safetensors"), trained(config, EPISODES, shape, 9))


def test_other_shards_are_the_same_learner_but_for_rounding() -> None:
    one, four = (trained(sharded("vectors", shards)[0], EPISODES) for shards in (1, 4))
    for layer, other in zip(one.network.layers, four.network.layers, strict=True):
        assert torch.equal(layer.ranks, other.ranks)
        assert torch.allclose(layer.weight, other.weight, atol=1e-3)
    with pytest.raises(InvariantError):
        check_same(one, four)  # or the shards would have been ignored


def test_a_learner_without_shards_takes_no_notice_of_other_processes(team: Team, tmp_path: Path) -> None:
    config, shape = KINDS["vectors"]
    run(team, 2, learn_two_episodes, tmp_path, config, shape, 20)
    check_same(Learner.load(tmp_path / "1.safetensors"), trained(config, EPISODES, shape))


@pytest.mark.parametrize("kind", KINDS)
def test_an_episode_stopped_in_two_processes_goes_on_in_four_or_one_to_the_same_bits(
    team: Team, tmp_path: Path, kind: str
) -> None:
    config, shape = sharded(kind, 4, phases=3)
    phases = run(team, 2, stop_in_second_episode, tmp_path, config, shape)
    assert phases[0] == phases[1] and 0 < phases[0] < 3
    for copy in (2, 3):
        (tmp_path / f"{copy}.safetensors").write_bytes((tmp_path / "0.safetensors").read_bytes())
    alone = Learner.load(tmp_path / "1.safetensors")
    run(team, 4, go_on, tmp_path)
    alone.resume_episode()
    undisturbed = trained(config, EPISODES, shape)
    check_same(alone, undisturbed)
    for rank in range(4):
        check_same(Learner.load(tmp_path / f"{rank}.safetensors"), undisturbed)


# ---- what goes wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "leaves"])
def test_a_process_that_is_gone_ends_the_episode_of_the_others_at_once(team: Team, how: str) -> None:
    survivor, gone = team.run(2, learn_until_one_is_gone, sharded("vectors", 2)[0], how, seconds=60.0)
    assert survivor < 10.0
    assert gone is None if how == "killed" else isinstance(gone, KeyError)


def test_a_process_that_hangs_ends_the_episode_of_the_others_in_time(team: Team) -> None:
    config, _ = sharded("vectors", 2)
    assert "lost" in run(team, 2, learn_beside_one_that_hangs, config, 3.0, seconds=1.0)[1]


@pytest.mark.parametrize("what", ["seed", "threads", "examples"])
def test_processes_that_differ_refuse_to_learn_together(team: Team, what: str) -> None:
    for error in team.run(2, learn_differently, sharded("vectors", 2)[0], what):
        assert isinstance(error, ShardingError) and "differ" in str(error)


def test_processes_that_do_not_divide_the_shards_are_refused_and_nothing_has_begun(team: Team, tmp_path: Path) -> None:
    errors = team.run(4, learn_one_episode, tmp_path, sharded("vectors", 6)[0])
    for rank, error in enumerate(errors):
        assert isinstance(error, ConfigError)
        assert str(error) == "training.shards must be a multiple of the 4 processes, not 6"
        assert Learner.load(tmp_path / f"{rank}.safetensors").running is None


def test_more_shards_than_examples_of_a_batch_are_refused() -> None:
    TrainingConfig(batch_size=4, shards=4)
    with pytest.raises(ConfigError, match="shards must be 1 to 4.*not 5"):
        TrainingConfig(batch_size=4, shards=5)


def test_a_learner_of_shards_can_be_stopped_on_one_process() -> None:
    cancel = threading.Event()
    cancel.set()
    learner = Learner(sharded("vectors", 2)[0])
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples((0, 1)), cancel=cancel)
