"""The invariants of SHARP as functions: property tests, benchmarks and users call the same ones.

Each `check_*` returns nothing if the invariant holds and raises `InvariantError` with what it found if not. Those that
compare two moments take the learner (or network) at both. `python -m sharp_engine.checks [SNAPSHOT]` runs all of them
on a saved learner, or on one it trains on made-up data, and prints each with its result.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from sharp_engine import snapshot
from sharp_engine.config import LearnerConfig
from sharp_engine.errors import EpisodeStateError, SharpError
from sharp_engine.labels import Label
from sharp_engine.learner import Learner
from sharp_engine.memory.long_term import ClassMemory
from sharp_engine.network.compact import active_subnetwork, needed_subnetwork
from sharp_engine.network.state import Network
from sharp_engine.prediction.matcher import Matcher
from sharp_engine.presets import preset


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

    They have left STM, or are replayed only for the sake of younger ones. Classes that came back or were forgotten in
    between are not compared. x: (n, *input shape), any inputs.
    """
    oldest = before.episodes - before.config.memory.replayed_episodes
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
    for held in stm.classes if memory.stm_share == "even" else ():
        _require(
            held.episode > learner.episodes - memory.replayed_episodes,
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
        wanted = 2 + learner.episodes - memory.episode
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
    results: list[tuple[str, str | None]] = []
    for function, call in checks:
        name = (function.__doc__ or "").splitlines()[0]
        try:
            call()
            results.append((name, None))
        except InvariantError as error:
            results.append((name, str(error)))
    return results


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
        learner = Learner.load(arguments[0]) if arguments else _trained(preset("default"))
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
