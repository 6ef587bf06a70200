"""Answers: masked k-NN against a plain loop, and what novelty means."""

from __future__ import annotations

import statistics
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sharp_engine import ArchitectureConfig, LayerConfig, Learner, PredictionConfig, preset
from sharp_engine.labels import Label, Labels
from sharp_engine.memory.long_term import ClassMemory, LongTermMemory, remember
from sharp_engine.network.architecture import Normaliser, resolve_architecture
from sharp_engine.network.preprocessing import Preprocessor
from sharp_engine.network.state import build
from sharp_engine.prediction import novelty
from sharp_engine.prediction.matcher import Matcher
from sharp_engine.prediction.vote import VotePredictor
from tests.engine.digits import digits
from tests.engine.fixtures import DEVICES, IMAGE, change, convnet, examples, mlp, trained

# ---- plain loops ------------------------------------------------------------------------------------------------


def unit(vector: Tensor) -> Tensor:
    length = float(vector.norm())
    return vector / length if length > 0 else vector


def all_distances(learner: Learner, x: Tensor) -> list[list[tuple[float, int]]]:
    """Per example: (squared distance, class id) of every memory, from the whole network, one after the other."""
    rows = []
    for example in x:
        z = learner.network.run(learner.preprocessor(example[None]))[0].double()
        row = []
        for memory in learner.ltm.classes:
            for vector in memory.vectors.double():
                row.append((float(((vector - unit(z[memory.mask])) ** 2).sum()), memory.class_id))
        rows.append(row)
    return rows


def majority(row: list[tuple[float, int]], k: int) -> tuple[int, float, float]:
    """Winner, share and distance of the k nearest memories' vote."""
    nearest = sorted(row)[:k]
    ids = [class_id for _, class_id in nearest]
    winner = max(ids, key=lambda class_id: (ids.count(class_id), -ids.index(class_id)))
    return winner, ids.count(winner) / len(ids), nearest[ids.index(winner)][0]


@pytest.fixture(scope="module")
def plain() -> Learner:
    """Six classes of three episodes, voted by majority; tests may not change it."""
    return trained(mlp(ltm_per_class=5, neighbours=7))


QUESTIONS = torch.cat((examples(range(7), each=3, noise=0.8, seed=50)[0], torch.zeros(1, 6)))


@pytest.mark.parametrize("k", [1, 2, 5, 7, 1000])
@pytest.mark.parametrize("device", DEVICES)
def test_majority_vote_is_that_of_a_plain_loop(k: int, device: str) -> None:
    learner = trained(mlp(ltm_per_class=5, neighbours=k, device=device))
    answer = learner.predict(QUESTIONS, top=2)
    for i, row in enumerate(all_distances(learner, QUESTIONS)):
        winner, share, distance = majority(row, k)
        assert learner.labels.find(answer.labels[i]) == winner
        assert answer.share[i] == pytest.approx(share, abs=1e-6)
        assert answer.distance[i] == pytest.approx(distance, abs=1e-4)


def test_images_are_answered_as_by_a_plain_loop() -> None:
    learner = trained(convnet(replayed_episodes=2), shape=IMAGE)
    x, _ = examples(range(6), IMAGE, each=2, noise=0.6, seed=51)
    answer = learner.predict(x)
    for label, row in zip(answer.labels, all_distances(learner, x), strict=True):
        assert learner.labels.find(label) == majority(row, 5)[0]


def test_the_top_classes_are_ordered_by_votes_and_then_by_distance_which_never_speaks_against_them(
    plain: Learner,
) -> None:
    answer = plain.predict(QUESTIONS, top=4)
    assert answer.top_share.shape == answer.top_distance.shape == (len(QUESTIONS), 4)
    for i, row in enumerate(all_distances(plain, QUESTIONS)):
        nearest_ids = [class_id for _, class_id in sorted(row)[:7]]
        closest = {class_id: min(d for d, c in row if c == class_id) for _, class_id in row}
        wanted = sorted(closest, key=lambda c: (-nearest_ids.count(c), closest[c]))[:4]
        assert [plain.labels.find(label) for label in answer.top_labels[i]] == wanted
        assert answer.top_share[i].tolist() == pytest.approx([nearest_ids.count(c) / 7 for c in wanted], abs=1e-6)
        # A class that did worse is never nearer than one that did better.
        never_nearer = np.maximum.accumulate([closest[c] for c in wanted])
        assert answer.top_distance[i].tolist() == pytest.approx(never_nearer.tolist(), abs=1e-4)
        assert (answer.labels[i], answer.share[i]) == (answer.top_labels[i][0], answer.top_share[i, 0])


