"""The learners that are being taught, by number: carries out what the front asks for, one request after the other.

The teacher's process is a loop around it; whoever needs no process uses it as it is.
"""

from __future__ import annotations

from sharp_engine import Learner
from sharp_server.prediction.model import load_file
from sharp_server.storage.slices import joined, labels_of
from sharp_server.teaching.protocol import (
    Answer,
    Begin,
    Begun,
    Done,
    Forget,
    GetKnown,
    Judged,
    Lessons,
    Request,
    Save,
    Taken,
    Teach,
    TeachAgain,
)
from sharp_server.teaching.taught import TaughtLearner


class TaughtLearners:
    """Belongs to one thread."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._learners: dict[int, TaughtLearner] = {}

    def answer(self, request: Request) -> Answer:
        """Do what is asked for, or raise and leave the learner as it was."""
        if isinstance(request, Begin):
            return self._begin(request)
        if isinstance(request, Forget):
            self._learners.pop(request.learner, None)
            return Done()
        taught = self._learners[request.learner]
        if isinstance(request, Teach):
            outcomes, known = taught.teach_all(request.lessons)
            return Lessons(tuple(outcomes), known)
        if isinstance(request, TeachAgain):
            return self._teach_again(taught, request)
        if isinstance(request, Save):
            return taught.save(request.path, request.first) or Done()
        assert isinstance(request, GetKnown)
        return taught.known()

    def _begin(self, request: Begin) -> Begun:
        if request.base is None:
            learner = Learner(request.config.with_options({"device": self._device}))
        else:
            learner = load_file(request.base.path, request.base.sha256, self._device)
        taught, summary = TaughtLearner(learner, request.classes or ()), None
        if request.classes is None and request.base is not None:
            summary = taught.summary()
            taught = TaughtLearner(learner, summary.labels)
        self._learners[request.learner] = taught
        return Begun(summary)

    def _teach_again(self, taught: TaughtLearner, request: TeachAgain) -> Judged:
        shape, labels = request.input_shape, request.labels
        items = [
            Taken(item.place, item.lesson, joined(item.slices, shape), labels_of(item.slices, labels))
            for item in request.items
        ]
        return Judged(taught.teach_again(items, request.judged))
