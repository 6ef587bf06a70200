"""One schedule, from an empty disk to the verdict: a plan, the actors, what goes wrong, and peace in the end."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from reliability.simulation import checks
from reliability.simulation.actors import Actor, Answer, App, Operator, Producer, Records, Teacher
from reliability.simulation.loop import StuckError
from reliability.simulation.plan import FEATURES, SETTINGS, Plan, make_plan
from reliability.simulation.server import Network, RefusedError, Server, UnavailableError
from reliability.simulation.world import Disk, World
from sharp.v1 import learner_admin_pb2, learner_pb2
from sharp_server.config.model import DataConfig, PredictorConfig, ServerConfig, TeachingConfig, TrainerConfig
from sharp_server.errors import disk_is_full
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.storage.data_folder import DataFolder

_PATIENCE = 600.0
"""Virtual seconds in which everything must have come to rest once nothing goes wrong any more."""


@dataclass
class ScheduleResult:
    """What came of it."""

    seed: int
    problems: list[str] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    """How often what happened."""
    digest: str = ""
    """Of everything that happened in its order: the same for the same seed."""


class Schedule:
    """Runs one plan."""

    def __init__(self, plan: Plan, folder: Path, disk: Disk | None = None) -> None:
        self.plan, self.world = plan, World(plan.seed, folder, plan.longest_delay, disk)
        self.network, self.records = Network(self.world), Records()
        self.result = ScheduleResult(plan.seed)
        self._lives = 0
        self._config = ServerConfig(
            data=DataConfig(folder=str(folder), automatic_snapshots=plan.keep),
            trainer=TrainerConfig(attempts=plan.attempts, retry_seconds=0.2, niceness=0, device="cpu"),
            predictor=PredictorConfig(device="cpu"),
            teaching=TeachingConfig(version_seconds=plan.version_seconds),
        )

    def run(self) -> ScheduleResult:
        """All of it."""
        loop, previous = self.world.loop, torch.get_num_threads()
        torch.set_num_threads(1)
        log = _ErrorLog()
        with self.world.entered(), log:
            try:
                loop.run_until_complete(self._live())
            except StuckError as error:
                self.result.problems.append(str(error))
            finally:
                self._end()
                faults = [*loop.faults, *log.found]
                loop.bury()
                loop.close()
            self._judge(faults)
        torch.set_num_threads(previous)
        return self.result

    def _end(self) -> None:
        if self.network.server is not None and self.network.server.there:
            self.network.server.crash()

    # ---- what happens -----------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        plan, world = self.plan, self.world
        await self._start()
        app = App(world, self.network, plan, self.records, "app")
        for learner in plan.learners:
            await self._create(app, learner)
        actors: list[Coroutine[Any, Any, None]] = [
            *(Producer(world, self.network, plan, self.records, stream).work() for stream in plan.streams),
            *(Teacher(world, self.network, plan, self.records, learner).work() for learner in plan.learners),
            Operator(world, self.network, plan, self.records, "operator").work(),
        ]
        asking = asyncio.create_task(app.work())
        trouble = asyncio.create_task(self._trouble())
        done = await self._in_time(asyncio.gather(*actors, trouble), "the actors were not done")
        asking.cancel()
        if done:
            await self._in_time(self._rest(), "it did not come to rest")
        if not self.result.problems:
            await self._in_time(self._compare_with_restart(app), "it did not restart")

    async def _in_time(self, work: Any, complaint: str) -> bool:
        try:
            await asyncio.wait_for(work, _PATIENCE)
        except TimeoutError:
            self.result.problems.append(f"{complaint} within {_PATIENCE:g} s")
            return False
        return True

    async def _start(self) -> None:
        self._lives += 1
        self.network.server = Server(self.world, self._config, self._lives)
        while not self.network.server.serving:
            await asyncio.sleep(0.05)
            if self.network.server.loading.done() and self.network.server.loading.exception() is not None:
                raise StuckError(f"the server does not start: {self.network.server.loading.exception()!r}")

    async def _create(self, actor: Actor, learner: str) -> None:
        overrides = {name: json.dumps(value) for name, value in SETTINGS.items()}
        config = learner_pb2.LearnerConfig(seed=self.plan.seed % 7, overrides=overrides, input_shape=[FEATURES])
        request = learner_admin_pb2.CreateLearnerRequest(name=learner, config=config)
        await actor.persist(lambda: self.network.call(lambda parts: parts.admin.CreateLearner(request, None)))

    async def _trouble(self) -> None:
        """Everything that goes wrong, at its moment."""
        plan, loop = self.plan, self.world.loop
        begun = loop.time()
        moments = [
            *((at, "crash") for at in plan.crashes),
            *((at, "stop") for at in plan.stops),
            *((at, "trainer killed") for at in plan.trainer_kills),
            *((at, "teacher killed") for at in plan.teacher_kills),
            *((at, "disk full") for at, _ in plan.full_disks),
            *((at, "disk has room") for _, at in plan.full_disks),
        ]
        for at, what in sorted(moments):
            await asyncio.sleep(max(0.0, begun + at - loop.time()))
            self.result.events[what] += 1
            server = self.network.server
            assert server is not None
            if what in ("crash", "stop"):
                if what == "stop":
                    await self._stop(server)
                else:
                    server.crash()
                await asyncio.sleep(self.world.chance.choice((0.0, 0.5)))
                await self._start()
            elif what == "trainer killed":
                server.trainer.kill()
            elif what == "teacher killed":
                server.parts.teacher.kill()
            else:
                self.world.disk.full = what == "disk full"

    async def _stop(self, server: Server) -> None:
        try:
            await server.stop()
        except Exception as error:
            self.result.problems.append(f"the server did not stop as it should: {error!r}")
            server.crash()

    async def _rest(self) -> None:
        """Until everything that arrived is part of a version."""
        operator = Operator(self.world, self.network, self.plan, self.records, "retrying")
        while not all(self._rests(learner) for learner in self.plan.learners):
            await asyncio.sleep(0.5)
            for learner in self.plan.learners:
                await operator.retry_parked(learner)
        await asyncio.sleep(2 * self._config.teaching.version_seconds + 20 * self.plan.longest_delay + 5.0)

    def _rests(self, learner: str) -> bool:
        served = self._served(learner)
        waits = served.backlog.bytes or served.backlog.lessons or served.uncounted_examples or served.episode
        return not (waits or served.backlog.waiting() or served.changing)

    async def _compare_with_restart(self, app: App) -> None:
        """A server that takes up what another left answers as that did, to the last bit."""
        folder, connection = DataFolder(self.world.folder), self.world.disk.connection
        for learner in self.plan.learners:
            self.result.problems += checks.check_at_rest(self._served(learner), connection, folder)
        await self._crash_and_compare(app)
        for stream in self.plan.after:
            teacher = Teacher(self.world, self.network, self.plan, self.records, stream.learner)
            await Producer(self.world, self.network, self.plan, self.records, stream).work()
            await asyncio.gather(*(teacher.teach(f"after-{number}") for number in range(3)))
        await self._crash_and_compare(app)

    async def _crash_and_compare(self, app: App) -> None:
        answers = []
        for crash in (True, False):
            while any(self._served(learner).uncounted_examples for learner in self.plan.learners):
                await asyncio.sleep(0.1)
            await asyncio.sleep(3.0)  # a model that knows it all is swapped in a moment later
            found = [await self._ask(app, learner) for learner in self.plan.learners]
            answers.append([(answer.labels, answer.figures) for answer in found if answer is not None])
            if crash and self.network.server is not None:
                self.network.server.crash()
                await self._start()
        if answers[0] != answers[1]:
            self.result.problems.append(f"before a crash {answers[0]}, after it {answers[1]}")

    def _served(self, learner: str) -> ServedLearner:
        assert self.network.server is not None
        return self.network.server.parts.registry.get(learner)

    async def _ask(self, app: App, learner: str) -> Answer | None:
        while True:
            try:
                return await app.ask(learner)
            except UnavailableError:
                await asyncio.sleep(0.1)
            except RefusedError as error:
                if not app.refused(error):
                    return None
                await asyncio.sleep(0.1)

    # ---- the verdict ------------------------------------------------------------------------------------------------

    def _judge(self, faults: list[str]) -> None:
        plan, result, notes = self.plan, self.result, self.world.disk.notes()
        result.problems += [*self.records.problems, *faults]
        for stream in plan.streams:
            if self.records.acknowledged.get((stream.learner, stream.name), 0) < stream.last:
                result.problems.append(f"{stream.name} of {stream.learner} was not acknowledged to its end")
        result.problems += checks.check_account(plan, self.records, self.world.disk.connection)
        result.problems += checks.check_history(plan, self.world)
        result.problems += checks.check_answers(self.records, notes)
        result.problems += checks.check_forgotten(plan, self.records, notes)
        result.events.update(f"version {note.what['cause']}" for note in notes if note.kind == "version")
        result.events.update(note.kind for note in notes)
        result.events["answer"] += len(self.records.answers)
        told = [[(n.kind, n.learner, n.what) for n in notes], [repr(a) for a in self.records.answers]]
        result.digest = hashlib.sha256(json.dumps([told, result.problems]).encode()).hexdigest()[:16]


class _ErrorLog(logging.Handler):
    """Keeps what the server logs as an error, but for a full disk: none of it may happen."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or not disk_is_full(error):
            self.found.append(f"the server logged: {record.getMessage()}: {error!r}")

    def __enter__(self) -> None:
        logging.getLogger("sharp_server").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("sharp_server").removeHandler(self)


def run_schedule(seed: int) -> ScheduleResult:
    """The schedule of a seed."""
    with folder_in_memory() as folder:
        return Schedule(make_plan(seed), folder / "data").run()


@contextlib.contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A folder for a schedule, in memory where the system has such a place."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="sharp-simulation-", dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