def test_the_winner_does_not_depend_on_how_much_was_asked_for(plain: Learner) -> None:
    wanted = plain.predict(QUESTIONS, top=1, novelty=False)
    for options in ({"top": 0}, {"top": 3}, {"top": 100}, {"memories": 9}, {"novelty": True}):
        answer = plain.predict(QUESTIONS, **options)
        assert answer.labels == wanted.labels
        assert answer.share.tolist() == wanted.share.tolist()
        assert answer.distance.tolist() == pytest.approx(wanted.distance.tolist(), abs=1e-6)


def test_the_nearest_memories_are_listed_nearest_first(plain: Learner) -> None:
    answer = plain.predict(QUESTIONS, memories=6)
    assert answer.memory_distance.shape == answer.memory_episode.shape == (len(QUESTIONS), 6)
    episode = {memory.class_id: memory.episode for memory in plain.ltm.classes}
    for i, row in enumerate(all_distances(plain, QUESTIONS)):
        wanted = sorted(row)[:6]
        assert answer.memory_distance[i].tolist() == pytest.approx([d for d, _ in wanted], abs=1e-4)
        for label, number, distance in zip(
            answer.memory_labels[i], answer.memory_episode[i], answer.memory_distance[i], strict=True
        ):
            class_id = plain.labels.find(label)
            assert number == episode[class_id]
            assert any(c == class_id and abs(d - distance) < 1e-4 for d, c in row)


def test_no_more_is_listed_than_there_is(plain: Learner) -> None:
    answer = plain.predict(QUESTIONS, top=100, memories=1000)
    assert answer.top_share.shape == (len(QUESTIONS), 6)
    assert answer.memory_distance.shape == (len(QUESTIONS), plain.ltm.entries)
    assert all(sorted(row) == [0, 1, 2, 3, 4, 5] for row in answer.top_labels)
    assert np.isfinite(answer.memory_distance).all()
    nothing = plain.predict(QUESTIONS, top=0)
    assert nothing.top_labels == [[]] * len(QUESTIONS) and nothing.memory_labels == [[]] * len(QUESTIONS)


def test_an_item_of_the_answers_is_the_answer_for_one_example(plain: Learner) -> None:
    answer = plain.predict(QUESTIONS, top=2, memories=3)
    assert len(answer) == len(list(answer)) == len(QUESTIONS)
    one = answer[4]
    assert (one.label, one.share, one.distance) == (answer.labels[4], answer.share[4], answer.distance[4])
    assert [vote.label for vote in one.top] == answer.top_labels[4]
    assert [(m.label, m.episode, m.distance) for m in one.nearest] == list(
        zip(answer.memory_labels[4], answer.memory_episode[4].tolist(), answer.memory_distance[4].tolist(), strict=True)
    )
    assert answer.novelty is not None and one.novelty == answer.novelty[4]
    assert plain.predict(QUESTIONS, novelty=False)[0].novelty is None


def test_a_batch_of_one_is_answered_like_a_row_of_a_batch(plain: Learner) -> None:
    together = plain.predict(QUESTIONS, top=3, memories=3)
    for i in range(len(QUESTIONS)):
        alone = plain.predict(QUESTIONS[i : i + 1], top=3, memories=3)
        assert alone.labels[0] == together.labels[i] and alone.top_labels[0] == together.top_labels[i]
        for name in ("share", "distance", "top_share", "top_distance", "memory_distance", "novelty"):
            tolerance = 1e-3 if name == "novelty" else 1e-5  # references may lie closer together than rounding
            one, row = getattr(alone, name)[0], getattr(together, name)[i]
            np.testing.assert_allclose(one, row, atol=tolerance, err_msg=name)


