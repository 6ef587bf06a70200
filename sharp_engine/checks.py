"""The invariants of SHARP as functions: property tests, benchmarks and users call the same ones.

Each `check_*` returns nothing if the invariant holds and raises `InvariantError` with what it found if not. Those that
compare two moments take the learner (or network) at both. `python -m sharp_engine.checks [SNAPSHOT]` runs all of them
on a saved learner, or on one it trains on made-up data, and prints each with its result.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from sharp_engine import snapshot
from sharp_engine.config import LearnerConfig
from sharp_engine.errors import EpisodeStateError, SharpError
from sharp_engine.labels import Label
from sharp_engine.learner import Learner
from sharp_engine.memory.long_term import ClassMemory
from sharp_engine.memory.semantic import SemanticMemory
from sharp_engine.network.compact import active_subnetwork, needed_subnetwork
from sharp_engine.network.state import Network
from sharp_engine.prediction.matcher import Matcher
from sharp_engine.presets import preset

_SMALL = {"metric.random_features": 100, "architecture.dictionary.atoms": 10, "architecture.dictionary.patches": 5000}
"""What made-up data need no more of."""


class InvariantError(AssertionError):
    """Something that must always hold does not: a fault of the engine, which no call of a learner ever raises."""


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvariantError(message)


def check_path_property(network: Network) -> None:
    """1: no connection leads from a unit to one of a higher rank."""
    for index, layer in enumerate(network.layers):
        wrong = layer.mask & (network.connection_source_ranks(index)[None, :] < layer.ranks[:, None])
        _require(not bool(wrong.any()), f"{layer.name}: {int(wrong.sum())} connections lead to a higher rank")


def check_density(network: Network) -> None:
    """2: existing connections and reported shortfall make the constant of the run; absent ones weigh nothing."""
    for layer in network.layers:
        existing = int(layer.mask.sum())
        _require(
            existing + layer.shortfall == layer.connections,
            f"{layer.name}: {existing} connections + {layer.shortfall} owed ≠ {layer.connections}",
        )
        _require(not bool(layer.weight[~layer.mask].any()), f"{layer.name}: an absent connection has a weight")


def check_frozen(before: Network, after: Network) -> None:
    """3: what was frozen before has bit-identical connections, weights and biases after, and is still frozen."""
    for was, now in zip(before.layers, after.layers, strict=True):
        frozen = was.frozen
        _require(bool(now.frozen[frozen].all()), f"{was.name}: a frozen unit was thawed")
        for part in ("weight", "bias", "mask"):
            same = torch.equal(getattr(was, part)[frozen], getattr(now, part)[frozen])
            _require(same, f"{was.name}: the {part} of a frozen unit changed")


def check_nothing_forgotten(before: Learner, after: Learner, x: Tensor) -> None:
    """4: classes older than m episodes keep their memories, their masked representations and their predictions.

    They have left STM. Classes that came back or were forgotten in between are not compared. x: (n, *input shape), any
    inputs.
    """
    oldest = before.network_episodes - before.config.memory.replayed_episodes
    left = {memory.class_id: memory for memory in before.ltm.classes if memory.episode <= oldest}
    pairs = [(left[now.class_id], now) for now in after.ltm.classes if now.class_id in left]
    pairs = [(was, now) for was, now in pairs if was.episode == now.episode]
    if not pairs:
        return
    z_before, z_after = (learner.network.run(learner.preprocessor(x)) for learner in (before, after))
    for was, now in pairs:
        name = before.labels.label(was.class_id)
        same = torch.equal(was.mask, now.mask) and torch.equal(was.vectors, now.vectors)
        _require(same, f"the memories of class {name!r} changed after it had left short-term memory")
        same = torch.equal(z_before[:, was.mask], z_after[:, was.mask])
        _require(
            same, f"the representation under the mask of class {name!r} changed after it had left short-term memory"
        )
    answers = [_nearest(tuple(p[i] for p in pairs), z) for i, z in ((0, z_before), (1, z_after))]
    _require(torch.equal(*answers), "predictions among the classes that had left short-term memory changed")


def _nearest(memories: tuple[ClassMemory, ...], z: Tensor) -> Tensor:
    matcher = Matcher(memories, torch.arange(z.shape[1], device=z.device))
    return matcher.similarities(z).flatten(1).argmax(1)


def check_budgets(learner: Learner) -> None:
    """5: STM stays within its bytes (between episodes), LTM within its entries per class; both know when and who."""
    stm, memory = learner.stm, learner.config.memory
    _require(stm.nbytes <= stm.budget, f"STM takes {stm.nbytes} bytes of {stm.budget}")
    for held in stm.classes:
        _require(
            held.episode > learner.network_episodes - memory.replayed_episodes,
            f"STM holds an activation of episode {held.episode}",
        )
    for known in learner.ltm.classes:
        entries = len(known.vectors)
        _require(1 <= entries <= memory.ltm_per_class, f"LTM has {entries} entries of a class")
    for ids in ([s.class_id for s in stm.classes], [c.class_id for c in learner.ltm.classes]):
        _require(len(set(ids)) == len(ids), "a class is held twice")


def check_masks(learner: Learner) -> None:
    """A class's mask takes in only units that will not change any more than its replay allows (step 8)."""
    ranks = learner.network.layers[-1].ranks
    for memory in learner.ltm.classes:
        # Rank ≥ 2 + i when written i episodes after its own, at most m; every later episode adds one to both.
        wanted = 2 + learner.network_episodes - memory.episode
        _require(
            bool((ranks[memory.mask] >= wanted).all()),
            f"the mask of class {memory.class_id} has units of rank < {wanted}",
        )


