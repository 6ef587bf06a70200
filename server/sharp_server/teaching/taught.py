"""What is known beyond a version: the learner of its snapshot, taught everything that arrived since, in order.

It is a pure function of the version and the arrivals in the journal's order, so it can be made again at any time, the
same to the last bit. Used by one thread at a time, never by the event loop and never by the predictor's thread; what it
gives out (predictors, summaries) is immutable.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Container, Sequence
from pathlib import Path

import torch

from sharp_engine import Label, Learner, NothingLearnedError, Predictor, SharpError
from sharp_engine.labels import Labels
from sharp_server.errors import redact
from sharp_server.prediction.portable_config import without_paths
from sharp_server.prediction.quality import quality_of
from sharp_server.prediction.summary import Summary, summarize
from sharp_server.teaching.protocol import Examples, Known, Saved, Taken

log = logging.getLogger(__name__)


class TaughtLearner:
    """A learner, and what it was taught since its version was made."""

    def __init__(self, learner: Learner, classes: Sequence[Label] = ()) -> None:
        """`classes`: of the version, in its summary's order; none: nothing was learned yet."""
        self._learner = learner
        self._classes = list(classes)
        self._summary: Summary | None = None
        self._until = 0
        self._before_batches: tuple[Learner, int] | None = None
        """As it was before any batch was counted, and the place of the last lesson by then."""

    def teach(self, place: int, x: Examples, labels: Sequence[Label]) -> None:
        """Take a lesson, or raise and stay as it was."""
        self._learner.teach(x, list(labels))
        self._until = place

    def teach_all(self, lessons: Sequence[Taken]) -> tuple[list[int | Exception], Known]:
        """Take lessons; gives how many examples of each were answered wrong before, or why it can't be taught."""
        outcomes: list[int | Exception] = []
        for lesson in lessons:
            try:
                wrong = self.wrong(lesson.x, lesson.labels)
                self.teach(lesson.place, lesson.x, lesson.labels)
                outcomes.append(wrong)
            except SharpError as error:  # it is as it was; whoever asked hears it
                outcomes.append(error)
        return outcomes, self.known()

    def teach_again(self, items: Sequence[Taken], judged: Container[int] = ()) -> dict[int, int]:
        """Take arrivals from the journal; gives how many examples of those in `judged` were answered wrong before."""
        wrong: dict[int, int] = {}
        for item in items:
            if item.place in judged:
                wrong[item.place] = self.wrong(item.x, item.labels)
            if not item.lesson:
                self.count(item.x, item.labels)
            elif teach_lesson(self._learner, item.x, item.labels):
                self._until = item.place
        return wrong

    def count(self, x: Examples, labels: Sequence[Label]) -> None:
        """Take a batch that is still to be learned with its episode: known, but no reason for corrections."""
        if self._before_batches is None:
            self._before_batches = self._lessons_only()
        try:
            self._learner.teach(x, list(labels), correct=False)
        except SharpError as error:  # its episode says what is wrong with it
            log.warning("a batch that can't be counted is left out: %s: %s", type(error).__name__, redact(error))

    def wrong(self, x: Examples, labels: Sequence[Label]) -> int:
        """How many examples are answered with another class than theirs, or can't be answered."""
        predictor = self._predictor()
        if predictor is None:
            return len(labels)
        answers = predictor.predict(torch.from_numpy(x if x.flags.writeable else x.copy()), 0, 0, False)
        return sum(answer != label for answer, label in zip(answers.labels, labels, strict=True))

    def known(self) -> Known:
        """What answers know now."""
        predictor = self._predictor()
        classes = predictor.classes if predictor is not None else []
        if classes != self._classes:
            self._summary, self._classes = summarize(self._learner), classes
        return Known(predictor.for_serving() if predictor is not None else None, self._summary)

    def _predictor(self) -> Predictor | None:
        try:
            return self._learner.predictor
        except NothingLearnedError:
            return None

    def summary(self) -> Summary:
        """Of everything that is known."""
        return summarize(self._learner)

    def save(self, path: Path, first: int) -> Saved | None:
        """Write what can become a version by itself: the one of before, and the lessons that came before any batch.

        None: nothing from the place `first` on is among those, and nothing is written.
        """
        learner, until = self._lessons_only()
        if until < first:
            return None
        learner.reconfigure(without_paths(learner.config))
        sha256 = learner.save(path, pending=False)
        return Saved(until, summarize(learner), quality_of(learner), sha256)

    def _lessons_only(self) -> tuple[Learner, int]:
        return self._before_batches or (_frozen(self._learner), self._until)


def teach_lesson(learner: Learner, x: Examples, labels: Sequence[Label]) -> bool:
    """Teach a lesson of the journal, wherever that is done; one that the engine refuses is left out every time."""
    try:
        learner.teach(x, list(labels))
    except SharpError as error:
        log.warning("a lesson that can't be taught is left out: %s: %s", type(error).__name__, redact(error))
        return False
    return True


def _frozen(learner: Learner) -> Learner:
    """A copy that teaching the original does not change: it replaces values, and adds to the table of labels only."""
    frozen = copy.copy(learner)
    frozen.labels = Labels(learner.labels.pairs(), learner.labels.next_id, learner.labels.kind)
    return frozen
