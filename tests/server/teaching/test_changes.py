"""Predictors that arrive as changes answer as those that were sent, to the last bit, and cost kilobytes a lesson."""

from __future__ import annotations

import pickle
import random
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sharp_engine import ArchitectureConfig, BackboneConfig, LayerConfig, Learner, LearnerConfig, Predictor, preset
from sharp_server.teaching import wire
from sharp_server.teaching.changes import NewTensor, Receiver, Sender, memory_of
from sharp_server.teaching.protocol import Known
from sharp_server.teaching.taught import TaughtLearner
from tests.engine.fixtures import IMAGE, VECTOR, examples, metric, mlp, pictures

SOURCE = Path(__file__).parents[3] / "server" / "sharp_server"


class Line:
    """Both ends of a way from one process to another."""

    def __init__(self) -> None:
        self.sender, self.receiver = Sender(), Receiver()
        self.bytes = 0
        """Of the last message."""
        self.new: tuple[object, ...] = ()
        """What it brought."""

    def carry(self, known: Known) -> Known:
        changes, values = self.sender.write(known)
        head = pickle.dumps(changes)
        self.bytes = len(head) + sum(piece.nbytes for piece in values)
        arrived = pickle.loads(head)
        self.new = arrived.new
        room = self.receiver.room_for(arrived)
        assert len(room) == len(values)
        for tensor, piece in zip(room, values, strict=True):
            memory_of(tensor)[:] = piece.tobytes()
        found: Known = self.receiver.read(arrived, room)
        return found


def answers(predictor: Predictor, x: torch.Tensor) -> tuple[Any, ...]:
    found = predictor.predict(x, 3, 4, True)
    novelty = found.novelty.tobytes() if found.novelty is not None else None
    arrays = (found.share, found.distance, found.top_share, found.top_distance, found.memory_distance)
    episodes = found.memory_episode.tolist()
    names = (found.labels, found.top_labels, found.memory_labels)
    return (*names, episodes, novelty, *(array.tobytes() for array in arrays), predictor.classes, predictor.episodes)


def check_same_answers(line: Line, learner: Learner, taught: TaughtLearner, x: torch.Tensor) -> None:
    known = taught.known()
    arrived = line.carry(known)
    assert arrived.summary == known.summary
    if known.predictor is None or arrived.predictor is None:
        assert arrived.predictor is known.predictor
        return
    assert answers(arrived.predictor, x) == answers(learner.predictor, x)


def learned(config: LearnerConfig, shape: tuple[int, ...]) -> Learner:
    learner = Learner(config)
    x, y = examples("abcd", shape, each=12)
    learner.learn_episode(x, y)
    return learner


WIDE = metric(random_features=600)
"""With tensors so large that their rows are compared."""
KINDS = {"narrow": (metric(), VECTOR), "wide": (WIDE, VECTOR), "images": (pictures(), IMAGE)}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1))
def test_whatever_is_taught_counted_or_forgotten_arrives_to_the_last_bit(kind: str, seed: int) -> None:
    config, shape = KINDS[kind]
    chance, line = random.Random(seed), Line()
    learner = learned(config, shape) if kind == "images" or chance.random() < 0.5 else Learner(config)
    taught = TaughtLearner(learner, "abcd")
    probes, _ = examples("abcdef", shape, each=3, seed=5)
    for place in range(14):
        step = chance.random()
        classes = chance.sample("abcdef", chance.randint(1, 3))
        x, y = examples(classes, shape, each=chance.randint(1, 3), seed=chance.randrange(1000))
        if step < 0.6:
            taught.teach(place, x.numpy(), y)
        elif step < 0.85:
            taught.count(x.numpy(), y)
        elif learner.architecture is not None and len(learner.inspect().classes) > 2:
            learner.forget(chance.choice(learner.inspect().classes))
        if chance.random() < 0.7:
            check_same_answers(line, learner, taught, probes)
    check_same_answers(line, learner, taught, probes)
    check_same_answers(line, learner, taught, probes)  # nothing new


def test_a_vote_of_the_network_by_itself_arrives_to_the_last_bit() -> None:
    learner, line = learned(mlp(), VECTOR), Line()
    x, _ = examples("abcd", VECTOR, each=3, seed=3)
    check_same_answers(line, learner, TaughtLearner(learner, "abcd"), x)


def test_a_vote_beside_the_metric_arrives_to_the_last_bit_and_only_once() -> None:
    learner, line = learned(WIDE, VECTOR), Line()
    knowledge = learner.knowledge
    assert knowledge is not None
    learner.knowledge = replace(knowledge, calibration=replace(knowledge.calibration, weight=1.0))
    learner.changed()
    taught = TaughtLearner(learner, "abcd")
    probes, _ = examples("abcd", VECTOR, each=3, seed=3)
    for place in range(5):
        check_same_answers(line, learner, taught, probes)
        x, y = examples("abcd", VECTOR, each=1, seed=place)
        taught.teach(place, x[:1].numpy(), y[:1])


def test_a_backbone_arrives_to_the_last_bit_and_only_once() -> None:
    layers = (LayerConfig("linear", 12), LayerConfig("linear", 10))
    backbone = BackboneConfig("squeezenet1_1", "features.3")
    architecture = ArchitectureConfig("backbone", layers=layers, cut=0, backbone=backbone)
    learner = Learner(replace(metric(), architecture=architecture))
    x, y = examples("ab", (3, 32, 32), each=3)
    taught, line = TaughtLearner(learner), Line()
    for place in range(len(y)):
        taught.teach(place, x[place : place + 1].numpy(), y[place : place + 1])
        check_same_answers(line, learner, taught, x)
        parameters = [new for new in line.new if isinstance(new, NewTensor) and new.parameter]
        assert bool(parameters) == (place == 0)


