"""The learned metric's part of a snapshot: what was fitted to the first examples, both memories, and calibration.

    features.mean|deviation              the scale of stable features, once it is fitted
    first.features                       what was taught before there was one, while that is all there is
    dictionary.weight|offset             the patch dictionary, where there is one
    semantic.counts|means|taught         sums per class, and examples that wait to be summed up
    semantic.scatter                     the upper triangle of the pooled scatter, row by row
    episodic.{j}.features|episodes|held_out   representatives of class j
    corrections.features                 corrections, oldest first
    calibration.references               novelty of known examples, sorted

With an episode in progress these are as they were before it began: what it adds is made again from its examples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from sharp_engine.errors import SnapshotError
from sharp_engine.learner import Learner
from sharp_engine.memory.episodic import EpisodicMemory, Representatives
from sharp_engine.memory.first_examples import FirstExamples
from sharp_engine.memory.semantic import SemanticMemory
from sharp_engine.network.dictionary import PatchDictionary, patch_side
from sharp_engine.network.features import Scale
from sharp_engine.prediction.calibration import Calibration
from sharp_engine.prediction.quality import ClassQuality, Confusion, Quality, measure
from sharp_engine.training.knowledge import Knowledge

Count = Callable[[object], int]


class TensorFile(Protocol):
    """The file's tensors, given out only in the type and shape that is expected."""

    def __contains__(self, name: str) -> bool: ...

    def take(self, name: str, dtype: torch.dtype | None, shape: tuple[int | None, ...]) -> Tensor:
        """The tensor of that name, which is then gone from here."""
        ...

    def expect(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        """Raise unless there is one of just this type and shape; leave it here."""
        ...


def describe(learner: Learner) -> dict[str, Any] | None:
    """Everything that is not a tensor, as JSON values; nothing for a learner without a metric."""
    known = learner.knowledge
    if known is None:
        return None
    calibration, semantic, episodic = known.calibration, known.semantic, known.episodic
    first = learner.first
    return {
        "first": None if first is None else {"class_ids": list(first.class_ids), "correct": list(first.correct)},
        "class_ids": list(semantic.class_ids),
        "taught_ids": list(semantic.taught_ids),
        "freedom": semantic.freedom,
        "representatives": [memories.class_id for memories in episodic.classes],
        "correction_ids": list(episodic.correction_ids),
        "correction_episodes": list(episodic.correction_episodes),
        "calibration": {
            "noise": calibration.noise,
            "unit": calibration.unit,
            "temperature": calibration.temperature,
            "weight": calibration.weight,
            "fruitless": calibration.fruitless,
            "quality": _described(calibration.quality),
        },
    }


def tensors_of(learner: Learner) -> dict[str, Tensor]:
    """Everything that is a tensor, by the name it has in the file."""
    known, preprocessor = learner.knowledge, learner.preprocessor
    if known is None:
        return {}
    semantic, episodic = known.semantic, known.episodic
    tensors = {
        "semantic.counts": semantic.counts,
        "semantic.means": semantic.means,
        "semantic.taught": semantic.taught,
        "semantic.scatter": _triangle(semantic.scatter),
        "corrections.features": episodic.corrections,
        "calibration.references": known.calibration.references,
    }
    for j, memories in enumerate(episodic.classes):
        parts = ("features", "episodes", "held_out")
        tensors |= {f"episodic.{j}.{part}": getattr(memories, part) for part in parts}
    if learner.first is not None:
        tensors["first.features"] = learner.first.features
    if preprocessor.scale is not None:
        scale = preprocessor.scale
        tensors |= {"features.mean": scale.mean, "features.deviation": scale.deviation}
    if preprocessor.dictionary is not None:
        dictionary = preprocessor.dictionary
        tensors |= {"dictionary.weight": dictionary.weight, "dictionary.offset": dictionary.offset}
    return tensors


def expect_dimensions(dimensions: int, tensors: TensorFile) -> None:
    """Raise unless the file holds a scatter of so many dimensions: nothing of that size is made before."""
    tensors.expect("semantic.scatter", torch.float32, (dimensions * (dimensions + 1) // 2,))


def restore(learner: Learner, description: dict[str, Any], tensors: TensorFile, count: Count) -> None:
    """Put everything back into a learner that was built for it."""
    known = learner.knowledge
    assert known is not None and learner.architecture is not None
    device, dimensions = learner.device, len(known.semantic.scatter)
    features = known.episodic.corrections.shape[1]
    _restore_features(learner, features, tensors)
    class_ids = tuple(count(i) for i in description["class_ids"])
    taught_ids = tuple(count(i) for i in description["taught_ids"])
    semantic = SemanticMemory(
        class_ids,
        tensors.take("semantic.counts", torch.int64, (len(class_ids),)),
        tensors.take("semantic.means", torch.float32, (len(class_ids), dimensions)).to(device),
        _square(tensors.take("semantic.scatter", torch.float32, (None,)), dimensions).to(device),
        count(description["freedom"]),
        taught_ids,
        (tensors.take("semantic.taught", torch.float32, (len(taught_ids), dimensions)).to(device),),
    )
    if len(set(class_ids)) < len(class_ids) or bool((semantic.counts < 1).any()):
        raise SnapshotError("semantic memory is damaged")
    if bool((semantic.scatter.diagonal() < 0).any()):
        raise SnapshotError("semantic memory is damaged: a variance is negative")
    ids = [count(i) for i in description["representatives"]]
    correction_ids = tuple(count(i) for i in description["correction_ids"])
    correction_episodes = tuple(count(i) for i in description["correction_episodes"])
    if len(correction_episodes) != len(correction_ids):
        raise SnapshotError("corrections are damaged")
    episodic = EpisodicMemory(
        tuple(_representatives(class_id, j, features, tensors, device) for j, class_id in enumerate(ids)),
        correction_ids,
        correction_episodes,
        tensors.take("corrections.features", torch.float32, (len(correction_ids), features)).to(device),
    )
    everyone = set(semantic.examples)
    if everyone and not learner.preprocessor.ready:
        raise SnapshotError("classes are known but not the scale of their features: tensor features.mean is missing")
    labelled = {class_id for class_id, _ in learner.labels.pairs()}
    if not {*ids, *correction_ids} <= everyone or not everyone <= labelled:
        raise SnapshotError("single memories of classes that are not known")
    learner.first = _first(learner, description["first"], everyone, features, tensors, count)
    calibration = _calibration(description["calibration"], everyone, tensors, count)
    learner.knowledge = Knowledge(semantic, episodic, calibration)


def _first(
    learner: Learner, entry: dict[str, Any] | None, everyone: set[int], features: int, tensors: TensorFile, count: Count
) -> FirstExamples | None:
    if entry is None:
        return None
    ids, correct = tuple(count(i) for i in entry["class_ids"]), tuple(entry["correct"])
    values = tensors.take("first.features", torch.float32, (len(ids), features)).to(learner.device)
    first = FirstExamples(values, ids, correct)
    if len(correct) != len(ids) or not all(isinstance(value, bool) for value in correct):
        raise SnapshotError("the first examples are damaged")
    # They are all that is known: nothing was learned, and they would have been summed up if they were more.
    if learner.first is None or not first.few or set(ids) != everyone or learner.episodes:
        raise SnapshotError("the first examples are not all that is known")
    return first


def _restore_features(learner: Learner, features: int, tensors: TensorFile) -> None:
    preprocessor = learner.preprocessor
    assert learner.architecture is not None
    if "features.mean" not in tensors:
        return
    mean = tensors.take("features.mean", torch.float32, (features,)).to(learner.device)
    deviation = tensors.take("features.deviation", torch.float32, (features,)).to(learner.device)
    if bool((deviation <= 0).any()):
        raise SnapshotError("the scale of features is damaged")
    dictionary = None
    if preprocessor.dictionary_config is not None:
        shape = learner.architecture.input_shape
        config = preprocessor.dictionary_config.for_channels(shape[0])
        assert config.atoms is not None
        side = patch_side(config, shape)
        weight = tensors.take("dictionary.weight", torch.float32, (config.atoms, shape[0], side, side))
        offset = tensors.take("dictionary.offset", torch.float32, (config.atoms,))
        dictionary = PatchDictionary(weight.to(learner.device), offset.to(learner.device), config)
    learner.preprocessor = replace(preprocessor, dictionary=dictionary, scale=Scale(mean, deviation))


def _representatives(
    class_id: int, j: int, features: int, tensors: TensorFile, device: torch.device
) -> Representatives:
    stored = tensors.take(f"episodic.{j}.features", torch.float16, (None, features)).to(device)
    episodes = tensors.take(f"episodic.{j}.episodes", torch.int64, (len(stored),))
    return Representatives(
        class_id, stored, episodes, tensors.take(f"episodic.{j}.held_out", torch.bool, (len(stored),))
    )


def _calibration(entry: dict[str, Any], everyone: set[int], tensors: TensorFile, count: Count) -> Calibration:
    noise, unit, temperature = (float(entry[name]) for name in ("noise", "unit", "temperature"))
    weight = None if entry["weight"] is None else float(entry["weight"])
    if not (all(0 < value < math.inf for value in (noise, unit, temperature)) and 0 <= (weight or 0.0) < math.inf):
        raise SnapshotError("calibration is damaged")
    references = tensors.take("calibration.references", torch.float32, (None,))
    if bool((references[1:] < references[:-1]).any()):
        raise SnapshotError("calibration is damaged: references are not in order")
    quality = _quality(entry["quality"], everyone, count)
    return Calibration(noise, unit, temperature, references, weight, count(entry["fruitless"]), quality)


def _described(quality: Quality | None) -> dict[str, Any] | None:
    if quality is None:
        return None
    return {
        "classes": [[c.label, c.examples, c.right] for c in quality.classes],
        "confusions": [[pair.truth, pair.answered, pair.count] for pair in quality.confusions],
    }


def _quality(entry: dict[str, Any] | None, everyone: set[int], count: Count) -> Quality | None:
    if entry is None:
        return None
    classes = [tuple(count(value) for value in values) for values in entry["classes"]]
    pairs = [tuple(count(value) for value in values) for values in entry["confusions"]]
    answers = Counter({(class_id, class_id): right for class_id, _, right in classes})
    for truth, answered, number in pairs:
        answers[truth, answered] += number
    quality = Quality(tuple(ClassQuality(*values) for values in classes), tuple(Confusion(*pair) for pair in pairs))
    if not {class_id for pair in answers for class_id in pair} <= everyone:
        raise SnapshotError("quality is of classes that are not known")
    ids = [class_id for class_id, _, _ in classes]
    if not ids or len(set(ids)) < len(ids) or quality != measure(answers, ids):
        raise SnapshotError("quality is damaged")
    return quality


def _triangle(square: Tensor) -> Tensor:
    """The rows of a symmetric matrix from the diagonal on, one after the other."""
    return torch.cat([row[i:] for i, row in enumerate(square.cpu().unbind(0))]) if len(square) else square.flatten()


def _square(triangle: Tensor, dimensions: int) -> Tensor:
    square = torch.zeros(dimensions, dimensions)
    start = 0
    for i in range(dimensions):
        stop = start + dimensions - i
        square[i, i:] = triangle[start:stop]
        start = stop
    return torch.where(torch.tril(torch.ones_like(square, dtype=torch.bool), -1), square.T, square)
