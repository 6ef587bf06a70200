"""Predict, by the nearest class mean."""

from __future__ import annotations

import numpy as np

from sharp.v1 import prediction_pb2

from .._labels import encode_label, encode_labels
from .._reasons import ExamplesNotReachedError, TooManyResultsError, VersionNotReachedError
from ._examples import read_examples
from ._learner import FakeLearner
from ._refusals import refuse

MOST_RESULTS = 100
"""Best classes and nearest memories per example at most, as by a server with default settings."""


def predict(
    learner: FakeLearner, request: prediction_pb2.PredictRequest, batch_examples_limit: int
) -> prediction_pb2.PredictResponse:
    """Answer one request. A version to come would not come while the call waits, so it is refused at once."""
    for field, asked in (("top_k", request.top_k), ("nearest_memories", request.nearest_memories)):
        if asked > MOST_RESULTS:
            raise refuse(TooManyResultsError, f"{field} may be {MOST_RESULTS} at most", field=field, limit=MOST_RESULTS)
    if request.min_model_version > learner.model_version:
        raise refuse(
            VersionNotReachedError,
            f"version {request.min_model_version} does not serve yet",
            learner=learner.name,
            wanted=request.min_model_version,
            serving=learner.model_version,
        )
    if request.min_examples > learner.examples_durable:
        raise refuse(
            ExamplesNotReachedError,
            f"fewer than {request.min_examples} examples are known yet",
            learner=learner.name,
            wanted=request.min_examples,
            known=learner.examples_durable,
        )
    learner.require_classes()
    x = read_examples(request.inputs, learner.input_shape, batch_examples_limit, learner.resize)
    labels, distances = learner.distances(x)
    votes = np.exp(-8 * distances)
    shares = votes / votes.sum(axis=1, keepdims=True)
    order = np.argsort(distances, axis=1, kind="stable")
    best = order[:, 0]
    rows = np.arange(len(x))
    answer = prediction_pb2.PredictResponse(
        labels=encode_labels([labels[index] for index in best]),
        vote_shares=shares[rows, best],
        distances=distances[rows, best],
        novelties=distances[rows, best] / 2 if request.novelty else [],
        model_version=learner.model_version,
        episodes_learned=learner.episodes_learned,
        examples_beyond_version=learner.examples_beyond_version(),
        learner="" if request.learner else learner.name,
    )
    if request.top_k or request.nearest_memories:
        known = learner.known()
        for row in rows:
            details = answer.details.add()
            for index in order[row, : request.top_k]:
                label = encode_label(labels[index])
                details.top_classes.add(label=label, vote_share=shares[row, index], distance=distances[row, index])
            for index in order[row, : request.nearest_memories]:
                episode = known[labels[index]].episode
                details.nearest_memories.add(
                    label=encode_label(labels[index]), episode=episode, distance=distances[row, index]
                )
    return answer
