"""Snapshots: complete or absent, the same learner back, and anything else refused as what it is."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from sharp_engine import (
    Cancelled,
    EpisodeStateError,
    InputError,
    Learner,
    SharpError,
    SnapshotError,
    SnapshotVersionError,
    snapshot,
)
from sharp_engine.checks import check_same
from sharp_engine.memory import short_term as stm
from tests.engine.fixtures import DEVICES, IMAGE, VECTOR, CancelAfter, change, convnet, examples, mlp, trained

# ---- there and back ---------------------------------------------------------------------------------------------


def unbuilt() -> Learner:
    return Learner(mlp())


def built() -> Learner:
    return Learner(change(mlp(), input_shape=VECTOR))


def between_episodes() -> Learner:
    return trained(mlp(replayed_episodes=2, holdout=0.2), each=24)


def of_images() -> Learner:
    return trained(convnet(), shape=IMAGE)


def of_words() -> Learner:
    return trained(mlp(), (("häuser", "b ä\n\"'"), ("🦊", "")))


def in_an_episode() -> Learner:
    learner = trained(mlp(holdout=0.2, density=0.9), ((0, 1), (2, 3)), each=24)
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples((4, 0), each=24, seed=4), cancel=CancelAfter(5))
    return learner


def observing() -> Learner:
    learner = trained(mlp(), ((0, 1),))
    learner.observe(*examples((2, 3), each=5))
    learner.observe(*examples((0, 4), each=3))
    return learner


def finding_boundaries() -> Learner:
    learner = Learner(mlp(boundaries="automatic", window=16, min_examples=32, max_examples=64, phases=1))
    x, y = examples((0, 1), each=100, seed=4)
    with pytest.raises(Cancelled):
        learner.observe(x, y, cancel=CancelAfter(1))
    assert learner.found and learner.running is not None
    return learner


def forgetful() -> Learner:
    learner = trained(mlp(replayed_episodes=2))
    learner.forget(0)
    learner.forget(5)
    return learner


STATES = [
    unbuilt,
    built,
    between_episodes,
    of_images,
    of_words,
    in_an_episode,
    observing,
    finding_boundaries,
    forgetful,
]


@pytest.mark.parametrize("state", STATES)
def test_every_state_comes_back_as_it_was(state: Callable[[], Learner], tmp_path: Path) -> None:
    learner = state()
    path = tmp_path / "learner.safetensors"
    learner.save(path)
    loaded = Learner.load(path)
    check_same(loaded, learner)
    assert loaded.config == learner.config
    assert loaded.inspect() == learner.inspect()


@pytest.mark.parametrize("state", STATES)
def test_a_loaded_learner_answers_and_learns_as_the_saved_one(state: Callable[[], Learner], tmp_path: Path) -> None:
    learner = state()
    learner.save(str(tmp_path / "learner"))
    loaded = Learner.load(str(tmp_path / "learner"))
    shape = learner.architecture.input_shape if learner.architecture is not None else VECTOR
    if learner.ltm.classes:
        x, _ = examples(range(4), shape, each=2, seed=5)
        one, other = learner.predict(x, top=2, memories=3), loaded.predict(x, top=2, memories=3)
        assert one.labels == other.labels
        for name in ("share", "distance", "novelty", "memory_distance"):
            assert (getattr(one, name) == getattr(other, name)).all(), name
    for each in (learner, loaded):
        if each.running is not None and each.config.stream.boundaries == "explicit":
            each.resume_episode()
        elif each.pending or each.found:
            each.learn_found()
            each.end_episode()
        else:
            words = each.labels.kind == "text"
            each.learn_episode(*examples(("x", "y") if words else (10, 11), shape, seed=6))
    check_same(loaded, learner)


@pytest.mark.parametrize("device", DEVICES)
def test_a_snapshot_may_be_loaded_onto_another_device(device: str, tmp_path: Path) -> None:
    learner = trained(mlp())
    learner.save(tmp_path / "learner")
    loaded = Learner.load(tmp_path / "learner", device=device)
    assert loaded.network.device.type == device and loaded.config.device == device
    x, _ = examples(range(6), each=2)
    assert loaded.predict(x).labels == learner.predict(x).labels


def test_a_snapshot_is_a_safetensors_file_with_a_readable_description(tmp_path: Path) -> None:
    trained(mlp()).save(tmp_path / "learner")
    with safe_open(tmp_path / "learner", framework="pt") as file:
        metadata = file.metadata()
        names = set(file.keys())
    assert metadata["format"] == "sharp" and metadata["version"] == "3"
    described = json.loads(metadata["learner"])
    assert described["episodes"] == 3 and described["input_shape"] == [6]
    assert {"network.0.weight", "network.2.ranks", "stm.0.codes", "ltm.5.vectors", "random"} <= names


def test_saving_gives_the_sha256_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "learner"
    assert of_images().save(path) == hashlib.sha256(path.read_bytes()).digest()


def test_a_file_that_was_compared_already_is_loaded_the_same_without_hashing_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, path = between_episodes(), tmp_path / "learner"
    learner.save(path)
    monkeypatch.setattr(snapshot, "digest", None)
    check_same(learner, Learner.load(path, verified=True))


def test_the_time_spent_on_an_episode_is_kept(tmp_path: Path) -> None:
    learner = in_an_episode()
    assert learner.running is not None
    learner.running.seconds = 100.0
    learner.save(tmp_path / "learner")
    assert Learner.load(tmp_path / "learner").resume_episode().seconds > 100.0


# ---- without pending examples -----------------------------------------------------------------------------------


def test_an_episode_saved_without_its_examples_goes_on_when_they_are_given_again(tmp_path: Path) -> None:
    learner = in_an_episode()
    learner.save(tmp_path / "learner", pending=False)
    with safe_open(tmp_path / "learner", framework="pt") as file:
        assert not {name for name in file.keys() if name in ("episode.x", "episode.y", "pending.x")}  # noqa: SIM118
    loaded = Learner.load(tmp_path / "learner")
    assert loaded.inspect().phases_done == 1
    loaded.resume_episode(*examples((4, 0), each=24, seed=4))
    learner.resume_episode()
    check_same(loaded, learner)


def test_an_episode_saved_without_its_examples_refuses_to_go_on_without_them_or_with_others(tmp_path: Path) -> None:
    in_an_episode().save(tmp_path / "learner", pending=False)
    loaded = Learner.load(tmp_path / "learner")
    before = copy.deepcopy(loaded)
    x, y = examples((4, 0), each=24, seed=4)
    with pytest.raises(EpisodeStateError, match="without its examples"):
        loaded.resume_episode()
    with pytest.raises(EpisodeStateError, match="without its examples"):
        loaded.resume_episode(x)
    with pytest.raises(EpisodeStateError, match="without its examples"):
        loaded.forget(0)
    moved = x.clone()
    moved[3, 2] += 1e-6
    swapped = [y[1], y[0], *y[2:]] if y[0] != y[1] else [y[0], y[2], y[1], *y[3:]]
    for wrong_x, wrong_y in (
        (moved, y),
        (x[:-1], y[:-1]),
        (x.flip(0), y[::-1]),
        (x, [4 if label == 0 else 0 for label in y]),
        (x, swapped if swapped != y else y[::-1]),
        (x, [99] * len(y)),
        (x[:, :5], y),
        (x, y[:-1]),
    ):
        with pytest.raises((InputError, LookupError)) as raised:
            loaded.resume_episode(wrong_x, wrong_y)
        assert isinstance(raised.value, SharpError)
        check_same(before, loaded)
    loaded.resume_episode(x, y)


def test_an_episode_saved_without_its_examples_may_be_abandoned(tmp_path: Path) -> None:
    in_an_episode().save(tmp_path / "learner", pending=False)
    loaded = Learner.load(tmp_path / "learner")
    loaded.abandon_episode()
    before = trained(mlp(holdout=0.2, density=0.9), ((0, 1), (2, 3)), each=24)
    before.labels.next_id = loaded.labels.next_id
    check_same(loaded, before)


def test_observed_examples_stay_behind_if_asked_to(tmp_path: Path) -> None:
    learner = observing()
    learner.save(tmp_path / "learner", pending=False)
    loaded = Learner.load(tmp_path / "learner")
    assert loaded.inspect().pending_examples == 0 and learner.inspect().pending_examples == 16
    x, _ = examples((0, 1), each=2)
    assert loaded.predict(x).labels == learner.predict(x).labels


# ---- written whole or not at all --------------------------------------------------------------------------------


def fail(*_: Any, **__: Any) -> None:
    raise OSError("no space left on the made-up device")


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "learner"
    old = trained(mlp(), ((0, 1),))
    old.save(path)
    learner = trained(mlp())
    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="made-up device"):
        learner.save(path)
    monkeypatch.undo()
    assert [file.name for file in tmp_path.iterdir()] == ["learner"]
    check_same(Learner.load(path), old)
    learner.save(path)
    check_same(Learner.load(path), learner)


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """A file that takes a hundred bytes."""

        def __init__(self, handle: int, mode: str) -> None:
            self._file = open(handle, mode)  # noqa: SIM115 (closed by __exit__)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, content: bytes) -> None:
            self._file.write(content[:100])
            fail()

    learner = trained(mlp())
    monkeypatch.setattr(os, "fdopen", Full)
    with pytest.raises(OSError, match="made-up device"):
        learner.save(tmp_path / "learner")
    assert list(tmp_path.iterdir()) == []


def test_missing_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "learner"
    trained(mlp()).save(path)
    assert path.is_file() and stat.S_ISREG(path.stat().st_mode)


# ---- damaged files ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a snapshot in the middle of an episode."""
    path = tmp_path_factory.mktemp("whole") / "learner"
    in_an_episode().save(path)
    return path.read_bytes()


