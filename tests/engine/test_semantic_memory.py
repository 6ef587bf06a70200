"""Semantic memory: the sums that a plain calculation over all examples gives, however they came."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sharp_engine.memory.semantic import SemanticMemory, empty_semantic_memory
from tests.engine.fixtures import DEVICES

D = 5


def sample(count: int, classes: int = 4, seed: int = 0, offset: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (count,), generator=generator)
    centres = offset * torch.randn(classes, D, generator=generator)
    return centres[y] + torch.randn(count, D, generator=generator), y


def empty(device: str = "cpu", dimensions: int = D) -> SemanticMemory:
    return empty_semantic_memory(dimensions, torch.device(device))


def check_sums(memory: SemanticMemory, phi: Tensor, y: Tensor, rtol: float = 1e-4) -> None:
    """Against the definition, in double precision and one class after the other."""
    phi, scatter = phi.double(), torch.zeros(phi.shape[1], phi.shape[1], dtype=torch.float64)
    assert sorted(memory.class_ids) == y.unique().tolist()
    for class_id in y.unique().tolist():
        row = memory.class_ids.index(class_id)
        own = phi[y == class_id]
        assert int(memory.counts[row]) == len(own)
        torch.testing.assert_close(memory.means[row].cpu().double(), own.mean(0), rtol=1e-5, atol=1e-5)
        for example in own:
            scatter += torch.outer(example - own.mean(0), example - own.mean(0))
    assert memory.freedom == len(y) - len(y.unique())
    largest = float(scatter.abs().max())
    torch.testing.assert_close(memory.scatter.cpu().double(), scatter, rtol=rtol, atol=rtol * largest)
    assert torch.equal(memory.scatter, memory.scatter.T)


@pytest.mark.parametrize("device", DEVICES)
def test_sums_are_those_of_the_definition(device: str) -> None:
    phi, y = sample(200)
    check_sums(empty(device).learn([(phi.to(device), y)]), phi, y)


def test_batches_episodes_order_and_classes_that_come_back_change_nothing() -> None:
    phi, y = sample(300)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    by_class = y.argsort(stable=True)
    for rows, sizes in ((torch.arange(300), 300), (order, 7), (by_class, 50), (by_class.flip(0), 1)):
        memory = empty()
        for part in rows.split(sizes):
            memory = memory.learn([(phi[part], y[part])])
        check_sums(memory, phi, y)
        memory = empty().learn([(phi[part], y[part]) for part in rows.split(sizes)])
        check_sums(memory, phi, y)


def test_examples_far_from_zero_lose_no_precision() -> None:
    phi, y = sample(400)
    phi = phi + 1000.0
    memory = empty()
    for part in torch.arange(400).split(30):
        memory = memory.learn([(phi[part], y[part])])
    check_sums(memory, phi, y, rtol=1e-3)


def test_more_dimensions_than_one_block_are_summed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    from sharp_engine.memory import semantic

    monkeypatch.setattr(semantic, "_BLOCK", 2)
    phi, y = sample(100)
    check_sums(empty().learn([(phi, y)]), phi, y)


def test_a_single_example_has_a_mean_and_no_scatter() -> None:
    phi, y = sample(1)
    memory = empty().learn([(phi, y)])
    check_sums(memory, phi, y)
    assert not bool(memory.scatter.any()) and memory.freedom == 0


def test_taught_examples_wait_and_are_folded_to_the_same_sums() -> None:
    phi, y = sample(60)
    memory = empty().learn([(phi[:40], y[:40])])
    taught = memory
    for row in range(40, 60):
        taught = taught.teach(phi[row : row + 1], (int(y[row]),))
    assert len(taught.taught_ids) == 20 and torch.equal(taught.scatter, memory.scatter)
    assert taught.examples == {i: int((y == i).sum()) for i in memory.class_ids}
    assert taught.nbytes == memory.nbytes + 20 * D * 4
    check_sums(taught.folded(), phi, y)
    assert taught.folded().taught_ids == () and memory.folded() is memory


def test_means_that_moved_one_by_one_are_the_means_of_all_in_whatever_parts_they_came() -> None:
    phi, y = sample(60)
    ids = tuple(y.tolist())
    memory = empty().learn([(phi[:20], y[:20])])
    for sizes in (1, 7, 40):
        taught = memory
        for rows in torch.arange(20, 60).split(sizes):
            taught = taught.teach(phi[rows], [ids[row] for row in rows])
        for class_id, count, mean in zip(
            taught.current.class_ids, taught.current.counts.tolist(), taught.current.means, strict=True
        ):
            assert count == int((y == class_id).sum())
            torch.testing.assert_close(mean, phi[y == class_id].mean(0), rtol=1e-5, atol=1e-5)
        again = replace(taught, taught_parts=(taught.taught,))  # as it is loaded
        assert torch.equal(again.current.means, taught.current.means)
        assert torch.equal(again.current.counts, taught.current.counts)
        assert taught.has_sums_of(memory) and not taught.folded().has_sums_of(memory)


def test_every_change_gives_a_new_memory() -> None:
    phi, y = sample(50)
    memory = empty().learn([(phi, y)])
    means, scatter, counts = memory.means.clone(), memory.scatter.clone(), memory.counts.clone()
    memory.learn([(phi + 1, y)])
    memory.teach(phi, tuple(y.tolist())).folded()
    memory.forget(0)
    assert torch.equal(memory.means, means) and torch.equal(memory.scatter, scatter)
    assert torch.equal(memory.counts, counts)


def test_a_forgotten_class_leaves_its_scatter_and_nothing_else() -> None:
    phi, y = sample(80)
    memory = empty().learn([(phi[:60], y[:60])]).teach(phi[60:], tuple(y[60:].tolist()))
    after = memory.forget(2)
    assert 2 not in after.class_ids and 2 not in after.taught_ids and 2 not in after.examples
    assert torch.equal(after.scatter, memory.scatter) and after.freedom == memory.freedom
    for class_id in after.class_ids:
        was, now = memory.class_ids.index(class_id), after.class_ids.index(class_id)
        assert torch.equal(memory.means[was], after.means[now]) and memory.counts[was] == after.counts[now]
    assert torch.equal(after.taught, phi[60:][y[60:] != 2])
    again = after.folded().learn([(phi[y == 2], y[y == 2])])
    assert int(again.counts[again.class_ids.index(2)]) == int((y == 2).sum())


def test_forgetting_everything_leaves_a_memory_that_learns() -> None:
    phi, y = sample(40)
    memory = empty().learn([(phi, y)])
    for class_id in range(4):
        memory = memory.forget(class_id)
    assert memory.class_ids == () and memory.means.shape == (0, D)
    memory = memory.learn([(phi, y)])
    assert sum(memory.examples.values()) == 40
