"""The trainer does not grow: an episode leaves no objects behind, and freed memory goes back to the system."""

from __future__ import annotations

import gc
import json
import pickle
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharp_engine import Learner, preset
from sharp_server.config.model import LogConfig, TrainerConfig
from sharp_server.storage.data_folder import sha256_of
from sharp_server.storage.records import BatchSlice
from sharp_server.teaching.protocol import BaseVersion
from sharp_server.training.episode_run import Trainer
from sharp_server.training.protocol import Job, Learned, Progressed

QUICK = {"device": "cpu", "training.phases": 2, "training.epochs": 1, "training.min_steps": 0}


class Examples:
    """Two classes of vectors, the same for every episode."""

    def read(self, episode: int) -> list[BatchSlice]:
        rng = np.random.default_rng(episode)
        y = np.repeat(np.arange(2, dtype=np.int32), 20)
        x = rng.normal(y[:, None], 0.1, (40, 8)).astype(np.float32)
        return [BatchSlice("f4", 40, y.tobytes(), x.tobytes())]


def job(folder: Path, number: int, base: BaseVersion | None) -> Job:
    return Job(
        learner="a",
        uid="uid",
        episode=number,
        number=number,
        base=base,
        config=preset("default").with_options(QUICK),
        blurry=False,
        input_shape=(8,),
        labels={0: "x", 1: "y"},
        work=folder,
        stem=f"uid-{number}",
        out=folder / f"{number}.safetensors",
    )


def living() -> int:
    gc.collect()
    return sum(type(thing) is Learner for thing in gc.get_objects())


class Pipe:
    """Hears what the trainer says."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def send(self, report: Any) -> None:
        self.reports.append(pickle.loads(pickle.dumps(report)))


def test_an_episode_leaves_no_learner_behind_and_says_how_many_examples_it_trained(tmp_path: Path) -> None:
    before, pipe, base = living(), Pipe(), None
    trainer = Trainer(pipe, Examples(), TrainerConfig(device="cpu"), LogConfig())  # type: ignore[arg-type]
    for number in (1, 2, 3):
        doing = job(tmp_path, number, base)
        trainer._train(doing)
        base = BaseVersion(doing.out, sha256_of(doing.out))
    learned = [report for report in pipe.reports if isinstance(report, Learned)]
    assert [(report.episode, report.summary.episodes) for report in learned] == [(1, 1), (2, 2), (3, 3)]
    assert living() == before
    progressed = [report for report in pipe.reports if isinstance(report, Progressed)]
    assert all(report.examples >= 0 and 0 <= report.fraction <= 1 for report in progressed)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="elsewhere nothing is returned")
def test_freed_memory_goes_back_even_from_a_heap_in_pieces() -> None:
    program = """
import json, resource
from sharp_server.runtime import malloc
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
pieces = [bytearray(64 << 10) for _ in range(3000)]
full = resident()
del pieces[:-1]  # the last one holds the end of the heap
freed = resident()
malloc.return_freed_memory()
print(json.dumps([full, freed, resident()]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    full, freed, returned = json.loads(done.stdout)
    assert freed > full - (50 << 20), "the C library keeps what was freed, or this test shows nothing"
    assert returned < full - (150 << 20)