@pytest.fixture(scope="module")
def wide() -> tuple[Learner, torch.Tensor, list[str]]:
    """A learner of a hundred classes, with a whitening of 17 MB."""
    generator = torch.Generator().manual_seed(0)
    classes = [f"class {i}" for i in range(100)]
    corners = torch.rand(100, 64, generator=generator)
    learner = Learner(preset("default"))
    each = 6
    x = 0.7 * corners.repeat_interleave(each, 0) + 0.3 * torch.rand(100 * each, 64, generator=generator)
    learner.teach(x, [name for name in classes for _ in range(each)], correct=False)
    return learner, corners, classes


def test_a_lesson_ships_kilobytes_however_large_the_whitening(wide: tuple[Learner, torch.Tensor, list[str]]) -> None:
    learner, corners, classes = wide
    taught, line, chance = TaughtLearner(learner), Line(), np.random.default_rng(0)
    line.carry(taught.known())
    assert line.bytes > 10_000_000
    shipped = []
    for place in range(60):
        label = int(chance.integers(100))
        x = 0.6 * corners[label] + 0.4 * torch.from_numpy(chance.random(64, dtype=np.float32))
        taught.teach(place, x[None].numpy(), [classes[label]])
        arrived = line.carry(taught.known())
        shipped.append(line.bytes)
    assert arrived.predictor is not None
    assert answers(arrived.predictor, corners) == answers(learner.predictor, corners)
    assert float(np.median(shipped)) < 300_000
    assert sum(size > 1_000_000 for size in shipped) <= 2  # examples were summed up


def test_what_only_teaching_needs_is_not_shipped(wide: tuple[Learner, torch.Tensor, list[str]]) -> None:
    learner, corners, classes = wide
    learner.teach(corners[:1], [classes[1]])
    assert learner.predictor.for_serving().learned.reusable is None  # type: ignore[attr-defined]
    assert learner.predictor.learned.reusable is not None  # type: ignore[attr-defined]


def test_the_receiver_holds_no_more_than_the_sender_remembers() -> None:
    learner, line = learned(metric(), VECTOR), Line()
    taught = TaughtLearner(learner)
    sizes = []
    for place in range(30):
        x, y = examples("abcd", VECTOR, each=1, seed=place)
        taught.teach(place, x.numpy(), y)
        line.carry(taught.known())
        assert len(line.sender._held) == len(line.receiver._held)
        sizes.append(len(line.receiver._held))
    assert max(sizes[15:]) <= sizes[5] + 10


def test_rows_that_moved_are_told_from_new_ones() -> None:
    sender, receiver = Sender(), Receiver()
    first = torch.rand(400, 30)
    cases = [
        first,
        first.clone(),
        torch.cat((first[7:], torch.rand(3, 30))),
        torch.cat((first[7:200], torch.rand(1, 30), first[200:])),
        torch.rand(400, 30),
        torch.full((400, 30), torch.nan),
        torch.zeros(0, 30),
        torch.rand(4, 5).T,
        torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last),
        torch.rand(64, 64)[:, :7],
        torch.rand(300, 30) > 0.5,
        torch.tensor(3.5),
    ]
    for tensor in cases:
        changes, values = sender.write(tensor)
        room = receiver.room_for(changes)
        for place, piece in zip(room, values, strict=True):
            memory_of(place)[:] = piece.tobytes()
        found = receiver.read(changes, room)
        assert found.dtype == tensor.dtype and found.shape == tensor.shape
        assert torch.equal(torch.nan_to_num(found), torch.nan_to_num(tensor))
        if tensor.is_contiguous(memory_format=torch.channels_last) and tensor.ndim == 4:
            assert found.is_contiguous(memory_format=torch.channels_last)


def test_a_message_larger_than_any_buffer_passes_through_a_socket() -> None:
    ours, theirs = socket.socketpair()
    large = np.random.default_rng(0).integers(0, 255, 3_000_000, dtype=np.uint8)
    small = [np.full(i % 5 + 1, i % 256, np.uint8) for i in range(700)]
    thread = threading.Thread(target=wire.send, args=(theirs, {"head": 1}, [large, *small]))
    thread.start()
    with ours, theirs:
        assert wire.receive_head(ours) == {"head": 1}
        room = [bytearray(len(large)), *(bytearray(len(piece)) for piece in small)]
        wire.receive_into(ours, [memoryview(piece) for piece in room])
        assert bytes(room[0]) == large.tobytes()
        assert all(bytes(a) == b.tobytes() for a, b in zip(room[1:], small, strict=True))
        thread.join()
        theirs.close()
        with pytest.raises(EOFError):
            wire.receive_head(ours)


def test_nothing_else_in_the_server_unpickles() -> None:
    sources = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    words = ("pickle.load", "Unpickler", "torch.load", "marshal")
    found = {name for name, text in sources.items() if any(word in text for word in words)}
    # `desk` looks whether an error of its own survives the journey; that is in the teacher.
    assert found == {"teaching/changes.py", "teaching/wire.py", "teaching/desk.py"}
    readers = {name for name, text in sources.items() if "receive_head(" in text}
    assert readers == {"teaching/wire.py", "teaching/desk.py", "teaching/life.py"}
