"""Gives the trainer episodes in turn, and keeps it running.

Learners take turns, so that none starves. Whatever happens to the trainer (it dies, hangs, runs out of memory, fails),
predictions and other episodes go on; what becomes of the episode is decided in `aftermath`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace

from sharp_server.config.model import ServerConfig
from sharp_server.errors import disk_is_full
from sharp_server.runtime.metrics import Metrics
from sharp_server.storage.data_folder import DataFolder, new_name
from sharp_server.storage.interface import Storage
from sharp_server.training.aftermath import Aftermath
from sharp_server.training.process import TrainerProcess
from sharp_server.training.protocol import (
    BaseVersion,
    Died,
    Failed,
    Job,
    Learned,
    LessonsBefore,
    Outcome,
    Pause,
    PhaseDone,
    Ready,
    Report,
    Stop,
    Stopped,
    Train,
)
from sharp_server.training.trainee import Trainee
from sharp_server.training.turn import TrainingTurn

log = logging.getLogger(__name__)

_STARTS = 10
"""So often an episode may be begun without a phase finished, over restarts of the server, before it is parked."""

_SECONDS_TO_PAUSE = 20.0
"""A trainer that does not stop at a step within this time is killed."""

_SECONDS_TO_STOP = 5.0


@dataclass
class _Standing:
    """Where a learner stands in the order of turns."""

    last_turn: int = 0
    not_before: float = 0.0
    """Training waits until then (monotonic), after a failure."""


class Scheduler:
    """Keeps a trainer running and busy."""

    def __init__(
        self,
        config: ServerConfig,
        folder: DataFolder,
        storage: Storage,
        trainees: Iterable[Trainee],
        aftermath: Aftermath,
        process: TrainerProcess,
        metrics: Metrics,
    ) -> None:
        self._config, self._folder, self._storage, self._trainees = config, folder, storage, trainees
        self._aftermath, self._process, self._metrics = aftermath, process, metrics
        self._standings: weakref.WeakKeyDictionary[Trainee, _Standing] = weakref.WeakKeyDictionary()
        self._turn: TrainingTurn | None = None
        self._turns = 0
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._restarts = 0
        process.listen(self._hear, self._trainer_ended)

    @property
    def current(self) -> tuple[str, int]:
        """Learner and episode under way."""
        return (self._turn.trainee.name, self._turn.episode.number) if self._turn else ("", 0)

    @property
    def restarts(self) -> int:
        """How often a trainer had to be started again."""
        return self._restarts

    def start(self) -> None:
        """Begin to give out episodes."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="scheduler")

    def wake(self) -> None:
        """Something may be there to be learned."""
        self._wake.set()

    async def stop(self) -> None:
        """Let the trainer stop at a step, and end it."""
        self._stop.set()
        self._process.send(Stop())
        self._wake.set()
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._task), _SECONDS_TO_STOP)
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._process.end()

    @contextlib.asynccontextmanager
    async def paused(self, trainee: Trainee) -> AsyncIterator[None]:
        """Training of one learner stands still; the caller keeps it from being taken up meanwhile."""
        await trainee.until_consolidated()
        turn = self._turn
        if turn is not None and turn.trainee is trainee:
            turn.pause()
            self._process.send(Pause())
            try:
                await asyncio.wait_for(turn.over(), _SECONDS_TO_PAUSE)
            except TimeoutError:
                log.warning("the trainer did not stop at a step within %.0f s and is killed", _SECONDS_TO_PAUSE)
                self._process.kill()
                await turn.over()
        try:
            yield
        finally:
            self._wake.set()

    # ---- what the trainer says --------------------------------------------------------------------------------------

    def _hear(self, report: Report) -> None:
        turn = self._turn
        if isinstance(report, Ready):
            self._wake.set()
        elif turn is not None and report.episode == turn.episode.id:
            turn.hear()
            if isinstance(report, Learned | Failed | Stopped):
                turn.conclude(report)
                return
            if isinstance(report, PhaseDone):
                self._spawn_advance(turn)
            turn.trainee.follow_turn(report, self._config.trainer.attempts)

    def _trainer_ended(self) -> None:
        if self._turn is not None:
            self._turn.conclude(Died())
        self._wake.set()

    def _spawn_advance(self, turn: TrainingTurn) -> None:
        task = asyncio.get_running_loop().create_task(self._advance(turn))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _advance(self, turn: TrainingTurn) -> None:
        try:
            await self._storage.advance(turn.episode.id)
        except Exception as error:  # a counter: the next phase writes it again
            log.warning("a finished phase could not be noted: %s", error)
            return
        if turn is self._turn:
            turn.episode = replace(turn.episode, attempts=0, starts=0)
            turn.trainee.update_episode(turn.episode)

    # ---- turns ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._stop.is_set():
            if not self._process.alive:
                await self._relaunch()
                continue
            trainee = self._next() if self._process.ready else None
            if trainee is None:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), 1.0)
                continue
            try:
                await self._take_turn(trainee)
            except Exception:
                log.exception("a turn of training failed in the front")
                self._defer(trainee, 5.0)

    async def _relaunch(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), self._config.trainer.retry_seconds)
        if self._stop.is_set():
            return
        await self._process.joined(5.0)
        self._restarts += 1
        self._metrics.trainer_restarts.inc()
        log.warning("the trainer ended and is started again")
        self._process.launch()

    def _standing(self, trainee: Trainee) -> _Standing:
        return self._standings.setdefault(trainee, _Standing())

    def _defer(self, trainee: Trainee, seconds: float) -> None:
        self._standing(trainee).not_before = time.monotonic() + seconds

    def _next(self) -> Trainee | None:
        """The learner whose turn is longest ago, among those with an episode to learn."""
        now = time.monotonic()
        ready = [t for t in self._trainees if self._standing(t).not_before <= now and t.next_episode() is not None]
        return min(ready, key=lambda trainee: self._standing(trainee).last_turn) if ready else None

    async def _take_turn(self, trainee: Trainee) -> None:
        episode = trainee.next_episode()
        if episode is None:
            return
        self._turns += 1
        self._standing(trainee).last_turn = self._turns
        turn = self._turn = TrainingTurn(trainee, episode, new_name(trainee.model.version + 1))
        trainee.begin_turn(episode)
        try:
            starts = await self._begin(turn)
            if starts > _STARTS:
                detail = f"the server or the trainer died under it {starts - 1} times"
                await self._aftermath.park(turn, "TRAINER_DIED", detail)
                return
            self._process.send(Train(self._job(turn)))
            if turn.paused:
                self._process.send(Pause())
            pause = await self._aftermath.follow(turn, await self._outcome(turn), self._stop.is_set())
            self._defer(trainee, pause)
        finally:
            trainee.end_turn()
            self._turn = None
            turn.end()

    async def _begin(self, turn: TrainingTurn) -> int:
        while True:
            try:
                return await self._storage.begin(turn.episode.id)
            except Exception as error:
                if not disk_is_full(error) or self._stop.is_set() or turn.paused:
                    raise
                await asyncio.sleep(self._config.trainer.retry_seconds)

    def _job(self, turn: TrainingTurn) -> Job:
        trainee, episode, head = turn.trainee, turn.episode, turn.trainee.head
        return Job(
            learner=trainee.name,
            uid=trainee.uid,
            episode=episode.id,
            number=episode.number,
            base=BaseVersion(self._folder.snapshot(trainee.uid, head[0]), head[1]) if head is not None else None,
            config=trainee.config,
            blurry=trainee.config.stream.blurry or episode.boundaries == "AUTOMATIC",
            input_shape=trainee.input_shape or (),
            labels=trainee.labels_by_ordinal(),
            work=self._folder.work,
            stem=f"{trainee.uid}-{episode.number}-{trainee.model.version}",
            out=self._folder.snapshot(trainee.uid, turn.snapshot),
            lessons=LessonsBefore(trainee.id, episode.place, self._config.predictor.threads),
        )

    async def _outcome(self, turn: TrainingTurn) -> Outcome:
        limit = self._config.trainer.watchdog_seconds
        outcome = await turn.outcome(limit)
        if outcome is not None:
            return outcome
        log.warning("the trainer made no progress for %.0f s and is killed", limit)
        self._process.kill()
        await turn.ended()
        return Died(f"training made no progress for {limit:.0f} s")