def test_more_examples_than_fit_one_pass_are_answered_alike(plain: Learner) -> None:
    many = QUESTIONS.repeat(60, 1)  # 1320 rows
    answer, once = plain.predict(many), plain.predict(QUESTIONS)
    assert answer.labels == once.labels * 60
    np.testing.assert_allclose(answer.distance, np.tile(once.distance, 60), atol=1e-6)


# ---- memories by hand -------------------------------------------------------------------------------------------


def by_hand(entries: list[tuple[Label, list[list[float]], list[bool]]], neighbours: int) -> Any:
    """A predictor whose representation is its (non-negative) input, and whose memories are these."""
    units = len(entries[0][2])
    config = ArchitectureConfig("mlp", layers=(LayerConfig("linear", units),), cut=0, density=1.0)
    device = torch.device("cpu")
    network = build(resolve_architecture(config, (units,)), 1.0, "possible", 0, (units,), torch.Generator(), device)
    network.layers[0].weight = torch.eye(units)
    network.layers[0].ranks += 2
    labels = Labels()
    memories = []
    for label, vectors, mask in entries:
        class_id = int(labels.ids([label])[0])
        memories.append(remember(class_id, 1, torch.tensor(vectors), torch.tensor(mask)))
    ltm = novelty.calibrate(LongTermMemory(tuple(memories)))
    preprocessor = Preprocessor(Normaliser(config, (units,), device), device)
    return VotePredictor(preprocessor, network, ltm, labels, PredictionConfig(neighbours=neighbours))


ALL3 = [True, True, True]


def test_a_tie_goes_to_the_class_with_the_nearest_memory() -> None:
    entries: list[tuple[Label, list[list[float]], list[bool]]] = [
        ("first", [[1.0, 0.3, 0.0], [1.0, 0.4, 0.0]], ALL3),
        ("nearest", [[1.0, 0.1, 0.0], [0.0, 0.0, 1.0]], ALL3),
        ("last", [[1.0, 0.2, 0.0], [1.0, 0.9, 0.0]], ALL3),
    ]
    x = torch.tensor([[1.0, 0.0, 0.0]])
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        some = [entries[i] for i in order]
        for top in (1, 3):
            assert by_hand(some, neighbours=3).predict(x, top, 0, True).labels == ["nearest"]  # one vote each
            assert by_hand(some, neighbours=4).predict(x, top, 0, True).labels == ["first"]  # two of four


def test_a_zero_vector_stays_zero() -> None:
    entries: list[tuple[Label, list[list[float]], list[bool]]] = [
        ("something", [[1.0, 0.0, 0.0]], ALL3),
        ("nothing", [[0.0, 0.0, 0.0]], ALL3),
    ]
    predictor = by_hand(entries, neighbours=1)
    answer = predictor.predict(torch.tensor([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 5.0, 0.0]]), 2, 2, True)
    assert answer.labels == ["nothing", "something", "nothing"]
    # ‖0 − 0‖² = 0, ‖φ(x) − 0‖² = 1, and 2 between orthogonal ones.
    assert answer.memory_distance.tolist() == [[0.0, 1.0], [0.0, 1.0], [1.0, 2.0]]


def test_no_distance_is_below_zero() -> None:
    random = torch.Generator().manual_seed(0)
    vectors = torch.rand(64, 7, generator=random)
    entries: list[tuple[Label, list[list[float]], list[bool]]] = [("a", vectors.tolist(), [True] * 7)]
    answer = by_hand(entries, neighbours=1).predict(vectors, 1, 3, True)  # every example is a memory
    assert float(answer.distance.min()) >= 0.0 and float(answer.memory_distance.min()) >= 0.0
    assert float(answer.top_distance.min()) >= 0.0 and float(answer.distance.max()) <= 1e-5


def test_classes_are_compared_each_under_its_own_mask() -> None:
    entries: list[tuple[Label, list[list[float]], list[bool]]] = [
        ("left", [[1.0, 0.0, 0.0]], [True, True, False]),
        ("right", [[0.0, 0.0, 1.0]], ALL3),
    ]
    predictor = by_hand(entries, neighbours=1)
    # Under its mask the first class does not see the third unit: the angle is 0, though most of the length is there.
    answer = predictor.predict(torch.tensor([[1.0, 0.0, 3.0]]), 1, 2, True)
    assert answer.labels == ["left"] and answer.memory_distance[0, 0] == 0.0
    assert answer.memory_distance[0, 1] == pytest.approx(2 - 2 * 3 / 10**0.5, abs=1e-6)


