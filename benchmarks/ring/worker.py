"""One contestant with one seed, in a process of its own: `python -m benchmarks.ring.worker TASK.json`.

It writes `progress 0.42` lines to its output; whatever libraries print goes to standard error. The outcome is the last
thing written, so a process that died has left none.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pickle
import random
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import numpy as np
import torch

from benchmarks.ring import roster
from benchmarks.ring.protocol import PROGRESS, Inputs, Ints, Outcome, Stream, Task
from benchmarks.ring.rivals.contestant import Contestant, Setup

RESUME_EXAMPLES = 120
"""Of each of two episodes, to see whether a saved contestant goes on as if nothing had happened."""
_LIBRARIES = ("torch", "scikit-learn", "avalanche-lib", "river", "sharp-serve")


def main(path: Path) -> None:
    """Run a task."""
    progress = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print, in whatever way
    task = Task.read(path)
    torch.set_num_threads(task.threads)
    stream = Stream.read(Path(task.stream))
    outcome, answers = run(task, stream, progress)
    outcome.write(Path(task.outcome), answers)


def run(task: Task, stream: Stream, progress: TextIO) -> tuple[Outcome, Ints]:
    """Learn the stream and answer after every episode."""
    entry = roster.entry(task.contestant)
    episodes = stream.episodes()
    if entry.at_once:
        episodes = [(stream.x, stream.y)]
    done = 0

    def report(share: float) -> None:
        print(f"{PROGRESS}{(done + share) / len(episodes):.4f}", file=progress)  # noqa: T201 # the protocol

    setup = Setup(
        dataset=task.dataset,
        shape=stream.x.shape[1:],
        classes=task.classes,
        sequence=task.sequence,
        memory=task.memory,
        seed=task.seed,
        blurry=task.blurry,
        fraction=task.fraction,
        pretrained=task.pretrained,
        report=report,
    )
    make = contestant(entry.code)
    seed_everything(task.seed)
    learner = make(setup)
    cpu, clock, answers = [], [], []
    answer_seconds = 0.0
    for x, y in episodes:
        started = time.process_time(), time.perf_counter()
        learner.learn(x, y)
        cpu.append(time.process_time() - started[0])
        clock.append(time.perf_counter() - started[1])
        began = time.process_time()
        answers.append(learner.predict(stream.test_x))
        answer_seconds = time.process_time() - began
        done += 1
        report(0.0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    kept = learner.kept()
    small = replace(setup, fraction=0.01, report=lambda share: None)
    exact = None if entry.at_once else resumes_exactly(lambda: make(small), stream.episodes(), task.seed)
    return Outcome(
        contestant=task.contestant,
        seed=task.seed,
        judged_after=(len(task.sequence),) if entry.at_once else tuple(range(1, len(episodes) + 1)),
        learn_cpu_seconds=tuple(cpu),
        learn_seconds=tuple(clock),
        answer_cpu_seconds=answer_seconds,
        answered=len(stream.test_x),
        kept_bytes=kept.bytes,
        raw_bytes=kept.raw_bytes,
        peak_bytes=peak,
        resumes_exactly=exact,
        versions=versions(),
        settings=learner.settings(),
    ), np.stack(answers)


def contestant(code: str) -> Callable[[Setup], Contestant]:
    """The class that `module:class` names."""
    module, _, name = code.partition(":")
    found: Callable[[Setup], Contestant] = getattr(importlib.import_module(module), name)
    return found


def resumes_exactly(make: Callable[[], Contestant], episodes: list[tuple[Inputs, Ints]], seed: int) -> bool | None:
    """Whether a contestant that is pickled between two small episodes, with the random state, goes on bit by bit.

    None where it cannot be pickled, or where there are no two episodes.
    """
    if len(episodes) < 2:
        return None
    first, second = (_some(*episode) for episode in episodes[:2])
    seed_everything(seed)
    learner = make()
    learner.learn(*first)
    try:
        saved = pickle.dumps(learner)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None
    state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    learner.learn(*second)
    random.setstate(state[0])
    np.random.set_state(state[1])
    torch.set_rng_state(state[2])
    resumed: Contestant = pickle.loads(saved)
    resumed.learn(*second)
    return learner.kept().same(resumed.kept())


def _some(x: Inputs, y: Ints) -> tuple[Inputs, Ints]:
    return x[:RESUME_EXAMPLES], y[:RESUME_EXAMPLES]


def seed_everything(seed: int) -> None:
    """Every source of chance that a library may draw from."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 # libraries draw from it
    torch.manual_seed(seed)


def versions() -> dict[str, str]:
    """Of the libraries that are there."""
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