def check_resume(learner: Learner, go_on: Callable[[Learner], object]) -> None:
    """6: saved, loaded and continued is the same, bit for bit, as continued. `go_on` continues a learner."""
    # A deep copy never was in a file: it knows even what a snapshot would forget.
    loaded, continued = copy_of(learner), copy.deepcopy(learner)
    check_same(loaded, learner)
    go_on(loaded)
    go_on(continued)
    check_same(loaded, continued)


def check_same(one: Learner, other: Learner) -> None:
    """Two learners have the same state: every tensor bit for bit, and every setting, label and count."""
    tensors = [snapshot.tensors_of(learner, pending=True) for learner in (one, other)]
    _require(tensors[0].keys() == tensors[1].keys(), "they do not hold the same things")
    for name, value in tensors[0].items():
        _require(torch.equal(value, tensors[1][name]), f"{name} differs")
    words = [snapshot.describe(learner, pending=True) for learner in (one, other)]
    for description in words:
        if description["running"] is not None:
            description["running"]["seconds"] = 0.0
    _require(words[0] == words[1], "settings, labels or counts differ")


def check_left_out_units(learner: Learner, x: Tensor) -> None:
    """7: leaving out idle units in training, and units outside every mask in prediction, changes no result."""
    if not learner.preprocessor.ready:
        return  # before the first examples nothing is computed
    network = learner.network if learner.running is None else learner.running.before
    features = learner.preprocessor(x)
    full = network.run(features)  # (n, output units)
    subnetworks = [active_subnetwork(network)]
    if learner.ltm.classes:
        needed = torch.stack([memory.mask for memory in learner.ltm.classes]).any(0)
        subnetworks.append(needed_subnetwork(network, needed))
    for subnetwork in subnetworks:
        z = subnetwork.f(subnetwork.g(features))  # (n, kept)
        wanted = full[:, subnetwork.output_units]
        close = torch.allclose(z, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()) if wanted.numel() else 0.0)
        _require(close, "a unit that was left out changes a representation")


def check_order(one: Learner, other: Learner) -> None:
    """8: what was learned in another order or in other episodes is the same semantic memory, to rounding.

    Both must have the same stable features, so the first examples that they saw must be the same.
    """
    (counts, means, sums), (other_counts, other_means, other_sums) = (_known(learner) for learner in (one, other))
    _require(counts == other_counts, f"examples per class differ: {counts} and {other_counts}")
    _require(sums.freedom == other_sums.freedom, f"degrees of freedom differ: {sums.freedom}, {other_sums.freedom}")
    for label, mean in means.items():
        _require(torch.allclose(mean, other_means[label], rtol=1e-4, atol=1e-4), f"the mean of {label!r} differs")
    deviation = sums.scatter.diagonal().clamp(min=0.0).sqrt() + 1e-3 * (sums.freedom + 1) ** 0.5
    apart = (sums.scatter - other_sums.scatter).abs() / (deviation[:, None] * deviation)
    _require(not bool((apart > 1e-3).any()), f"the pooled scatter differs by {float(apart.max()):.2g} of its size")