@settings(max_examples=40)
@given(st.data())
def test_distances_are_those_of_a_plain_loop(data: st.DataObject) -> None:
    units = data.draw(st.integers(1, 6))
    random = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6)))
    memories, plain_memories = [], []
    for class_id in range(data.draw(st.integers(1, 5))):
        mask = torch.rand(units, generator=random) < 0.7
        z = torch.relu(torch.randn(data.draw(st.integers(1, 4)), units, generator=random))
        memories.append(remember(class_id, 1, z, mask))
        plain_memories.append((mask, z))
    questions = torch.relu(torch.randn(5, units, generator=random)) * 10.0 ** data.draw(st.integers(-3, 3))
    matcher = Matcher(tuple(memories), torch.arange(units))
    fast = 2.0 - 2.0 * matcher.similarities(questions)  # (questions, classes, depth)
    for i, question in enumerate(questions):
        for j, (mask, z) in enumerate(plain_memories):
            for depth in range(matcher.depth):
                if depth >= len(z):
                    assert fast[i, j, depth] == torch.inf
                    continue
                wanted = float(((unit(z[depth] * mask) - unit(question * mask)) ** 2).sum())
                assert float(fast[i, j, depth]) == pytest.approx(wanted, abs=2e-6)


def test_the_few_nearest_memories_of_many_classes_are_those_of_a_sort() -> None:
    """Enough classes for the lists of all of them to be filled at once; some hold few memories, or zeros."""
    random = torch.Generator().manual_seed(1)
    memories = []
    for class_id in range(400):
        z = torch.relu(torch.randn(class_id % 9 + 1, 8, generator=random))
        z[0] *= float(class_id % 3 > 0)
        memories.append(remember(class_id, 1, z, torch.rand(8, generator=random) < 0.7))
    matcher = Matcher(tuple(memories), torch.arange(8))
    questions = torch.relu(torch.randn(11, 8, generator=random))
    questions[4] = 0.0
    wanted = matcher.similarities(questions).sort(dim=2, descending=True).values[:, :, :5]  # (questions, classes, 5)
    few = matcher.best_of_each(matcher.compare(questions), 5)  # (5, questions, classes)
    torch.testing.assert_close(few.permute(1, 2, 0), wanted, atol=1e-6, rtol=0.0)
    exists = wanted.isfinite()
    mean = wanted.masked_fill(~exists, 0.0).sum(2) / exists.sum(2)
    torch.testing.assert_close(matcher.class_similarity(few), mean, atol=1e-6, rtol=0.0)


def test_closeness_is_how_near_a_classs_memories_usually_are_to_the_five_nearest_others(plain: Learner) -> None:
    for memory in plain.ltm.classes:
        vectors = list(memory.vectors.double())
        means = []
        for i, one in enumerate(vectors):
            nearest = sorted((float(one @ other) for j, other in enumerate(vectors) if j != i), reverse=True)[:5]
            means.append(sum(nearest) / len(nearest))
        assert memory.closeness == pytest.approx(statistics.median_low(means), abs=1e-6)


def test_a_lone_memory_is_taken_to_be_as_close_as_those_of_other_classes() -> None:
    mask = torch.ones(3, dtype=torch.bool)
    lone = remember(0, 1, torch.rand(1, 3), mask)
    pair = remember(1, 1, torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]), mask)
    assert [c.closeness for c in novelty.calibrate(LongTermMemory((lone,))).classes] == [0.9]
    both = novelty.calibrate(LongTermMemory((lone, pair))).classes
    assert both[0].closeness == both[1].closeness == pytest.approx(0.5**0.5)


def test_shares_are_shares(plain: Learner) -> None:
    answer = plain.predict(QUESTIONS, top=6)
    np.testing.assert_allclose(answer.top_share.sum(1), 1.0, atol=1e-5)
    assert (answer.top_share >= 0).all() and (answer.share <= 1.0 + 1e-6).all()


