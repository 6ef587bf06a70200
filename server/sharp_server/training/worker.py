"""The training process: takes one episode at a time from the journal and hands over a finished version as a file.

It may die at any moment and loses nothing: after each phase it leaves a file from which the next trainer goes on. It
never writes to the journal (the front does, when it hears that a version is in place), never talks to a client, and
ends by itself when the front is gone. What it says goes through a pipe as JSON, one message each:

    front → trainer   train {…Job}, pause, stop
    trainer → front   ready, started, progress, phase, learned, failed, stopped
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import logging
import os
import queue
import resource
import signal
import threading
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from sharp_server.config.model import LogConfig, TrainerConfig
from sharp_server.errors import disk_is_full, short

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_REPORTS = 0.3


@dataclass(frozen=True)
class Job:
    """An episode to be learned."""

    learner: str
    uid: str
    episode: int
    """Its row in the journal."""
    number: int
    journal: str
    base: str
    """Snapshot to start from; empty: a new learner."""
    base_sha256: str
    settings: dict[str, Any]
    """The engine's config."""
    blurry: bool
    """Whether its stream has no boundaries of its own: idle units are not re-initialised after it."""
    input_shape: list[int]
    labels: dict[str, Any]
    """Ordinal → label."""
    work: str
    """Folder of half-learned episodes."""
    stem: str
    """Beginning of this episode's files there."""
    out: str
    """Where the finished version goes."""


def run_trainer(pipe: Connection, data: str, config: TrainerConfig, logs: LogConfig) -> None:
    """The main function of the training process."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the front says when to stop, through the pipe
    os.nice(config.niceness)
    from sharp_server.runtime.logs import set_up

    set_up(logs)
    import torch

    torch.set_num_threads(config.threads)
    if config.memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (config.memory_bytes, config.memory_bytes))
    lock = os.open(Path(data) / "trainer.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # a trainer of a server that was just killed may still be ending
    import sharp_engine  # noqa: F401 (better now than in the first episode)

    Trainer(pipe, config).serve()


def _die_with_parent() -> None:
    """Ask the kernel to end this process with the one that started it; elsewhere the closed pipe does."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)


