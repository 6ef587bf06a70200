"""Classes that are taught with few examples beside classes that have many."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from sharp_engine import Learner, preset

FEW = (3, 8)


def learned(each: int, **settings: float) -> tuple[Learner, np.ndarray, np.ndarray]:
    """A learner of eight digits with all their examples and of two with `each`, and examples it has not seen."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order].astype(np.float32), y[order]
    seen, unseen = slice(0, 1200), slice(1200, None)
    config = preset("default").with_options(
        {"training.phases": 1, "training.min_steps": 1, **{f"metric.{name}": value for name, value in settings.items()}}
    )
    learner = Learner(config)
    many = ~np.isin(y[seen], FEW)
    learner.learn_episode(x[seen][many], y[seen][many])
    for digit in FEW:
        learner.teach(x[seen][y[seen] == digit][:each], [digit] * each)
    return learner, x[unseen], y[unseen]


def waiting(learner: Learner) -> int:
    """How many examples wait to be summed up."""
    assert learner.knowledge is not None
    return len(learner.knowledge.semantic.taught_ids)


def test_the_bonus_finds_more_of_the_classes_of_few_and_costs_the_others_little() -> None:
    random = np.random.default_rng(0)
    means = random.normal(size=(30, 20))
    y = random.integers(30, size=9000)
    x = (means[y] + random.normal(size=(9000, 20))).astype(np.float32)  # classes that overlap
    many, unseen = np.flatnonzero(y[:6000] < 26), slice(6000, None)
    found = {}
    for share in (0.0, 0.04):
        options = {"training.phases": 1, "training.min_steps": 1, "metric.few_losses": share}
        learner = Learner(preset("default").with_options(options))
        learner.learn_episode(x[many], y[many])
        for label in range(26, 30):
            learner.teach(x[:6000][y[:6000] == label][:2], [label] * 2)
        right, few = np.array(learner.predict(x[unseen]).labels) == y[unseen], y[unseen] >= 26
        found[share] = right[few].mean(), right[~few].mean()
    assert found[0.04][0] > found[0.0][0] + 0.05
    assert found[0.0][1] - 0.05 < found[0.04][1] < found[0.0][1]


def test_the_bonus_is_the_same_for_classes_of_equal_size_and_falls_with_examples() -> None:
    learner, _, _ = learned(3)
    assert learner.knowledge is not None
    made = learner.metric_learner.fit(learner.knowledge, None)
    counts, bonus = made.metric.counts.numpy(), made.bonuses.numpy()
    assert bonus[counts == 3].min() == bonus[counts == 3].max() > 10 * bonus[counts > 100].max()


def test_where_all_classes_have_few_examples_or_all_have_many_none_gains_anything() -> None:
    x, y = load_digits(return_X_y=True)
    for each in (8, 100):
        learner = Learner(preset("default").with_options({"training.phases": 1, "training.min_steps": 1}))
        index = np.concatenate([np.flatnonzero(y == digit)[:each] for digit in range(10)])
        learner.learn_episode(x[index].astype(np.float32), y[index])
        assert learner.knowledge is not None
        bonuses = learner.metric_learner.fit(learner.knowledge, None).bonuses
        assert not bool(bonuses.any())


def test_a_copy_that_was_loaded_gives_the_same_bonus(tmp_path: Path) -> None:
    learner, x, _ = learned(1)
    learner.save(tmp_path / "copy")
    copy = Learner.load(tmp_path / "copy")
    assert copy.predict(x, top=10).top_share.tobytes() == learner.predict(x, top=10).top_share.tobytes()


def test_a_bonus_makes_nothing_less_novel() -> None:
    learner, x, _ = learned(3)
    plain, _, _ = learned(3, few_losses=0.0)
    found, expected = learner.predict(x).novelty, plain.predict(x).novelty
    assert found is not None and expected is not None and np.allclose(found, expected, atol=1e-6)


def test_examples_of_a_new_class_are_summed_up_once_there_are_enough_of_them() -> None:
    learner, x, y = learned(3)
    taught = x[y == FEW[0]]
    assert waiting(learner) == 6
    for example in taught[:12]:
        learner.teach(example[None], [FEW[0]])
    assert waiting(learner) == 18
    learner.teach(taught[12:13], [FEW[0]])
    assert waiting(learner) == 0
    learner.teach(taught[13:25], [FEW[0]] * 12)
    assert waiting(learner) == 12
