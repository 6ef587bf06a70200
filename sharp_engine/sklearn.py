"""SHARP as a scikit-learn estimator: `fit`, `partial_fit`, `predict`, in pipelines, grid searches and plain loops.

The one module of the engine that needs scikit-learn, so nothing of the engine may import it. What a stream teaches must
never depend on how it was cut into calls, nor on when predictions were asked for.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from sharp_engine.errors import ConfigError, EpisodeStateError, NoPositivePairError, NothingLearnedError
from sharp_engine.labels import Label
from sharp_engine.learner import Learner
from sharp_engine.prediction.answers import Predictions
from sharp_engine.presets import preset as settings_of

Episodes = Literal["automatic", "calls"]


class SharpClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A classifier that takes new classes as they come and keeps the old ones.

    `fit` starts anew and learns everything as one episode. `partial_fit` goes on with a stream, in batches of any size:

    - `episodes="automatic"`: where the mix of classes or the look of a class changes, the learner ends an episode by
      itself. Until then the examples of the open episode are kept as they are, in `learner_.pending`. Predictions know
      them all the same: the first one after a call learns them on a copy, which takes as long as learning them does.
    - `episodes="calls"`: each call is learned at once. One that brings several examples of a class is a whole episode;
      one that does not, down to a single row, is taught: no episode, and right from the next prediction on.

    Classes need not be announced. Those given as `classes` have their column in `predict_proba` from the start.
    Features are scaled by the first examples, and compared in a metric that is learned, so that a scaler in front is
    seldom needed. It still helps where the first call shows little of them: one class, or a handful of rows.

    Settings without a learned metric (`sharp` and the paper's) need two examples of some class in every episode, and
    similar scales.

    Parameters
    ----------
    preset : name of the settings to start from, see `sharp_engine.PRESETS`.
    options : single settings on top, by dotted name, as in `{"training.phases": 6}`.
    input_shape : shape of one example, if rows are flattened images: `(channels, height, width)`.
    episodes : "automatic" or "calls", see above.
    random_state : seed of the learner.

    >>> import numpy as np
    >>> classifier = SharpClassifier(random_state=0)
    >>> calm, stormy = np.random.default_rng(0).random((2, 40, 8)) + [[[0]], [[2]]]
    >>> classifier.partial_fit(calm, ["calm"] * 40).partial_fit(stormy, ["stormy"] * 40).predict([calm[0], stormy[0]])
    array(['calm', 'stormy'], dtype='<U6')
    """

    def __init__(
        self,
        preset: str = "default",
        *,
        options: Mapping[str, Any] | None = None,
        input_shape: tuple[int, ...] | None = None,
        episodes: Episodes = "automatic",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.preset = preset
        self.options = options
        self.input_shape = input_shape
        self.episodes = episodes
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803 (scikit-learn's names)
        """Forget everything and learn these examples as one episode."""
        rows, labels = self._validated(X, y, first=True)
        learner = self._new_learner()
        learner.learn_episode(rows, _plain(labels))
        self.classes_, self.learner_ = np.unique(labels), learner
        self._answers: Learner | None = learner
        return self

    def partial_fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        classes: ArrayLike | None = None,
    ) -> Self:
        """Go on with the stream; see the class for what makes an episode."""
        first = not hasattr(self, "learner_")
        rows, labels = self._validated(X, y, first)
        learner = self._new_learner() if first else self.learner_
        announced = labels[:0] if classes is None else np.asarray(classes)
        learner.labels.check([*_plain(announced), *_plain(labels)])
        if self.episodes == "calls":
            _learn_call(learner, rows, _plain(labels))
        else:
            learner.observe(rows, _plain(labels))
        known = [np.unique(labels), *([] if first else [self.classes_]), *([announced] if len(announced) else [])]
        self.classes_, self.learner_, self._answers = np.unique(np.concatenate(known)), learner, None
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """The class of each example."""
        answers = self._ask(X, top=1)
        return np.asarray(answers.labels).astype(self.classes_.dtype)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """How sure the answer is of each class, in the order of `classes_`; a row sums to 1.

        Shares are calibrated on single memories that are left out of the metric in turn, so that of answers with a
        share of 0.8 about four in five are right. With less than twenty memories, and for settings without a learned
        metric, they only rank. A class that was announced but not learned yet has 0.
        """
        check_is_fitted(self, "learner_")
        answers = self._ask(X, top=len(self.classes_))
        column = {label: place for place, label in enumerate(_plain(self.classes_))}
        shares: NDArray[np.float64] = np.zeros((len(answers), len(self.classes_)))
        places = np.array([[column[label] for label in row] for row in answers.top_labels])
        np.put_along_axis(shares, places, answers.top_share.astype(np.float64), axis=1)
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def __getstate__(self) -> dict[str, Any]:
        """Pickles carry the learner as a snapshot: plain tensors in the engine's own format, the stream included."""
        state: dict[str, Any] = super().__getstate__()
        if "learner_" in state:
            state = {**state, "_answers": None, "learner_": _to_bytes(state["learner_"])}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "learner_" in state:
            learner = _from_bytes(state["learner_"])
            state = {**state, "learner_": learner, "_answers": None if learner.pending_examples else learner}
        super().__setstate__(state)

    # ---- inside -------------------------------------------------------------------------------------------------

    def _validated(self, x: ArrayLike, y: ArrayLike, first: bool) -> tuple[NDArray[np.float32], NDArray[Any]]:
        rows, labels = validate_data(self, x, y, reset=first, dtype=np.float32)
        check_classification_targets(labels)
        return self._shaped(rows), labels

    def _shaped(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.input_shape is None:
            return rows
        if np.prod(self.input_shape) != rows.shape[1]:
            raise ValueError(f"{rows.shape[1]} features do not make the input_shape {tuple(self.input_shape)}")
        return rows.reshape(-1, *self.input_shape)

    def _new_learner(self) -> Learner:
        if self.episodes not in ("automatic", "calls"):
            raise ConfigError(f"episodes must be 'automatic' or 'calls', not {self.episodes!r}")
        seed = int(check_random_state(self.random_state).randint(2**31))
        found = self.episodes == "automatic"  # such a stream is blurry too, as a server's automatic ones are
        own = {"seed": seed, "stream.boundaries": "automatic" if found else "explicit", "stream.blurry": found}
        return Learner(settings_of(self.preset).with_options({**own, **(self.options or {})}))

    def _ask(self, x: ArrayLike, top: int) -> Predictions:
        check_is_fitted(self, "learner_")
        rows = self._shaped(validate_data(self, x, reset=False, dtype=np.float32))
        if self._answers is None:
            self._answers = self._all_learned()
        try:
            return self._answers.predict(rows, top=top, novelty=False)
        except NothingLearnedError as error:
            raise NotFittedError(f"{error}; without a learned metric a class needs two examples") from None

    def _all_learned(self) -> Learner:
        """The learner, with its open episode learned as if it ended here; the stream itself goes on untouched."""
        if not self.learner_.pending_examples:
            return self.learner_
        learner = copy.deepcopy(self.learner_)
        try:
            learner.end_episode()
        except NoPositivePairError:  # too little for an episode yet
            return self.learner_
        return learner


def _learn_call(learner: Learner, rows: NDArray[np.float32], labels: list[Label]) -> None:
    """An episode, or, where no class has two examples, a few that are taught."""
    if len(set(labels)) == len(labels):
        try:
            learner.teach(rows, labels)
            return
        except EpisodeStateError:  # nothing stable to compare yet: an episode must come first, or be refused
            pass
    learner.learn_episode(rows, labels)


def _plain(labels: NDArray[Any]) -> list[Label]:
    """Labels as the engine takes them: strings, or integers also where scikit-learn takes 1.0 and True for classes."""
    return [label if isinstance(label, str) else int(label) for label in labels.tolist()]


def _to_bytes(learner: Learner) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.safetensors"
        learner.save(path)
        return path.read_bytes()


def _from_bytes(snapshot: bytes) -> Learner:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.safetensors"
        path.write_bytes(snapshot)
        return Learner.load(path)
