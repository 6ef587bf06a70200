"""Who is computed together, who waits for whom, which thread gives way, and how memory is kept."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sharp_server.config.model import BatchingConfig, PredictorConfig
from sharp_server.prediction.batcher import Batcher
from sharp_server.runtime.metrics import Metrics
from sharp_server.runtime.thread_priority import lower_thread_priority

ONE = np.zeros((1, 3), np.float32)


class Predictor:
    """Notes how many examples it is asked about at once."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.may_go = threading.Event()
        self.may_go.set()

    def predict(self, x: Any, top: int, memories: int, novelty: bool) -> Any:
        self.may_go.wait(60)
        self.batches.append(len(x))
        return SimpleNamespace(share=np.ones(len(x)), distance=np.zeros(len(x)), novelty=None)


def learner(number: int) -> Any:
    model = SimpleNamespace(predictor=Predictor(), version=1)
    nothing = SimpleNamespace(add=lambda *counted: None)
    return SimpleNamespace(id=number, model=model, predicted=nothing, answers=nothing)


def run(work: Callable[[Batcher], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        working = Batcher(BatchingConfig(**settings), PredictorConfig(), Metrics())
        try:
            await asyncio.wait_for(work(working), 60)
        finally:
            working.close()

    asyncio.run(main())


def test_a_lone_request_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharp_server.prediction.batcher.time.sleep", lambda seconds: pytest.fail("it waited"))

    async def work(working: Batcher) -> None:
        one = learner(1)
        for _ in range(3):
            await working.predict(one, ONE, 1, 0, False)
        assert one.model.predictor.batches == [1, 1, 1]

    run(work)


@pytest.mark.parametrize(("largest", "together"), [(4, [1, 4, 3]), (100, [1, 7])])
def test_what_gathers_while_a_batch_is_computed_is_computed_together_up_to_the_max_batch_size(
    largest: int, together: list[int]
) -> None:
    async def work(working: Batcher) -> None:
        one = learner(1)
        one.model.predictor.may_go.clear()
        answers = [working.predict(one, ONE, 1, 0, False)]  # is computed alone, and held there
        while working._lanes[1].announced:
            await asyncio.sleep(0)
        answers += [working.predict(one, ONE, 1, 0, False) for _ in range(7)]
        one.model.predictor.may_go.set()
        await asyncio.gather(*answers)
        assert one.model.predictor.batches == together

    run(work, max_batch_size=largest)


def test_learners_take_turns() -> None:
    async def work(working: Batcher) -> None:
        one, other = learner(1), learner(2)
        one.model.predictor.may_go.clear()
        answers = [working.predict(one, ONE, 1, 0, False)]
        while working._lanes[1].announced:
            await asyncio.sleep(0)
        answers += [working.predict(one, ONE, 1, 0, False) for _ in range(2)]
        answers += [working.predict(other, ONE, 1, 0, False) for _ in range(2)]
        one.model.predictor.may_go.set()
        await asyncio.gather(*answers)
        assert (one.model.predictor.batches, other.model.predictor.batches) == ([1, 2], [2])

    run(work)


def test_a_caller_who_leaves_takes_nobody_of_its_batch_along() -> None:
    async def work(working: Batcher) -> None:
        one = learner(1)
        one.model.predictor.may_go.clear()
        first = working.predict(one, ONE, 1, 0, False)
        while working._lanes[1].announced:
            await asyncio.sleep(0)
        answers = [working.predict(one, ONE, 1, 0, False) for _ in range(3)]
        answers[1].cancel()
        one.model.predictor.may_go.set()
        await asyncio.gather(first, answers[0], answers[2])
        assert working.examples_waiting == 0

    run(work)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no niceness of their own")
def test_a_thread_that_gives_way_is_the_only_one_that_does() -> None:
    found: list[int] = []

    def work() -> None:
        lower_thread_priority(3)
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [min(19, before + 3)]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="elsewhere nothing is adjusted")
def test_freed_memory_is_there_for_the_next_message() -> None:
    program = """
import resource
from sharp_server.runtime import malloc
if {keep}:
    malloc.keep_freed_memory()
def take():
    for _ in range(5):
        messages = [bytes([i]) * (12 << 20) for i in range(3)]
        del messages
take()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
take()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    faults = {
        keep: int(
            subprocess.run([sys.executable, "-c", program.format(keep=keep)], capture_output=True, check=True).stdout
        )
        for keep in (True, False)
    }
    assert faults[True] * 20 < faults[False]


def test_the_collector_leaves_alone_what_was_there_at_the_start() -> None:
    program = (
        "import gc; from sharp_server.runtime import malloc; malloc.forget_start_up(); print(gc.get_freeze_count())"
    )
    assert int(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout) > 0