@pytest.mark.parametrize("each", [1, 2])
def test_classes_with_very_few_memories_are_answered_for(each: int) -> None:
    learner = trained(mlp(ltm_per_class=each, stm_capacity=4), each=6)
    answer = learner.predict(QUESTIONS, top=6)
    assert answer.novelty is not None
    for values in (answer.share, answer.distance, answer.novelty):
        assert np.isfinite(values).all()


# ---- novelty ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["sharp", "default"])
def reader(request: pytest.FixtureRequest) -> Learner:
    """Has learned the digits 0 to 7 with a fifth of the examples held out; 8 and 9 are new to it."""
    config = change(preset(request.param), holdout=0.2, device="cpu")
    learner = Learner(config)
    for x, y in digits()[0][:4]:
        learner.learn_episode(x, y)
    return learner


def scores(learner: Learner, known: bool) -> np.ndarray[Any, np.dtype[np.float32]]:
    x, y = digits()[1]
    chosen = [i for i, label in enumerate(y) if (label < 8) == known]
    found = learner.predict(x[chosen]).novelty
    assert found is not None
    return found


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.9])
def test_a_threshold_flags_its_complement_of_new_examples_of_known_classes(reader: Learner, threshold: float) -> None:
    # 365 test examples against 215 references: three standard deviations of the difference are at most 0.13.
    flagged = float((scores(reader, known=True) > threshold).mean())
    if reader.config.metric.enabled and threshold < 0.8:
        # Leaving an example out of few with many features makes it look more novel than a new one: only the far end
        # is asked to be right.
        assert flagged <= 1.0 - threshold + 0.13
    else:
        assert flagged == pytest.approx(1.0 - threshold, abs=0.13)


def test_unknown_classes_are_more_novel_than_known_ones(reader: Learner) -> None:
    known, unknown = scores(reader, known=True), scores(reader, known=False)
    wins = (unknown[:, None] > known[None, :]).mean() + 0.5 * (unknown[:, None] == known[None, :]).mean()
    assert wins >= 0.85  # the area under the ROC curve


def test_noise_is_more_novel_than_what_was_learned(reader: Learner) -> None:
    noise = torch.rand(100, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    found = reader.predict(noise).novelty
    assert found is not None and float(np.median(found)) > 0.9


@settings(max_examples=30)
@given(
    st.lists(st.floats(0.0, 10.0, width=32), min_size=0, max_size=20),
    st.lists(st.floats(0.0, 1000.0, width=32), min_size=2, max_size=20),
)
@hypothesis.example([0.0], [0.0, 1e-45])
def test_novelty_rises_with_the_ratio_and_stays_within_the_unit_interval(
    references: list[float], ratios: list[float]
) -> None:
    memory = ClassMemory(0, 1, torch.ones(2, dtype=torch.bool), torch.ones(1, 2), torch.tensor(references))
    scale = novelty.NoveltyScale((memory,), torch.device("cpu"))
    scores = scale.calibrate(torch.tensor(sorted(ratios))).tolist()
    assert all(a <= b + 1e-6 for a, b in zip(scores, scores[1:], strict=False))
    assert 0.0 <= scores[0] and scores[-1] <= 1.0


def test_novelty_is_the_share_of_references_below_and_keeps_rising_beyond_them() -> None:
    references = torch.arange(1.0, 100.0)
    memory = ClassMemory(0, 1, torch.ones(2, dtype=torch.bool), torch.ones(1, 2), references)
    scale = novelty.NoveltyScale((memory,), torch.device("cpu"))
    inside = scale.calibrate(torch.tensor([0.5, 10.5, 50.5, 95.5])).tolist()
    assert inside == pytest.approx([0.005, 0.105, 0.505, 0.955], abs=0.01)
    beyond = scale.calibrate(torch.tensor([99.0, 110.0, 150.0, 200.0])).tolist()
    assert beyond == sorted(beyond) and len(set(beyond)) == 4 and beyond[-1] < 1.0


def test_an_identical_class_divides_by_nothing() -> None:
    learner = Learner(mlp())
    x = torch.ones(20, 6) * torch.tensor([0.2, 0.9] * 10)[:, None]
    learner.learn_episode(x, [0, 1] * 10)
    answer = learner.predict(x)
    assert answer.novelty is not None and np.isfinite(answer.novelty).all()
