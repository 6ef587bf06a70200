"""Classes that are taught with few examples beside classes that have many."""

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


def accuracies(learner: Learner, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """On the classes of few, and on the others."""
    right, few = np.array(learner.predict(x).labels) == y, np.isin(y, FEW)
    return float(right[few].mean()), float(right[~few].mean())


def waiting(learner: Learner) -> int:
    """How many examples wait to be summed up."""
    assert learner.knowledge is not None
    return len(learner.knowledge.semantic.taught_ids)


def test_the_bonus_finds_more_of_the_classes_of_few_and_costs_the_others_little() -> None:
    plain, plain_others = accuracies(*learned(1, few_bonus=0.0))
    found, others = accuracies(*learned(1))
    assert found > plain + 0.02
    assert others > plain_others - 0.03


def test_the_bonus_is_the_same_for_classes_of_equal_size_and_falls_with_examples() -> None:
    learner, _, _ = learned(3)
    assert learner.knowledge is not None
    metric = learner.metric_learner.fit(learner.knowledge, None).metric
    counts, bonus = metric.counts.numpy(), metric.bonus.numpy()
    assert bonus[counts == 3].min() == bonus[counts == 3].max() > 10 * bonus[counts > 100].max()


def test_a_bonus_makes_nothing_less_novel() -> None:
    learner, x, _ = learned(3)
    plain, _, _ = learned(3, few_bonus=0.0)
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
