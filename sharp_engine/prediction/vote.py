"""Masked k-NN over long-term memory, the paper's vote: compares an example with every memory on the memory's own units.

It computes only the units that some long-term mask needs; `matcher.py` compares them with the memories.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sharp_engine.config import PredictionConfig
from sharp_engine.errors import NothingLearnedError
from sharp_engine.labels import Labels
from sharp_engine.memory.long_term import LongTermMemory
from sharp_engine.network.compact import needed_subnetwork
from sharp_engine.network.preprocessing import Preprocessor
from sharp_engine.network.state import Network
from sharp_engine.prediction.answers import CHUNK, Predictor, arranged, fetched
from sharp_engine.prediction.matcher import Matcher
from sharp_engine.prediction.novelty import NEIGHBOURS, NoveltyScale


class VotePredictor(Predictor):
    """Answers for the state of a learner at the end of an episode, by the vote of its memories."""

    def __init__(
        self,
        preprocessor: Preprocessor,
        network: Network,
        ltm: LongTermMemory,
        labels: Labels,
        config: PredictionConfig,
    ) -> None:
        if not ltm.classes:
            raise NothingLearnedError("nothing was learned yet: there is no class to name")
        super().__init__([labels.label(memory.class_id) for memory in ltm.classes])
        self.episodes = max(memory.episode for memory in ltm.classes)
        self.class_ids = tuple(memory.class_id for memory in ltm.classes)
        self._preprocessor = preprocessor
        self._config = config
        device = network.device
        self._episodes = torch.tensor([memory.episode for memory in ltm.classes])
        self._subnetwork = needed_subnetwork(network, torch.stack([memory.mask for memory in ltm.classes]).any(0))
        self._matcher = Matcher(ltm.classes, self._subnetwork.output_units)
        self._novelty = NoveltyScale(ltm.classes, device)

    @torch.inference_mode()
    def represent(self, x: Tensor) -> Tensor:
        """z of the units that memories need: (n, units)."""
        return self._subnetwork.f(self._subnetwork.g(self._preprocessor(x)))

    @torch.inference_mode()
    def novelty_ratios(self, x: Tensor) -> Tensor:
        """Uncalibrated novelty of examples: (n,)."""
        return torch.cat([self._ratios(self._similarity_to_classes(part)) for part in x.split(CHUNK)])

    def _similarity_to_classes(self, x: Tensor) -> Tensor:
        few = self._matcher.best_of_each(self._matcher.compare(self.represent(x)), NEIGHBOURS)
        return self._matcher.class_similarity(few)

    def _ratios(self, similarity: Tensor) -> Tensor:
        """From similarities to classes, (n, classes): the least ratio, (n,)."""
        return -(similarity * self._novelty.slope + self._novelty.offset).amax(1)

    @torch.inference_mode()
    def class_scores(self, features: Tensor) -> Tensor:
        """How the vote goes for what the first layer sees of examples: (n, classes), in [0, 1]."""
        compared = self._matcher.compare(self._subnetwork.f(self._subnetwork.g(features)))
        best = self._matcher.best_of_each(compared, 1)[0]
        k = min(self._config.neighbours, self._matcher.entries)
        return F.one_hot(self._matcher.nearest(compared, best, k)[1], self._matcher.classes).sum(1) / k

    def _answer(self, x: Tensor, top: int, memories: int, novelty: bool) -> dict[str, NDArray[Any]]:
        matcher = self._matcher
        compared = matcher.compare(self.represent(x))
        top, memories = min(top, matcher.classes), min(memories, matcher.entries)
        k = min(self._config.neighbours, matcher.entries)
        few = matcher.best_of_each(compared, NEIGHBOURS if novelty else 1)  # (few, n, classes)
        best = few[0]  # (n, classes)
        near, near_class = matcher.nearest(compared, best, max(k, memories))  # (n, k or memories), nearest first
        if top <= 1:
            share, order = _winner(near_class[:, :k])
        else:
            votes = F.one_hot(near_class[:, :k], matcher.classes).sum(1)  # (n, classes)
            order = _order(votes, best)[:, :top]
            share = votes.gather(1, order) / k
        found = {
            "classes": order,  # (n, at least top), like the next two
            "shares": share,
            # No class is nearer than one that did better: a distance beside a label must not speak against it.
            "distances": _distance(best.gather(1, order)).cummax(1).values,
            "memory": near_class[:, :memories],
            "memory_distance": _distance(near[:, :memories]),
        }
        if novelty:
            found["novelty"] = self._novelty.calibrate(self._ratios(matcher.class_similarity(few)))
        answer = arranged(fetched(found), top)
        return answer | {"memory_episode": self._episodes.numpy()[answer["memory"]]}


def _distance(similarity: Tensor) -> Tensor:
    return (2.0 - 2.0 * similarity).clamp_(min=0.0)  # rounding may take a cosine past 1


def _winner(near_class: Tensor) -> tuple[Tensor, Tensor]:
    """Share and class of the vote's winner, (n, 1) each; a tie goes to the class with the nearest entry."""
    k = near_class.shape[1]
    votes = (near_class[:, :, None] == near_class[:, None, :]).sum(2)  # (n, k) votes of each neighbour's class
    position = torch.arange(k, device=near_class.device)
    first = (votes * k - position).argmax(1, keepdim=True)  # most votes, then nearest; (n, 1)
    return votes.gather(1, first) / k, near_class.gather(1, first)


def _order(votes: Tensor, best: Tensor) -> Tensor:
    """Classes by votes, then by their nearest entry: (n, classes)."""
    by_distance = best.argsort(dim=1, descending=True, stable=True)
    by_votes = votes.gather(1, by_distance).argsort(dim=1, descending=True, stable=True)
    return by_distance.gather(1, by_votes)
