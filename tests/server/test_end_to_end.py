"""Digits over the wire, with real processes: what the service answers is what the engine answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_digits

from sharp.v1 import learner_admin_pb2, learner_pb2
from sharp_engine import Learner, preset
from tests.server.running import Server, answered

SMALL = {"metric.random_features": 200, "training.phases": 2, "training.min_steps": 10}


def digits() -> list[tuple[np.ndarray, list[int]]]:
    x, y = load_digits(return_X_y=True)
    x, y = (x[::5] / 16.0 * 255).astype(np.uint8).reshape(-1, 1, 8, 8), y[::5]
    return [(x[mask], y[mask].tolist()) for mask in (np.isin(y, (2 * i, 2 * i + 1)) for i in range(5))]


def test_digits_in_five_episodes_are_answered_exactly_as_by_the_engine_itself(lend: Callable[..., Server]) -> None:
    server = lend()
    config = learner_pb2.LearnerConfig(seed=7, overrides={key: str(value) for key, value in SMALL.items()})
    server.admin.CreateLearner(learner_admin_pb2.CreateLearnerRequest(name="digits", config=config))
    engine = Learner(preset("default").with_options({**SMALL, "seed": 7, "device": "cpu"}))
    with server.stream("digits") as stream:
        for x, y in digits():
            for part in range(0, len(y), 50):
                stream.send(x[part : part + 50], y[part : part + 50])
            stream.end()
            engine.learn_episode(x, y)
        stream.close()
        events = list(stream.events())
    learned = [event.learned for event in events if event.HasField("learned")]
    assert [event.model_version for event in learned] == [1, 2, 3, 4, 5]
    assert [event.closed.examples for event in events if event.HasField("closed")] == [len(y) for _, y in digits()]

    everything = np.concatenate([x for x, _ in digits()])[::3]
    answer = server.predict("digits", everything, top_k=3, nearest_memories=4, novelty=True, min_model_version=5)
    direct = engine.predict(everything, top=3, memories=4, novelty=True)
    assert answered(answer) == direct.labels
    np.testing.assert_array_equal(np.array(answer.vote_shares, np.float32), direct.share)
    np.testing.assert_array_equal(np.array(answer.distances, np.float32), direct.distance)
    np.testing.assert_array_equal(np.array(answer.novelties, np.float32), direct.novelty)
    for i, details in enumerate(answer.details):
        assert [score.label.integer for score in details.top_classes] == direct.top_labels[i]
        assert [memory.episode for memory in details.nearest_memories] == direct.memory_episode[i].tolist()
    assert (answer.model_version, answer.episodes_learned) == (5, 5)

    truth = np.concatenate([y for _, y in digits()])[::3]
    assert np.mean(np.array(answered(answer)) == truth) > 0.8
    assert server.stop() == 0
