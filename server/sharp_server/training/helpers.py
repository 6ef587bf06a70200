"""Processes that share the shards of an episode with the trainer (`trainer.processes`), for learners that have shards.

The trainer starts them when the first such episode comes. A helper does what the trainer does with the same job, and
keeps nothing: no file, no report. Whatever ends the trainer's part of an episode ends theirs at the next step. None
outlives the trainer; one that dies takes the trainer with it, and the front begins the next try with new ones.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import queue
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch
import torch.distributed as dist

from sharp_engine import Cancelled, Learner, ShardingError, SharpError
from sharp_server.config.model import LogConfig, TrainerConfig
from sharp_server.runtime import logs
from sharp_server.runtime.child_process import die_with_parent
from sharp_server.storage.interface import ExampleSource
from sharp_server.training.preparation import learn, prepare
from sharp_server.training.protocol import Job

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 0.1


@dataclass(frozen=True)
class Meeting:
    """Where so many processes of this machine find each other, for one slice of one episode."""

    file: Path
    processes: int
    backend: str
    """`gloo`, or `nccl` with a GPU for each."""
    seconds: float
    """After which a process that is waited for counts as lost."""

    @contextlib.contextmanager
    def joined(self, rank: int) -> Iterator[None]:
        """Be one of them meanwhile."""
        os.environ["GLOO_SOCKET_IFNAME"] = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
        if self.backend == "nccl":
            torch.cuda.set_device(rank)
        timeout = timedelta(seconds=self.seconds)
        with _lost_if(RuntimeError):
            store = dist.FileStore(str(self.file), self.processes)  # type: ignore[attr-defined]
            dist.init_process_group(self.backend, store=store, rank=rank, world_size=self.processes, timeout=timeout)
        try:
            yield
        finally:
            dist.destroy_process_group()


@dataclass(frozen=True)
class Follow:
    """Learn an episode together with the trainer."""

    job: Job
    meeting: Meeting
    rank: int


@dataclass(frozen=True)
class HelperReady:
    """A helper takes work."""


class Helpers:
    """The trainer's handle of its helpers; belongs to its main thread."""

    def __init__(self, examples: ExampleSource, config: TrainerConfig, log_config: LogConfig) -> None:
        self._config, self._arguments = config, (examples, config, log_config)
        self._started: list[tuple[SpawnProcess, Connection]] = []

    def processes_for(self, learner: Learner) -> int:
        """How many processes share its shards, with the trainer: the most there may be that divide them."""
        shards, most, device = learner.config.training.shards, self._config.processes, learner.device
        if device.type != "cpu":  # a GPU for each
            most = min(most, torch.cuda.device_count()) if str(device) == "cuda" else 1
        return max(count for count in range(1, max(1, min(shards, most)) + 1) if shards % count == 0)

    @contextlib.contextmanager
    def following(self, job: Job, learner: Learner, cancel: threading.Event) -> Iterator[None]:
        """Helpers compute their shards of what the trainer learns meanwhile, if the learner has any."""
        processes = self.processes_for(learner)
        if processes == 1:
            yield
            return
        self._start(processes - 1 - len(self._started), cancel)
        backend = "gloo" if learner.device.type == "cpu" else "nccl"
        handle, name = tempfile.mkstemp(dir=job.work, prefix=f".{job.uid}-meeting-")
        os.close(handle)
        meeting = Meeting(Path(name), processes, backend, self._config.watchdog_seconds)
        try:
            for rank, (_, pipe) in enumerate(self._started[: processes - 1], 1):
                with _lost_if(OSError):
                    pipe.send(Follow(job, meeting, rank))
            with meeting.joined(0):
                yield
        finally:
            meeting.file.unlink(missing_ok=True)

    def _start(self, count: int, cancel: threading.Event) -> None:
        """Start so many more, all at once, and wait until they take work."""
        context = multiprocessing.get_context("spawn")
        fresh = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=run_helper, args=(theirs, *self._arguments), name="sharp-helper", daemon=True
            )
            process.start()
            theirs.close()
            fresh.append((process, ours))
        self._started += fresh
        for process, pipe in fresh:
            with _lost_if(EOFError, OSError):
                while not pipe.poll(_SECONDS_BETWEEN_LOOKS):
                    if cancel.is_set():
                        raise Cancelled("stopped while helpers were started")
                pipe.recv()
            log.info("a helper of the trainer is ready (process %d)", process.pid)

    def end(self) -> None:
        """End them: they have nothing to lose."""
        for process, pipe in self._started:
            process.kill()
            process.join()
            pipe.close()
        self._started = []


def run_helper(pipe: Connection, examples: ExampleSource, config: TrainerConfig, log_config: LogConfig) -> None:
    """The main function of a helper. Priority and bounds of memory are those of the trainer, which started it."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends with the trainer
    logs.set_up(log_config)
    torch.set_num_threads(config.threads)
    commands: queue.SimpleQueue[Follow] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, commands), name="pipe", daemon=True).start()
    pipe.send(HelperReady())
    while True:
        follow = commands.get()
        try:
            with follow.meeting.joined(follow.rank):
                learn(follow.job, prepare(follow.job, examples, config.device), examples)
        except SharpError as error:  # also the usual end, when the trainer leaves an episode before it is learned
            log.debug("a helper left episode %d of %s: %s", follow.job.number, follow.job.learner, error)


def _listen(pipe: Connection, commands: queue.SimpleQueue[Follow]) -> None:
    while True:
        try:
            commands.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)  # the trainer is gone


@contextlib.contextmanager
def _lost_if(*errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except errors as error:
        raise ShardingError(f"a helper of the trainer is lost: {type(error).__name__}") from error
