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
from sharp_server.prediction.batcher import Batcher, Slice
from sharp_server.runtime.metrics import Metrics
from sharp_server.runtime.thread_priority import lower_thread_priority

ONE = np.zeros((1, 3), np.float32)
FOREVER_MS = 1e9


class Predictor:
    """Notes how many examples it is asked about at once."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.may_go = threading.Event()
        self.may_go.set()

    def predict(self, x: Any, top: int, memories: int, novelty: bool) -> Any:
        self.may_go.wait(60)
        self.batches.append(len(x))
        return SimpleNamespace(share=np.ones(len(x)), distance=np.zeros(len(x)))


def learner(number: int) -> Any:
    model = SimpleNamespace(predictor=Predictor(), version=1)
    return SimpleNamespace(id=number, model=model, predicted=SimpleNamespace(add=lambda count: None))


def run(work: Callable[[Batcher], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        working = Batcher(BatchingConfig(**settings), PredictorConfig(), Metrics())
        try:
            await asyncio.wait_for(work(working), 60)
        finally:
            working.close()

    asyncio.run(main())


def test_a_lone_request_waits_for_nobody_however_long_others_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharp_server.prediction.batcher.time.sleep", lambda seconds: pytest.fail("it waited"))

    async def work(working: Batcher) -> None:
        one = learner(1)
        for _ in range(3):
            await working.predict(one, ONE, 1, 0, False)
        assert one.model.predictor.batches == [1, 1, 1]

    run(work, longest_wait_ms=FOREVER_MS)


@pytest.mark.parametrize(("largest", "together"), [(4, [1, 4]), (100, [1, 7])])
def test_several_wait_for_others_while_more_keep_coming_up_to_the_max_batch_size(
    monkeypatch: pytest.MonkeyPatch, largest: int, together: list[int]
) -> None:
    async def work(working: Batcher) -> None:
        one, loop = learner(1), asyncio.get_running_loop()
        answers: list[asyncio.Future[Slice]] = []

        def join() -> None:
            answers.append(working.predict(one, ONE, 1, 0, False))

        def comes_meanwhile(seconds: float) -> None:
            assert 0 < seconds <= 0.001
            if len(answers) < 8:  # one more each time that is looked: the predictor's thread waits for it
                came = threading.Event()
                loop.call_soon_threadsafe(join)
                loop.call_soon_threadsafe(came.set)
                assert came.wait(60)

        monkeypatch.setattr("sharp_server.prediction.batcher.time.sleep", comes_meanwhile)
        one.model.predictor.may_go.clear()
        join()  # is computed alone, and held there
        while not working._lanes or working._lanes[1].announced:
            await asyncio.sleep(0)
        join()
        join()
        one.model.predictor.may_go.set()
        while len(answers) < 4 or not all(answer.done() for answer in answers):
            await asyncio.sleep(0.001)
        assert one.model.predictor.batches[:2] == together

    run(work, longest_wait_ms=FOREVER_MS, max_batch_size=largest)


def test_nobody_waits_for_company_while_another_learner_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(working: Batcher) -> None:
        one, other = learner(1), learner(2)
        computed_before_waiting: list[list[int]] = []
        monkeypatch.setattr(
            "sharp_server.prediction.batcher.time.sleep",
            lambda seconds: computed_before_waiting.append(list(one.model.predictor.batches)),
        )
        one.model.predictor.may_go.clear()
        answers = [working.predict(one, ONE, 1, 0, False)]
        while working._lanes[1].announced:
            await asyncio.sleep(0)
        answers += [working.predict(one, ONE, 1, 0, False) for _ in range(2)]
        answers += [working.predict(other, ONE, 1, 0, False) for _ in range(2)]
        one.model.predictor.may_go.set()
        await asyncio.gather(*answers)
        assert (one.model.predictor.batches, other.model.predictor.batches) == ([1, 2], [2])
        assert computed_before_waiting == [[1, 2]]  # the other learner, who was the last, waited

    run(work, longest_wait_ms=FOREVER_MS)


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
from sharp_server.runtime import malloc as allocation
if {keep}:
    allocation.keep_freed_memory()
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
        "import gc; from sharp_server import allocation; allocation.forget_start_up(); print(gc.get_freeze_count())"
    )
    assert int(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout) > 0
