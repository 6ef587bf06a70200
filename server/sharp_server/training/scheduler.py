"""The front's side of training: starts the trainer process, gives it episodes in turn, and publishes what it made.

Learners take turns, so that none starves. Whatever happens to the trainer (it dies, hangs, runs out of memory, fails),
the episode is tried again a bounded number of times and then parked; predictions and other episodes go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import multiprocessing
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from sharp_engine.config import to_dict
from sharp_server.config.model import ServerConfig
from sharp_server.errors import disk_is_full
from sharp_server.learners import events
from sharp_server.learners.served_learner import Registry, ServedLearner
from sharp_server.runtime.metrics import Metrics
from sharp_server.storage.data_folder import DataFolder, new_name
from sharp_server.storage.sqlite import episodes as ledger_episodes
from sharp_server.storage.sqlite.journal import Journal
from sharp_server.storage.sqlite.learners import NewSnapshot, NewVersion
from sharp_server.storage.sqlite.streams import EpisodeRow
from sharp_server.training.publisher import Publisher
from sharp_server.training.worker import Job, run_trainer

log = logging.getLogger(__name__)

_STARTS = 10
"""So often an episode may be begun without a phase finished, over restarts of the server, before it is parked."""

_LONGEST_PAUSE = 30.0
"""Seconds between two tries to find room on a full disk, at most."""

_SECONDS_TO_PAUSE = 20.0
"""A trainer that does not stop at a step within this time is killed."""


@dataclass
class _Turn:
    """An episode that the trainer is at."""

    served: ServedLearner
    episode: EpisodeRow
    name: str
    """Of the snapshot to come."""
    outcome: asyncio.Future[dict[str, Any]]
    heard: float
    paused: bool = False


class Scheduler:
    """Keeps a trainer running and busy."""

    def __init__(
        self,
        config: ServerConfig,
        folder: DataFolder,
        journal: Journal,
        registry: Registry,
        publisher: Publisher,
        metrics: Metrics,
    ) -> None:
        self._config, self._folder, self._journal = config, folder, journal
        self._registry, self._publisher, self._metrics = registry, publisher, metrics
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._ready = False
        self._since = time.time()
        self._turn: _Turn | None = None
        self._over = asyncio.Event()
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._turns = 0
        self._task: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self.restarts = 0

    # ---- the process --------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Start the process; called before any object of gRPC is made, and again when it died."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=run_trainer,
            args=(theirs, str(self._folder.path), self._config.trainer, self._config.log),
            name="sharp-trainer",
            daemon=True,
        )
        # Ctrl-C reaches every process of a terminal: the trainer ends when the front says so, from its first moment on.
        interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
        process.start()
        signal.signal(signal.SIGINT, interrupted)
        theirs.close()
        self._process, self._pipe, self._ready, self._since = process, ours, False, time.time()
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear, ours)

    def _hear(self, pipe: Connection) -> None:
        try:
            message = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            self._gone(pipe)
            return
        if message["kind"] == "ready":
            self._ready, self._since = True, time.time()
            log.info("the trainer is ready (process %d)", message["pid"])
            self._wake.set()
            return
        turn = self._turn
        if turn is None or message.get("episode") != turn.episode.id:
            return
        turn.heard = time.monotonic()
        if message["kind"] in ("learned", "failed", "stopped"):
            if not turn.outcome.done():
                turn.outcome.set_result(message)
        else:
            self._follow(turn, message)

    def _gone(self, pipe: Connection) -> None:
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        pipe.close()
        if pipe is not self._pipe:
            return
        self._pipe, self._ready, self._since = None, False, time.time()
        if self._turn is not None and not self._turn.outcome.done():
            self._turn.outcome.set_result({"kind": "died"})
        self._wake.set()

    def _follow(self, turn: _Turn, message: dict[str, Any]) -> None:
        served, episode = turn.served, turn.episode
        if message["kind"] == "started":
            attempts = self._config.trainer.attempts
            served.emit(events.started(episode, attempts, message["phase"], message["phases"]), episode.stream)
        elif message["kind"] == "phase":
            served.phase_layers = message["layers"]
            self._spawn(self._advanced(turn))
        elif message["kind"] == "progress":
            served.progress = events.progress_message(message)
            rate = message["examples_per_second"] or 0.0
            served.trained.add(rate * 0.3)
            served.emit(events.progressed(episode, served.progress), episode.stream)
        served.notify()

    async def _advanced(self, turn: _Turn) -> None:
        with contextlib.suppress(Exception):  # a counter; the next phase writes it again
            await self._journal.write(ledger_episodes.advanced, turn.episode.id)
            current = turn.served.episodes.get(turn.episode.number)
            if current is not None:
                turn.served.episodes[current.number] = replace(current, attempts=0, starts=0)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _send(self, do: str, **values: object) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # it died: the reader hears of it
                self._pipe.send_bytes(json.dumps({"do": do, **values}).encode())

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()

    @property
    def running(self) -> bool:
        """Whether the trainer takes work."""
        return self._ready

    @property
    def since(self) -> float:
        """Since when it has been as it is."""
        return self._since

    @property
    def pid(self) -> int:
        """The process; 0: none."""
        return (self._process.pid or 0) if self._process is not None and self._ready else 0

    @property
    def current(self) -> tuple[str, int]:
        """Learner and episode under way."""
        return (self._turn.served.name, self._turn.episode.number) if self._turn else ("", 0)

    # ---- turns --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to give out episodes."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="scheduler")

    def wake(self) -> None:
        """Something may be there to be learned."""
        self._wake.set()

    async def stop(self) -> None:
        """Let the trainer stop at a step, and end it."""
        self._stop.set()
        self._send("stop")
        self._wake.set()
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._task), 5.0)
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._process is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._process.join, 3.0)
            if self._process.is_alive():
                self._process.kill()
                await loop.run_in_executor(None, self._process.join, 3.0)

    @contextlib.asynccontextmanager
    async def paused(self, served: ServedLearner) -> AsyncIterator[None]:
        """Training of one learner stands still; `served.busy` is set by the caller and keeps it from being taken up."""
        turn = self._turn
        if turn is not None and turn.served is served:
            turn.paused = True
            self._send("pause")
            over = self._over
            try:
                await asyncio.wait_for(over.wait(), _SECONDS_TO_PAUSE)
            except TimeoutError:
                log.warning("the trainer did not stop at a step within %.0f s and is killed", _SECONDS_TO_PAUSE)
                self.kill()
                await over.wait()
        try:
            yield
        finally:
            self._wake.set()

    async def _run(self) -> None:
        while not self._stop.is_set():
            if self._pipe is None:
                await self._relaunch()
                continue
            served = self._next() if self._ready else None
            if served is None:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), 1.0)
                continue
            try:
                await self._teach(served, served.waiting()[0])
            except Exception:
                log.exception("a turn of training failed in the front")
                served.not_before = time.monotonic() + 5.0

    async def _relaunch(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), self._config.trainer.retry_seconds)
        if self._stop.is_set():
            return
        if self._process is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._process.join, 5.0)
        self.restarts += 1
        self._metrics.trainer_restarts.inc()
        log.warning("the trainer ended and is started again")
        self.launch()

    def _next(self) -> ServedLearner | None:
        """The learner whose turn is longest ago, among those with an episode to learn."""
        now = time.monotonic()
        ready = [o for o in self._registry if not o.busy and not o.deleted and o.not_before <= now and o.waiting()]
        return min(ready, key=lambda served: served.last_turn) if ready else None

    async def _teach(self, served: ServedLearner, episode: EpisodeRow) -> None:
        self._turns += 1
        served.last_turn = self._turns
        outcome: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        turn = _Turn(served, episode, new_name(served.model.version + 1), outcome, time.monotonic())
        self._turn, self._over = turn, asyncio.Event()
        served.training = episode
        served.notify()
        try:
            starts = await self._begin(turn)
            if starts > _STARTS:
                detail = f"the server or the trainer died under it {starts - 1} times"
                await self._park(turn, "TRAINER_DIED", detail)
                return
            self._send("train", job=asdict(self._job(turn)))
            if turn.paused:
                self._send("pause")
            message = await self._await_outcome(turn)
            await self._conclude(turn, message)
        finally:
            served.training, served.progress, served.phase_layers = None, None, None
            self._turn = None
            self._over.set()
            served.notify()

    async def _begin(self, turn: _Turn) -> int:
        while True:
            try:
                return await self._journal.write(ledger_episodes.begun, turn.episode.id)
            except Exception as error:
                if not disk_is_full(error) or self._stop.is_set() or turn.paused:
                    raise
                await asyncio.sleep(self._config.trainer.retry_seconds)

    def _job(self, turn: _Turn) -> Job:
        served, episode = turn.served, turn.episode
        base, digest = served.head or ("", b"")
        return Job(
            learner=served.name,
            uid=served.uid,
            episode=episode.id,
            number=episode.number,
            journal=str(self._folder.journal),
            base=str(self._folder.snapshot(served.uid, base)) if base else "",
            base_sha256=digest.hex(),
            settings=to_dict(served.config),
            blurry=served.config.stream.blurry or episode.boundaries == "AUTOMATIC",
            input_shape=list(served.input_shape or ()),
            labels={str(ordinal): label for label, ordinal in served.known.items()},
            work=str(self._folder.work),
            stem=f"{served.uid}-{episode.number}-{served.model.version}",
            out=str(self._folder.snapshot(served.uid, turn.name)),
        )

    async def _await_outcome(self, turn: _Turn) -> dict[str, Any]:
        limit = self._config.trainer.watchdog_seconds
        while True:
            silent = time.monotonic() - turn.heard
            try:
                return await asyncio.wait_for(asyncio.shield(turn.outcome), max(0.05, limit - silent))
            except TimeoutError:
                if time.monotonic() - turn.heard >= limit:
                    log.warning("the trainer made no progress for %.0f s and is killed", limit)
                    self.kill()
                    await turn.outcome
                    return {"kind": "died", "detail": f"training made no progress for {limit:.0f} s"}

    async def _conclude(self, turn: _Turn, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "learned":
            await self._learned(turn, message)
        elif kind == "stopped" or turn.paused or self._stop.is_set():
            return
        elif message.get("reason") == "DISK_FULL":
            await self._no_room(turn)
        else:
            await self._failed(turn, message)

    async def _no_room(self, turn: _Turn) -> None:
        """What was learned does not fit the disk: no fault of the episode, which is learned again, ever less often."""
        served = turn.served
        await self._publisher.write_with_disk_retry(ledger_episodes.excused, turn.episode.id)
        served.without_room += 1
        pause = min(self._config.trainer.retry_seconds * 2.0**served.without_room, _LONGEST_PAUSE)
        served.not_before = time.monotonic() + pause
        log.warning("%s: no room on the disk for what was learned; again in %.1f s", served.name, pause)

    async def _learned(self, turn: _Turn, message: dict[str, Any]) -> None:
        served, episode, report, figures = turn.served, turn.episode, message["report"], message["figures"]
        rate = report["examples"] / report["seconds"] if report["seconds"] > 0 else 0.0
        statistics = events.statistics(report, figures, rate).SerializeToString()
        snapshot = NewSnapshot(
            learner=served.id,
            name=turn.name,
            version=served.model.version + 1,
            episodes=figures["episodes"],
            classes=json.dumps([entry[0] for entry in figures["classes"]]),
            origin="automatic",
            size=message["size"],
            sha256=bytes.fromhex(message["sha256"]),
        )
        version = NewVersion(snapshot, "learned", self._config.data.automatic_snapshots, episode.number)
        await self._publisher.learned(served, episode, version, statistics)
        served.without_room = 0
        self._metrics.examples_learned.inc(report["examples"])
        log.info(
            "%s learned episode %d as version %d: %d examples in %.1f s",
            *(served.name, episode.number, version.version, report["examples"], report["seconds"]),
        )

    async def _failed(self, turn: _Turn, message: dict[str, Any]) -> None:
        served, trainer = turn.served, self._config.trainer
        attempts = await self._publisher.write_with_disk_retry(ledger_episodes.failed, turn.episode.id)
        turn.episode = replace(turn.episode, attempts=attempts)
        served.episodes[turn.episode.number] = turn.episode
        reason = message.get("reason", "TRAINER_DIED")
        detail = message.get("detail", "the training process died")
        log.warning("%s: try %d of episode %d: %s", served.name, attempts, turn.episode.number, detail)
        self._metrics.training_failures.labels(reason).inc()
        if attempts >= trainer.attempts or message.get("lasting"):
            await self._park(turn, reason, detail)
            return
        if message["kind"] == "failed":
            self._folder.clear_work(served.uid)  # a failure would only repeat itself from the same phase
        served.not_before = time.monotonic() + trainer.retry_seconds

    async def _park(self, turn: _Turn, reason: str, detail: str) -> None:
        served = turn.served
        self._folder.clear_work(served.uid)
        episode = await self._publisher.write_with_disk_retry(ledger_episodes.park, turn.episode.id, reason, detail)
        served.episodes[episode.number] = episode
        event = events.settled(episode)
        assert event is not None
        served.emit(event, episode.stream)
        log.warning("%s: episode %d is parked: %s: %s", served.name, episode.number, reason, detail)