def check_own_means(before: Learner, after: Learner, labels: Collection[Label]) -> None:
    """8: a class's mean changes only by its own examples. `labels`: the classes of what was learned in between."""
    (counts, means, _), (later_counts, later_means, _) = (_known(learner) for learner in (before, after))
    for label in means:
        if label in labels or label not in later_means:  # taught more of, or forgotten
            continue
        _require(counts[label] == later_counts[label], f"class {label!r} has another number of examples")
        same = torch.equal(means[label], later_means[label])
        _require(same, f"the mean of {label!r} was changed by examples of other classes")


def check_never_loses(before: Learner, after: Learner, x: Tensor, labels: Sequence[Label]) -> None:
    """9: classes that come back keep what was known of them: x and labels, learned in between, are added to it."""
    (counts, means, _), (later_counts, later_means, _) = (_known(learner) for learner in (before, after))
    with torch.no_grad():
        phi = after.feature_map(after.preprocessor(x))
    for label in means:
        _require(label in later_means, f"class {label!r} is not known any more")
        own = phi[[row for row, arrived in enumerate(labels) if arrived == label]].double()
        total = counts[label] + len(own)
        _require(later_counts[label] == total, f"class {label!r} has {later_counts[label]} examples, not {total}")
        wanted = ((means[label].double() * counts[label] + own.sum(0)) / total).float()
        close = torch.allclose(later_means[label], wanted, rtol=1e-4, atol=1e-4)
        _require(close, f"the mean of {label!r} is not that of its old and its new examples")
    assert before.knowledge is not None and after.knowledge is not None
    held = [
        {learner.labels.label(c.class_id): len(c.features) for c in known.episodic.classes}
        for learner, known in ((before, before.knowledge), (after, after.knowledge))
    ]
    for label, count in held[0].items():
        _require(held[1].get(label, 0) >= count, f"class {label!r} has fewer single memories than before")


def check_taught(learner: Learner, x: Tensor, labels: Sequence[Label]) -> None:
    """10: what was just taught is answered right; of the same example taught twice, as it was taught last."""
    last = dict(zip((row.numpy().tobytes() for row in x), labels, strict=True))
    answers = learner.predict(x, novelty=False).labels
    wrong = [row for row, example in enumerate(x) if answers[row] != last[example.numpy().tobytes()]]
    _require(not wrong, f"{len(wrong)} of {len(answers)} taught examples are answered wrong")


def _known(learner: Learner) -> tuple[dict[Label, int], dict[Label, Tensor], SemanticMemory]:
    """Counts and means by label, and the sums, with everything that was taught."""
    assert learner.knowledge is not None
    sums = learner.knowledge.semantic.folded()
    names = [learner.labels.label(class_id) for class_id in sums.class_ids]
    return dict(zip(names, sums.counts.tolist(), strict=True)), dict(zip(names, sums.means, strict=True)), sums


