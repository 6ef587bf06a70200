"""What the trainer does: one slice of one episode at a time from the journal, a finished version as a file.

It may die at any moment and loses nothing: after each phase it leaves a file from which the next trainer goes on. It
never writes to the journal (the front does, when it hears that a version is in place) and never talks to a client.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import sharp_engine as engine
from sharp_engine import Learner, Progress
from sharp_server.config.model import LogConfig, TrainerConfig
from sharp_server.errors import disk_is_full, redact
from sharp_server.prediction.portable_config import without_paths
from sharp_server.prediction.quality import quality_of
from sharp_server.prediction.summary import summarize, summarize_layers
from sharp_server.runtime import malloc
from sharp_server.storage.data_folder import SUFFIX, sync_folder
from sharp_server.storage.interface import ExampleSource
from sharp_server.training.helpers import Helpers
from sharp_server.training.preparation import learn, prepare
from sharp_server.training.protocol import (
    Command,
    Drop,
    Failed,
    Job,
    Learned,
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
from sharp_server.training.suspended import SliceOver, SuspendedLearners

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_REPORTS = 0.3
_SECONDS_BETWEEN_RETURNS = 10.0
"""Freed memory is given back after an episode, but not after each of many small ones: it would be asked for again."""
_REPORTED = ("metric-ready", "step", "phase-started", "phase-ended", "epoch-ended")
_BETWEEN_PHASES = ("metric-ready", "phase-ended")
"""Events at which the phase that they name is finished."""


class Trainer:
    """Serves the commands of the front, one after the other."""

    def __init__(self, pipe: Connection, examples: ExampleSource, config: TrainerConfig, log_config: LogConfig) -> None:
        self._pipe, self._examples, self._device = pipe, examples, config.device
        self._helpers = Helpers(examples, config, log_config)
        self._suspended = SuspendedLearners(config.suspended_learners, config.suspended_bytes)
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._cancel, self._give_way = threading.Event(), threading.Event()
        self._sending = threading.Lock()
        self._returned = 0.0

    def serve(self) -> None:
        """Work until asked to stop."""
        threading.Thread(target=self._listen, name="pipe", daemon=True).start()
        self._send(Ready(os.getpid()))
        while not isinstance(command := self._commands.get(), Stop):
            self._carry_out(command)
        self._helpers.end()

    def _carry_out(self, command: Command) -> None:
        """Do what the front asked for; what only interrupts has had its effect by then."""
        if isinstance(command, Train):
            self._train(command.job)
            self._return_memory()
        elif isinstance(command, Drop):
            self._suspended.drop(command.uid)

    def _return_memory(self) -> None:
        if time.monotonic() - self._returned >= _SECONDS_BETWEEN_RETURNS:
            malloc.return_freed_memory()
            self._returned = time.monotonic()

    def _listen(self) -> None:
        while True:
            try:
                command: Command = self._pipe.recv()
            except (EOFError, OSError):
                os._exit(1)  # the front is gone: nobody could take what is being made
            self._take(command)

    def _take(self, command: Command) -> None:
        """Interrupt what is under way where that is asked for, and queue the command."""
        if isinstance(command, Train):
            self._cancel.clear()
            self._give_way.clear()
        elif isinstance(command, Yield):
            self._give_way.set()
        elif isinstance(command, Pause | Stop):
            self._cancel.set()
        self._commands.put(command)

    def _send(self, report: Report) -> None:
        try:
            with self._sending:
                self._pipe.send(report)
        except BrokenPipeError:
            os._exit(1)  # the front is gone, as in `_listen`

    def _train(self, job: Job) -> None:
        try:
            self._send(self._learn(job))
        except SliceOver as over:
            self._send(Yielded(job.episode, over.in_memory))
        except engine.Cancelled:
            self._send(Stopped(job.episode))
        except engine.ShardingError as error:
            log.warning("episode %d of %s: %s: the trainer ends", job.number, job.learner, error)
            os._exit(1)  # and its helpers with it: the front starts others, which go on from the last phase
        except BaseException as error:  # whatever it is: the front decides about tries and parking
            reason, lasting = _reason(error)
            log.warning("episode %d of %s failed: %s: %s", job.number, job.learner, type(error).__name__, error)
            self._send(Failed(job.episode, reason, _detail(error), lasting))
            if not isinstance(error, Exception):
                raise

    def _learn(self, job: Job) -> Learned:
        suspended = self._suspended.take(job)
        learner = suspended or prepare(job, self._examples, self._device, self._cancel)
        observer = _Observer(job, learner, self._send, self._end_slice)
        try:
            with self._helpers.following(job, learner, self._cancel):
                report = learn(job, learner, None if suspended else self._examples, observer, self._cancel)
        finally:
            observer.say_started(0, learner.config.training.phases)  # also of an episode that was refused at once
        learner.reconfigure(without_paths(learner.config))
        sha256 = learner.save(job.out, pending=False)
        return Learned(job.episode, report, summarize(learner), quality_of(learner), sha256)

    def _end_slice(self, job: Job, learner: Learner, progress: Progress, on_disk: bool) -> None:
        """At the end of a phase: leave the episode if asked to, unless it is nearly done or would lose the phase."""
        if not self._give_way.is_set() or progress.phase >= progress.phases:
            return
        if learner.running is not None:
            learner.running.seconds = progress.seconds
        # Helpers go on from the file of the phase, and the trainer has to begin where they do.
        in_memory = self._helpers.processes_for(learner) == 1 and self._suspended.keep(job, learner)
        if in_memory or on_disk:
            raise SliceOver(in_memory)


class _Observer:
    """Passes on what the engine reports of an episode, keeps every finished phase, and may end the slice after it."""

    def __init__(
        self,
        job: Job,
        learner: Learner,
        send: Callable[[Report], None],
        end_slice: Callable[[Job, Learner, Progress, bool], None],
    ) -> None:
        self._job, self._learner, self._send, self._end_slice = job, learner, send, end_slice
        self._seconds_before = learner.running.seconds if learner.running is not None else 0.0
        self._started = False
        self._examples = 0
        self._last = 0.0

    def say_started(self, phases_done: int, phases: int) -> None:
        """Report, once, with which of how many phases the episode begins: none, if only the metric learns."""
        if not self._started:
            self._started = True
            self._send(Started(self._job.episode, min(phases_done + 1, phases), phases))

    def __call__(self, progress: Progress) -> None:
        self.say_started(progress.phase, progress.phases)
        on_disk = False
        if progress.event == "phase-ended":
            kept = _keep(self._job, self._learner, progress.phase)
            on_disk = kept is not None
            file, sha256 = kept if kept is not None else (None, b"")
            self._send(PhaseDone(self._job.episode, summarize_layers(self._learner), file, sha256))
        now = time.monotonic()
        if progress.event in _REPORTED and now - self._last >= _SECONDS_BETWEEN_REPORTS:
            self._last = now
            self._send(self._progressed(progress))
        if progress.event in _BETWEEN_PHASES:
            self._end_slice(self._job, self._learner, progress, on_disk)

    def _progressed(self, progress: Progress) -> Progressed:
        rate = progress.examples_per_second or 0.0
        trained = round(rate * (progress.seconds - self._seconds_before))
        since, self._examples = max(0, trained - self._examples), trained
        return Progressed(
            episode=self._job.episode,
            phase=progress.phase,
            phases=progress.phases,
            epoch=progress.epoch,
            epochs=progress.epochs,
            loss=progress.loss,
            examples=since,
            examples_per_second=rate,
            fraction=min(1.0, max(0.0, _fraction(progress))),
            seconds_left=progress.seconds_left,
        )


def _fraction(progress: Progress) -> float:
    """How much of the episode is done: by time where that is known, else by phases and epochs."""
    if progress.seconds_left is not None and progress.seconds + progress.seconds_left > 0:
        return progress.seconds / (progress.seconds + progress.seconds_left)
    if not progress.phases:  # only the metric learns it, and is done with it
        return float(progress.event == "metric-ready")
    done = (progress.phase - (progress.event not in _BETWEEN_PHASES)) / progress.phases
    within = progress.epoch / progress.epochs / progress.phases if progress.epochs else 0.0
    return done + (within if progress.event == "epoch-ended" else 0.0)


def _keep(job: Job, learner: Learner, phase: int) -> tuple[Path, bytes] | None:
    """Leave a file from which the episode can go on after this phase; its name holds its own checksum.

    Gives the file and its SHA-256. None: the disk has no room for it.
    """
    draft = job.work / f".{job.uid}-draft{SUFFIX}"
    try:
        sha256 = learner.save(draft, pending=False)
        kept = job.work / f"{job.stem}-{phase:04d}-{sha256.hex()}{SUFFIX}"
        draft.rename(kept)
        sync_folder(job.work)
    except OSError as error:
        if not disk_is_full(error):
            raise
        log.warning("phase %d of episode %d could not be kept: %s", phase, job.number, error.strerror)
        return None
    for older in job.work.glob(f"{job.stem}-*{SUFFIX}"):
        if older != kept:
            older.unlink(missing_ok=True)
    return kept, sha256


def _reason(error: BaseException) -> tuple[str, bool]:
    """(ParkReason without its prefix, or DISK_FULL; whether another try is in vain)."""
    if isinstance(error, engine.NonFiniteLossError):
        return "NON_FINITE_LOSS", False
    if isinstance(error, engine.NoPositivePairError):
        return "NO_POSITIVE_PAIR", True
    if isinstance(error, engine.SilentNetworkError):
        return "SILENT_NETWORK", False
    if disk_is_full(error):
        return "DISK_FULL", False
    text = str(error).lower()
    if isinstance(error, MemoryError) or "can't allocate" in text or "out of memory" in text or "alloc" in text:
        return "OUT_OF_MEMORY", False
    return "ENGINE_ERROR", False


def _detail(error: BaseException) -> str:
    """One sentence for people, without paths or examples."""
    text = (str(error).splitlines() or [""])[0]
    return redact(f"{type(error).__name__}: {text}" if text else type(error).__name__)
