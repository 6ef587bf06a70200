"""Gives the trainer slices of episodes in turn, and keeps it running.

A turn ends with the episode, or after a phase when another learner's comes first (see `turn_order`): a small episode
does not wait behind a large one. Whatever happens to the trainer (it dies, hangs, runs out of memory, fails),
predictions and other episodes go on; what becomes of the episode is decided in `aftermath`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

from sharp_server.config.model import ServerConfig
from sharp_server.errors import ObjectsUnavailable, StaleOwnerError, disk_is_full
from sharp_server.runtime.metrics import Metrics
from sharp_server.storage.data_folder import DataFolder, new_name
from sharp_server.storage.interface import Storage
from sharp_server.storage.version_files import VersionFiles
from sharp_server.teaching.protocol import BaseVersion
from sharp_server.training.aftermath import Aftermath
from sharp_server.training.process import TrainerProcess
from sharp_server.training.protocol import (
    Died,
    Drop,
    Failed,
    Job,
    Learned,
    LessonsBefore,
    Outcome,
    Pause,
    PhaseDone,
    Progressed,
    Ready,
    Report,
    Started,
    Stop,
    Stopped,
    Train,
    Yield,
    Yielded,
)
from sharp_server.training.trainee import Trainee
from sharp_server.training.turn import TrainingTurn
from sharp_server.training.turn_order import TurnOrder

log = logging.getLogger(__name__)

_STARTS = 10
"""So often an episode may be begun without a phase finished, over restarts of the server, before it is parked."""

_SECONDS_TO_PAUSE = 20.0
"""A trainer that does not stop at a step within this time is killed."""

_SECONDS_TO_STOP = 5.0


class Scheduler:
    """Keeps a trainer running and busy."""

    def __init__(
        self,
        config: ServerConfig,
        folder: DataFolder,
        files: VersionFiles,
        storage: Storage,
        trainees: Iterable[Trainee],
        aftermath: Aftermath,
        process: TrainerProcess,
        metrics: Metrics,
    ) -> None:
        self._config, self._folder, self._files, self._storage = config, folder, files, storage
        self._order = TurnOrder(trainees)
        self._aftermath, self._process, self._metrics = aftermath, process, metrics
        self._turn: TrainingTurn | None = None
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
        self._ask_to_yield()

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
        # It may stand between two slices: from here it starts over.
        self._order.of(trainee).start_over()
        self._process.send(Drop(trainee.uid))
        trainee.end_turn()
        try:
            yield
        finally:
            self._wake.set()

    async def leave(self, trainee: Trainee, seconds: float) -> None:
        """Let the trainer leave one learner after its phase, but don't wait longer than this; nothing of it is lost.

        The caller keeps it from being taken up again.
        """
        turn = self._turn
        if turn is not None and turn.trainee is trainee:
            self._process.send(Yield())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(turn.over(), seconds)

    # ---- what the trainer says --------------------------------------------------------------------------------------

    def _hear(self, report: Report) -> None:
        turn = self._turn
        if isinstance(report, Ready):
            self._wake.set()
        elif turn is not None and report.episode == turn.episode.id:
            turn.hear()
            if isinstance(report, Learned | Yielded | Failed | Stopped):
                turn.conclude(report)
                return
            if isinstance(report, PhaseDone):
                self._spawn_advance(turn, report)
            if not (isinstance(report, Started) and turn.goes_on):
                turn.trainee.follow_turn(report, self._config.trainer.attempts)
            if isinstance(report, Progressed):
                self._order.follow(turn.trainee, report.seconds_left)
            self._ask_to_yield()

    def _trainer_ended(self) -> None:
        if self._turn is not None:
            self._turn.conclude(Died())
        self._order.trainer_ended()
        self._wake.set()

    def _ask_to_yield(self) -> None:
        """Let the trainer leave its episode after the phase, if somebody else's turn comes first."""
        turn = self._turn
        if turn is None or not turn.may_be_asked_to_yield:
            return
        if self._order.has_precedence_over(turn.trainee):
            turn.may_be_asked_to_yield = False
            self._process.send(Yield())

    def _spawn_advance(self, turn: TrainingTurn, phase: PhaseDone) -> None:
        task = asyncio.get_running_loop().create_task(self._advance(turn, phase))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _advance(self, turn: TrainingTurn, phase: PhaseDone) -> None:
        try:
            await self._files.record_phase(turn.trainee, turn.episode.id, phase.file, phase.sha256)
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
            ready = self._order.ready() if self._process.ready else []
            if not ready:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), 1.0)
                continue
            trainee = ready[0]
            try:
                await self._take_turn(trainee)
            except ObjectsUnavailable:
                self._order.defer(trainee, 5.0)
            except StaleOwnerError:
                log.warning("%s: another server learns it", trainee.name)
                self._order.defer(trainee, 1.0)  # until it is let go of
            except Exception:
                log.exception("a turn of training failed in the front")
                self._order.defer(trainee, 5.0)

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

    async def _take_turn(self, trainee: Trainee) -> None:
        episode, standing = trainee.next_episode(), self._order.of(trainee)
        if episode is None:
            return
        self._order.begin()
        goes_on, in_memory = standing.left == episode.id, standing.in_memory
        standing.start_over()
        turn = self._turn = TrainingTurn(trainee, episode, new_name(trainee.model.version + 1), goes_on)
        outcome: Outcome | None = None
        trainee.begin_turn(episode)
        try:
            if not (goes_on and in_memory):
                await self._fetch_files(turn)
            starts = 0 if goes_on and in_memory else await self._begin(turn)
            if starts > _STARTS:
                detail = f"the server or the trainer died under it {starts - 1} times"
                await self._aftermath.park(turn, "TRAINER_DIED", detail)
                return
            self._process.send(Train(self._job(turn)))
            turn.may_be_asked_to_yield = self._config.trainer.slices
            if turn.paused:
                self._process.send(Pause())
            self._ask_to_yield()
            outcome = await self._outcome(turn)
            await asyncio.gather(*self._background)  # what they note belongs to this turn
            pause = await self._aftermath.follow(turn, outcome, self._stop.is_set())
            self._order.defer(trainee, pause)
        finally:
            if isinstance(outcome, Yielded):
                standing.leave(episode.id, outcome.in_memory)
            else:
                trainee.end_turn()
            self._order.end(trainee, isinstance(outcome, Learned))
            self._turn = None
            turn.end()

    async def _fetch_files(self, turn: TrainingTurn) -> None:
        """Where the data folder is a cache: what the trainer begins with, or goes on from."""
        trainee = turn.trainee
        if self._files.remote:
            if trainee.head is not None:
                await asyncio.to_thread(self._files.ensure, trainee.uid, *trainee.head)
            await self._files.fetch_phase(trainee, turn.episode.id, self._stem(turn))

    async def _begin(self, turn: TrainingTurn) -> int:
        while True:
            try:
                return await self._storage.begin(turn.episode.id)
            except Exception as error:
                if not disk_is_full(error) or self._stop.is_set() or turn.paused:
                    raise
                await asyncio.sleep(self._config.trainer.retry_seconds)

    def _stem(self, turn: TrainingTurn) -> str:
        """Beginning of the names of an episode's phases, on top of the version that serves."""
        return f"{turn.trainee.uid}-{turn.episode.number}-{turn.trainee.model.version}"

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
            stem=self._stem(turn),
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