def copy_of(learner: Learner) -> Learner:
    """A learner in the same state that shares nothing with this one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copy.safetensors"
        learner.save(path)
        return Learner.load(path)


def made_up_episode(learner: Learner, classes: int = 2, examples: int = 60) -> tuple[Tensor, list[Label]]:
    """Examples of classes this learner does not know: noise around a pattern each."""
    assert learner.architecture is not None
    generator = torch.Generator().manual_seed(learner.episodes)
    patterns = torch.rand(classes, *learner.architecture.input_shape, generator=generator)
    y = torch.arange(classes).repeat(examples)
    noise = torch.rand(len(y), *learner.architecture.input_shape, generator=generator)
    known = {label for _, label in learner.labels.pairs()}
    names: list[Label] = list(sorted(set(range(len(known) + classes)) - known)[:classes])
    if learner.labels.kind == "text":
        names = [f"made-up {learner.episodes}.{i}" for i in range(classes)]
    return 0.7 * patterns[y] + 0.3 * noise, [names[i] for i in y.tolist()]


def run_all(learner: Learner) -> list[tuple[str, str | None]]:
    """Every invariant's first docstring line with what is wrong, or nothing. The learner itself is not changed."""
    if learner.running is not None or learner.pending:
        raise EpisodeStateError("checks need a learner between two episodes")
    later = copy_of(learner)
    for _ in range(learner.config.memory.replayed_episodes + 1):
        later.learn_episode(*made_up_episode(later))
    x, _ = made_up_episode(learner)
    checks: list[tuple[Callable[..., None], Callable[[], None]]] = [
        (check_path_property, lambda: check_path_property(later.network)),
        (check_density, lambda: check_density(later.network)),
        (check_frozen, lambda: check_frozen(learner.network, later.network)),
        (check_nothing_forgotten, lambda: check_nothing_forgotten(learner, later, x)),
        (check_budgets, lambda: check_budgets(later)),
        (check_masks, lambda: check_masks(later)),
        (check_resume, lambda: check_resume(learner, lambda copy: copy.learn_episode(*made_up_episode(copy)))),
        (check_left_out_units, lambda: check_left_out_units(learner, x)),
    ]
    if learner.knowledge is not None and learner.preprocessor.ready:
        checks += _checks_of_metric(learner)
    results: list[tuple[str, str | None]] = []
    for function, call in checks:
        name = (function.__doc__ or "").splitlines()[0]
        try:
            call()
            results.append((name, None))
        except InvariantError as error:
            results.append((name, str(error)))
    return results


def _checks_of_metric(learner: Learner) -> list[tuple[Callable[..., None], Callable[[], None]]]:
    """Checks of the learned metric, on copies whose network rests: it has no part in them."""
    x, y = made_up_episode(learner)
    one = _resting(learner)
    one.learn_episode(x, y)
    several = x[:8], y[1:9]  # some of them wrong on purpose

    def another_order() -> None:
        other, third = _resting(learner), len(y) // 3
        other.learn_episode(x[third:].flip(0), y[third:][::-1])
        other.learn_episode(x[:third], y[:third])
        check_order(one, other)

    def coming_back() -> None:
        for count in (1, len(y)):
            again = _resting(one)
            again.learn_episode(x[:count].flip(0), y[:count])
            check_never_loses(one, again, x[:count].flip(0), y[:count])

    def teaching() -> None:
        later = _resting(one)
        for _ in range(2):
            later.teach(*several)
            check_taught(later, *several)

    return [
        (check_order, another_order),
        (check_own_means, lambda: check_own_means(learner, one, set(y))),
        (check_never_loses, coming_back),
        (check_taught, teaching),
    ]


def _resting(learner: Learner) -> Learner:
    copied = copy_of(learner)
    assert copied.knowledge is not None
    copied.config = replace(copied.config, training=replace(copied.config.training, rest_after=1))
    copied.knowledge = replace(copied.knowledge, calibration=replace(copied.knowledge.calibration, fruitless=1))
    return copied


def _trained(config: LearnerConfig) -> Learner:
    learner = Learner(config)
    learner.build((1, 8, 8))
    for _ in range(3):
        learner.learn_episode(*made_up_episode(learner))
    return learner


def main(arguments: list[str]) -> int:
    """Check a snapshot, or a learner trained here on made-up data."""
    if len(arguments) > 1:
        print("usage: python -m sharp_engine.checks [SNAPSHOT]", file=sys.stderr)
        return 2
    try:
        learner = Learner.load(arguments[0]) if arguments else _trained(preset("default").with_options(_SMALL))
        results = run_all(learner)
    except SharpError as error:
        print(f"cannot check: {error}", file=sys.stderr)
        return 2
    print(f"{learner.inspect().architecture}; {learner.episodes} episodes, {len(learner.ltm.classes)} classes")
    for name, wrong in results:
        print(f"  {'holds ' if wrong is None else 'BROKEN'}  {name}" + (f"  → {wrong}" if wrong else ""))
    return int(any(wrong for _, wrong in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