class Trainer:
    """Serves the commands of the front, one after the other."""

    def __init__(self, pipe: Connection, config: TrainerConfig) -> None:
        self._pipe = pipe
        self._config = config
        self._commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._cancel = threading.Event()
        self._sending = threading.Lock()
        self._last = 0.0

    def serve(self) -> None:
        """Work until told to stop."""
        threading.Thread(target=self._listen, name="pipe", daemon=True).start()
        self._send("ready", pid=os.getpid())
        while True:
            command = self._commands.get()
            if command["do"] == "stop":
                return
            if command["do"] == "train":
                self._train(Job(**command["job"]))

    def _listen(self) -> None:
        while True:
            try:
                command = json.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                os._exit(1)  # the front is gone: nobody could take what is being made
            if command["do"] == "train":
                self._cancel.clear()
            else:
                self._cancel.set()
            self._commands.put(command)

    def _send(self, kind: str, **values: object) -> None:
        try:
            with self._sending:
                self._pipe.send_bytes(json.dumps({"kind": kind, **values}).encode())
        except BrokenPipeError:
            os._exit(1)  # the front is gone, as in `_listen`

    # ---- one episode --------------------------------------------------------------------------------------------

    def _train(self, job: Job) -> None:
        import sharp_engine as engine

        try:
            outcome = self._learn(job)
        except engine.Cancelled:
            self._send("stopped", episode=job.episode)
            return
        except BaseException as error:  # whatever it is: the front decides about tries and parking
            reason, lasting = _reason(error)
            log.warning("episode %d of %s failed: %s: %s", job.number, job.learner, type(error).__name__, error)
            self._send("failed", episode=job.episode, reason=reason, detail=_detail(error), lasting=lasting)
            if not isinstance(error, Exception):
                raise
            return
        self._send("learned", episode=job.episode, **outcome)

    def _learn(self, job: Job) -> dict[str, Any]:
        from sharp_engine import Progress
        from sharp_server.learners.settings import without_paths
        from sharp_server.prediction.summary import figures_of
        from sharp_server.storage.data_folder import sha256_of

        x, y = read_examples(job)
        learner = self._resumed(job) or self._fresh(job)
        learner.config = learner.config.with_options({"stream.blurry": job.blurry})
        begun_at = learner.running.phases_done if learner.running is not None else 0
        phases = learner.config.training.phases
        self._send("started", episode=job.episode, phase=min(begun_at + 1, phases), phases=phases)

        def observe(progress: Progress) -> None:
            if progress.event == "phase-ended":
                self._keep(job, learner, progress.phase)
                self._send("phase", episode=job.episode, layers=figures_of(learner)["layers"])
            now = time.monotonic()
            if progress.event in ("step", "phase-started", "phase-ended", "epoch-ended") and (
                now - self._last >= _SECONDS_BETWEEN_REPORTS
            ):
                self._last = now
                values = asdict(progress)
                values.pop("ranks")
                done = progress.phases and (progress.phase - (progress.event != "phase-ended")) / progress.phases
                within = progress.epoch / progress.epochs / progress.phases if progress.epochs else 0.0
                fraction = done + (within if progress.event == "epoch-ended" else 0.0)
                if progress.seconds_left is not None and progress.seconds + progress.seconds_left > 0:
                    fraction = progress.seconds / (progress.seconds + progress.seconds_left)
                self._send("progress", **{**values, "episode": job.episode, "fraction": min(1.0, max(0.0, fraction))})

        if learner.running is not None:
            report = learner.resume_episode(x, y, observer=observe, cancel=self._cancel)
        else:
            report = learner.learn_episode(x, y, observer=observe, cancel=self._cancel)
        out = Path(job.out)
        learner.config = without_paths(learner.config)
        learner.save(out, pending=False)
        return {
            "sha256": sha256_of(out).hex(),
            "size": out.stat().st_size,
            "report": {**asdict(report), "losses": list(report.losses)},
            "figures": figures_of(learner),
        }

    def _fresh(self, job: Job) -> Any:
        """The learner as it is before the episode."""
        from sharp_engine import Learner, SnapshotError
        from sharp_engine.config import from_dict
        from sharp_server.storage.data_folder import sha256_of

        if not job.base:
            return Learner(from_dict({**job.settings, "device": self._config.device}))
        if sha256_of(Path(job.base)).hex() != job.base_sha256:
            raise SnapshotError("the version to start from is damaged on disk")
        return Learner.load(job.base, device=self._config.device)

    def _resumed(self, job: Job) -> Any | None:
        """The learner as it was after the last finished phase of this episode, if there is a sound file of it."""
        from sharp_engine import Learner, SharpError
        from sharp_server.storage.data_folder import SUFFIX, sha256_of

        for path in sorted(Path(job.work).glob(f"{job.stem}-*{SUFFIX}"), reverse=True):
            digest = path.name.removesuffix(SUFFIX).rsplit("-", 1)[-1]
            try:
                if sha256_of(path).hex() == digest:
                    learner = Learner.load(path, device=self._config.device)
                    if learner.running is not None:
                        return learner
            except (SharpError, OSError) as error:
                log.warning("a half-learned episode of %s can't be used: %s", job.learner, error)
            path.unlink(missing_ok=True)
        return None

    def _keep(self, job: Job, learner: Any, phase: int) -> None:
        """Leave a file from which the episode can go on after this phase; its name holds its own checksum."""
        from sharp_server.storage.data_folder import SUFFIX, sha256_of, sync_folder

        work = Path(job.work)
        draft = work / f".{job.uid}-draft{SUFFIX}"
        try:
            learner.save(draft, pending=False)
            kept = work / f"{job.stem}-{phase:04d}-{sha256_of(draft).hex()}{SUFFIX}"
            draft.rename(kept)
            sync_folder(work)
        except OSError as error:
            if not disk_is_full(error):
                raise
            log.warning("phase %d of episode %d could not be kept: %s", phase, job.number, error.strerror)
            return
        for older in work.glob(f"{job.stem}-*{SUFFIX}"):
            if older != kept:
                older.unlink(missing_ok=True)


def read_examples(job: Job) -> tuple[Any, list[str | int]]:
    """An episode's examples and labels from the journal, in the order in which they came."""
    from sharp_server.storage.sqlite import schema
    from sharp_server.storage.sqlite.streams import episode_parts

    connection = schema.connect(Path(job.journal), readonly=True)
    try:
        parts = episode_parts(connection, job.episode)
    finally:
        connection.close()
    return joined(parts, tuple(job.input_shape)), [
        job.labels[str(ordinal)] for _, _, y, _ in parts for ordinal in np.frombuffer(y, np.int32).tolist()
    ]


def joined(parts: list[tuple[str, int, bytes, bytes]], shape: tuple[int, ...]) -> Any:
    """The values of parts as one array: bytes stay bytes where all parts are, else numbers of 0 to 1."""
    arrays = [np.frombuffer(x, np.uint8 if dtype == "u1" else "<f4").reshape(n, *shape) for dtype, n, _, x in parts]
    if len({array.dtype for array in arrays}) > 1:
        arrays = [array.astype(np.float32) / np.float32(255) if array.dtype == np.uint8 else array for array in arrays]
    return np.concatenate(arrays) if arrays else np.zeros((0, *shape), np.uint8)


def _reason(error: BaseException) -> tuple[str, bool]:
    """(ParkReason without its prefix, or DISK_FULL; whether another try is in vain)."""
    import sharp_engine as engine

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
    return short(f"{type(error).__name__}: {text}" if text else type(error).__name__)