def check_refused(content: bytes, folder: Path, error: type[SnapshotError] = SnapshotError) -> str:
    path = folder / "damaged.safetensors"
    path.write_bytes(content)
    with pytest.raises(error) as raised:
        Learner.load(path)
    return str(raised.value)


def header_size(content: bytes) -> int:
    return 8 + int(struct.unpack("<Q", content[:8])[0])


def test_a_file_cut_off_anywhere_is_refused(whole: bytes, tmp_path: Path) -> None:
    header = header_size(whole)
    offsets = {0, 1, 7, 8, 9, header - 1, header, header + 1, len(whole) - 1, len(whole) - 8}
    offsets |= set(range(0, len(whole), len(whole) // 60))
    for offset in sorted(offsets):
        assert "damaged.safetensors" in check_refused(whole[:offset], tmp_path), offset


def test_a_file_with_something_behind_it_is_refused(whole: bytes, tmp_path: Path) -> None:
    check_refused(whole + b"\0", tmp_path)
    check_refused(whole + whole, tmp_path)


def test_a_flipped_bit_anywhere_is_refused(whole: bytes, tmp_path: Path) -> None:
    header = header_size(whole)
    offsets = [*range(0, 8), *range(8, header, max(1, header // 200)), *range(header, len(whole), len(whole) // 100)]
    for i, offset in enumerate([*offsets, len(whole) - 1]):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << (i % 8)
        check_refused(bytes(damaged), tmp_path)


def test_overwritten_stretches_are_refused(whole: bytes, tmp_path: Path) -> None:
    for offset in range(0, len(whole) - 64, len(whole) // 30):
        for filler in (b"\0" * 64, b"\xff" * 64):
            check_refused(whole[:offset] + filler + whole[offset + 64 :], tmp_path)


def test_headers_that_lie_about_their_length_are_refused(whole: bytes, tmp_path: Path) -> None:
    for length in (0, 1, header_size(whole) - 9, header_size(whole) + 1, len(whole), 2**32, 2**63, 2**64 - 1):
        check_refused(struct.pack("<Q", length) + whole[8:], tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"hello",
        b"{}",
        b"PK\x03\x04" + b"\0" * 100,
        b"\x80\x04\x95" + b"x" * 50,
        struct.pack("<Q", 2) + b"{}",
    ],
    ids=["empty", "zero", "text", "JSON", "zip", "pickle", "no tensors"],
)
def test_a_file_that_is_no_snapshot_is_refused(content: bytes, tmp_path: Path) -> None:
    check_refused(content, tmp_path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="absent"):
        Learner.load(tmp_path / "absent")
    with pytest.raises(SnapshotError):
        Learner.load(tmp_path)


def test_another_safetensors_file_is_refused(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, tmp_path / "other", {"format": "pt"})
    with pytest.raises(SnapshotError, match="not a snapshot"):
        Learner.load(tmp_path / "other")


# ---- files that were changed with care --------------------------------------------------------------------------

Tensors = dict[str, Tensor]
Description = dict[str, Any]


@pytest.fixture(scope="module")
def opened(whole: bytes, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tensors, Description]:
    path = tmp_path_factory.mktemp("opened") / "learner"
    path.write_bytes(whole)
    with safe_open(path, framework="pt") as file:
        return {n: file.get_tensor(n) for n in file.keys()}, json.loads(file.metadata()["learner"])  # noqa: SIM118


def forged(folder: Path, tensors: Tensors, description: Any, **metadata: str) -> Path:
    """A file that hangs together outside, with a digest that is right for what it says."""
    path = folder / "forged.safetensors"
    words = description if isinstance(description, str) else json.dumps(description)
    digest = snapshot.digest(words, tensors)
    facts = {"format": "sharp", "version": "3", "learner": words, "digest": digest, **metadata}
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, path, facts)
    return path


def test_a_forged_file_without_a_change_is_the_snapshot(opened: tuple[Tensors, Description], tmp_path: Path) -> None:
    check_same(Learner.load(forged(tmp_path, *opened)), in_an_episode())


def test_another_version_is_refused_as_such(opened: tuple[Tensors, Description], tmp_path: Path) -> None:
    for version in ("0", "1", "2", "4", "3.0", "", "x"):
        with pytest.raises(SnapshotVersionError, match="reads 3"):
            Learner.load(forged(tmp_path, *opened, version=version))
    with pytest.raises(SnapshotError, match="not a snapshot"):
        Learner.load(forged(tmp_path, *opened, format="blunt"))


def test_every_tensor_is_needed(opened: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = opened
    for name in tensors:
        if name == "episode.x":  # with the examples goes the right to have them given again; y alone is one too many
            continue
        without = {other: tensor for other, tensor in tensors.items() if other != name}
        with pytest.raises(SnapshotError, match=name.replace(".", r"\.")):
            Learner.load(forged(tmp_path, without, description))


def test_no_tensor_is_one_too_many(opened: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = opened
    for name in ("extra", "network.3.weight", "stm.9.codes", "ltm.9.mask", "backbone.extractor.x", "pending.y"):
        with pytest.raises(SnapshotError, match=name.replace(".", r"\.")):
            Learner.load(forged(tmp_path, {**tensors, name: torch.zeros(2)}, description))


def test_every_tensor_must_have_its_shape_and_type(opened: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = opened
    for i, (name, tensor) in enumerate(tensors.items()):
        longer = torch.cat((tensor, tensor[:1])) if len(tensor) else torch.zeros(1, *tensor.shape[1:])
        wrong = [tensor[None], tensor.to(torch.int16), tensor.to(torch.float64)]
        if name != "episode.heldout" and not name.endswith(("reference", "vectors")):  # of these any number may be
            wrong.append(longer)
        for other in (wrong[i % len(wrong)], wrong[(i + 1) % len(wrong)]):
            with pytest.raises(SnapshotError):
                Learner.load(forged(tmp_path, {**tensors, name: other}, description))


def test_no_value_may_be_other_than_finite(opened: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = opened
    floats = [name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel()]
    assert len(floats) >= 15
    for name in floats:
        for value in (float("nan"), float("inf")):
            damaged = tensors[name].clone()
            damaged.view(-1)[0] = value
            with pytest.raises(SnapshotError, match="not finite"):
                Learner.load(forged(tmp_path, {**tensors, name: damaged}, description))


def test_tensors_that_contradict_each_other_are_refused(opened: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = opened
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "network.1.mask": lambda t: ~t,
        "network.2.ranks": lambda t: t - 100,
        "before.1.mask": lambda t: torch.ones_like(t),
        "stm.0.codes": lambda t: t[:-1],
        "stm.1.scales": lambda t: t[:-1],
        "episode.y": lambda t: t + 1000,
        "episode.heldout": lambda t: t + 1000,
        "random": lambda t: t[:10],
        "random_before": lambda t: t[:10],
    }
    for name, change_it in changes.items():
        with pytest.raises(SnapshotError):
            Learner.load(forged(tmp_path, {**tensors, name: change_it(tensors[name])}, description))


@pytest.mark.parametrize(
    "words",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        '"text"',
        "{}",
        "[" * 100_000,
        '{"config": {}}',
        "\ud800".encode("utf-8", "replace").decode(),
    ],
    ids=["empty", "open", "list", "null", "number", "text", "table", "deep", "bare", "question mark"],
)
def test_a_description_that_describes_nothing_is_refused(
    words: str, opened: tuple[Tensors, Description], tmp_path: Path
) -> None:
    with pytest.raises(SnapshotError):
        Learner.load(forged(tmp_path, opened[0], words))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree of JSON values."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    tree = copy.deepcopy(tree)
    place = tree
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return tree


GARBAGE = [None, -1, 0, 1.5, "x", True, [], {}, [None], {"x": 1}, 10**30, float("nan"), float("inf")]


@pytest.mark.parametrize("turn", range(4))
def test_garbage_anywhere_in_the_description_is_refused_or_harmless(
    turn: int, opened: tuple[Tensors, Description], tmp_path: Path
) -> None:
    """Never another exception; and what is loaded all the same is a learner that can be saved again."""
    tensors, description = opened
    everywhere = list(places(description))
    refused = 0
    for i, path in enumerate(everywhere[turn::2]):
        garbage = GARBAGE[(5 * i + 3 * turn) % len(GARBAGE)]
        try:
            loaded = Learner.load(forged(tmp_path, tensors, replaced(description, path, garbage)))
        except SnapshotError:
            refused += 1
        else:
            loaded.save(tmp_path / "again")
    assert refused > len(everywhere) / 4


def test_every_key_of_the_description_is_needed(opened: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = opened
    for key in description:
        if key in ("pending", "found", "backbone", "metric"):  # there is nothing of the kind here
            continue
        without = {other: value for other, value in description.items() if other != key}
        with pytest.raises(SnapshotError, match="damaged"):
            Learner.load(forged(tmp_path, tensors, without))


@pytest.mark.parametrize(
    "shape", [[0], [], [6, 6], [-6], [2**70], [1, 0, 4], ["6"], [6.0], 6, "6", [1, 2, 3, 4]], ids=str
)
def test_input_shapes_that_cannot_be_are_refused(
    shape: Any, opened: tuple[Tensors, Description], tmp_path: Path
) -> None:
    tensors, description = opened
    with pytest.raises(SnapshotError):
        Learner.load(forged(tmp_path, tensors, replaced(description, ("input_shape",), shape)))


def test_a_snapshot_of_a_device_that_does_not_exist_here_names_it_and_loads_onto_another(
    opened: tuple[Tensors, Description], tmp_path: Path
) -> None:
    tensors, description = opened
    path = forged(tmp_path, tensors, replaced(description, ("config", "device"), "cuda:77"))
    with pytest.raises(SnapshotError, match="cuda:77"):
        Learner.load(path)
    assert Learner.load(path, device="cpu").network.device.type == "cpu"
    with pytest.raises(SnapshotError, match="nowhere"):
        Learner.load(path, device="nowhere")


def of_layers(*units: int) -> list[dict[str, Any]]:
    return [{"kind": "linear", "units": count, "pool": False} for count in units]


POOLS = [{"kind": "conv", "units": 1, "pool": True}] * 12 + of_layers(1)


@pytest.mark.parametrize(
    "claims",
    [
        {("input_shape",): [1_000_000_000]},
        {("input_shape",): [2**25]},
        {("input_shape",): [1, 4096, 4096]},
        {("config", "architecture", "layers"): of_layers(30_000, 30_000, 30_000)},
        {("config", "architecture", "layers"): of_layers(*[24] * 100)},
        {("config", "architecture", "layers"): POOLS, ("input_shape",): [1, 2**30, 2**30]},
        {("config", "architecture", "layers"): POOLS, ("input_shape",): [1, 2**12, 2**12]},
    ],
    ids=str,
)
def test_a_network_that_the_file_does_not_hold_is_never_built(
    claims: dict[Any, Any],
    opened: tuple[Tensors, Description],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensors, description = opened
    for place, value in claims.items():
        description = replaced(description, place, value)
    monkeypatch.setattr(Learner, "build", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(SnapshotError):
        Learner.load(forged(tmp_path, tensors, description))


def test_loading_unfolds_no_memory(
    opened: tuple[Tensors, Description], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors, description = opened
    monkeypatch.setattr(stm, "unpack", lambda *_: pytest.fail("it was unfolded"))
    learner = Learner.load(forged(tmp_path, tensors, description))
    assert torch.equal(learner.stm.classes[0].packed.codes, tensors["stm.0.codes"])


def test_long_term_memory_that_would_take_far_more_room_than_it_holds_is_refused(
    opened: tuple[Tensors, Description], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors, description = opened
    mask = torch.zeros_like(tensors["ltm.0.mask"])
    mask[0] = True
    deep = {"ltm.0.mask": mask, "ltm.0.vectors": torch.ones(100_000, 1)}
    monkeypatch.setattr(snapshot, "_LARGEST_GRID", 1_000_000)
    monkeypatch.setattr(snapshot, "_GRID_PROPORTION", 16)
    with pytest.raises(SnapshotError, match="room"):
        Learner.load(forged(tmp_path, tensors | deep, description))


def test_more_episodes_than_can_be_counted_are_refused(opened: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = opened
    with pytest.raises(SnapshotError, match="episodes"):
        Learner.load(forged(tmp_path, tensors, replaced(description, ("episodes",), 2**63 - 1)))


def test_labels_that_are_not_unique_are_refused(opened: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = opened
    pairs = description["labels"]["pairs"]
    for wrong in (
        [[pairs[0][0], label] for _, label in pairs],
        [[class_id, 7] for class_id, _ in pairs],
        [[class_id, str(label)] for class_id, label in pairs],
        pairs[:-2],
        [[class_id + 1000, label] for class_id, label in pairs],
    ):
        with pytest.raises(SnapshotError):
            Learner.load(forged(tmp_path, tensors, replaced(description, ("labels", "pairs"), wrong)))


def test_a_file_refused_leaves_a_learner_in_hand_alone(whole: bytes, tmp_path: Path) -> None:
    learner = in_an_episode()
    before = copy.deepcopy(learner)
    check_refused(whole[:-10], tmp_path)
    check_same(before, learner)
