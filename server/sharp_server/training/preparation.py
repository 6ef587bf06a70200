"""From a job to a learner that stands where the job begins, and on to its end: the same in every process that trains.

It never writes to the journal, and leaves no file: at most it removes a half-learned episode that can't be used.
"""

from __future__ import annotations

import logging
import threading

import torch

import sharp_engine as engine
from sharp_engine import Learner
from sharp_server.storage.data_folder import SUFFIX, sha256_of
from sharp_server.storage.interface import ExampleSource
from sharp_server.storage.slices import joined, labels_of
from sharp_server.teaching.taught import teach_lesson
from sharp_server.training.protocol import Job

log = logging.getLogger(__name__)


def prepare(job: Job, examples: ExampleSource, device: str, cancel: threading.Event | None = None) -> Learner:
    """The learner after the last finished phase of the episode, or before it, with the lessons that come first."""
    return _resumed(job, device) or _taught(job, _begun(job, device), examples, cancel)


def learn(
    job: Job,
    learner: Learner,
    examples: ExampleSource | None,
    observer: engine.Observer | None = None,
    cancel: threading.Event | None = None,
) -> engine.EpisodeReport:
    """Learn the job's episode, or what is left of it. No examples: the learner has them."""
    slices = examples.read(job.episode) if examples is not None else []
    x, y = joined(slices, job.input_shape), labels_of(slices, job.labels)
    learner.reconfigure(learner.config.with_options({"stream.blurry": job.blurry}))
    if learner.running is not None:
        return learner.resume_episode(x, y, observer=observer, cancel=cancel)
    return learner.learn_episode(x, y, observer=observer, cancel=cancel)


def _begun(job: Job, device: str) -> Learner:
    """The learner as it is before the episode."""
    if job.base is None:
        return Learner(job.config.with_options({"device": device}))
    if sha256_of(job.base.path) != job.base.sha256:
        raise engine.SnapshotError("the version to start from is damaged on disk")
    return Learner.load(job.base.path, device=device, verified=True)


def _resumed(job: Job, device: str) -> Learner | None:
    """The learner as it was after the last finished phase of this episode, if there is a sound file of it."""
    for path in sorted(job.work.glob(f"{job.stem}-*{SUFFIX}"), reverse=True):
        digest = path.name.removesuffix(SUFFIX).rsplit("-", 1)[-1]
        try:
            if sha256_of(path).hex() == digest:
                learner = Learner.load(path, device=device, verified=True)
                if learner.running is not None:
                    return learner
        except (engine.SharpError, OSError) as error:
            log.warning("a half-learned episode of %s can't be used: %s", job.learner, error)
        path.unlink(missing_ok=True)
    return None


def _taught(job: Job, learner: Learner, examples: ExampleSource, cancel: threading.Event | None) -> Learner:
    """The learner with the lessons that came before the episode; one that is resumed has them."""
    if job.lessons is None or not learner.config.metric.enabled:
        return learner
    lessons, threads = examples.lessons(job.lessons.learner, job.lessons.place), torch.get_num_threads()
    torch.set_num_threads(job.lessons.threads)
    try:
        for lesson in lessons:
            if cancel is not None and cancel.is_set():
                raise engine.Cancelled("stopped while lessons were taught")
            x, y = joined(lesson.slices, job.input_shape), labels_of(lesson.slices, job.labels)
            teach_lesson(learner, x, y)
    finally:
        torch.set_num_threads(threads)
    return learner
