"""Files of weights that a client brings: kept under their SHA-256, once, bounded, and only as plain tensors."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torchvision import models

from sharp.v1 import learner_admin_pb2, learner_pb2
from sharp.v1 import weights_pb2 as pb
from tests.server.running import SECONDS, Server, refused

LIMIT = 60_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all: without a folder of weights of its operator."""
    with Server(tmp_path_factory.mktemp("server"), limits__weights_bytes=LIMIT).start() as started:
        yield started


def bring(server: Server, content: bytes, sent: list[int] | None = None, **header: Any) -> pb.ImportWeightsResponse:
    """Send a file, as its header says it is or otherwise; `sent` counts the chunks that were asked for."""
    true = {"size_bytes": len(content), "sha256": hashlib.sha256(content).digest()}

    def parts() -> Iterator[pb.ImportWeightsRequest]:
        yield pb.ImportWeightsRequest(header=pb.WeightsHeader(**{**true, **header}))
        for place in range(0, len(content), 1 << 20):
            if sent is not None:
                sent.append(place)
            yield pb.ImportWeightsRequest(chunk=content[place : place + (1 << 20)])

    return server.admin.ImportWeights(parts(), timeout=SECONDS)


def kept(server: Server) -> set[str]:
    folder = server.data / "weights"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def saved(content: Any) -> bytes:
    torch.save(content, file := io.BytesIO())
    return file.getvalue()


def squeezenet() -> bytes:
    """About 5 MB of weights that fit a model."""
    torch.manual_seed(0)
    return saved(models.squeezenet1_1(weights=None).state_dict())


def create(server: Server, name: str, weights: str) -> None:
    backbone = {"model": "squeezenet1_1", "layer": "features", "weights": weights}
    settings = {"architecture.kind": "backbone", "architecture.backbone": json.dumps(backbone)}
    config = learner_pb2.LearnerConfig(overrides=settings, input_shape=[3, 64, 64])
    server.admin.CreateLearner(learner_admin_pb2.CreateLearnerRequest(name=name, config=config), timeout=SECONDS)


def test_a_file_is_kept_under_its_sha_256_and_named_by_a_learner(server: Server) -> None:
    content = squeezenet()
    digest = hashlib.sha256(content).hexdigest()
    done = bring(server, content)
    assert (done.name, done.stored) == (f"{digest}.pth", True)
    path = server.data / "weights" / done.name
    assert path.read_bytes() == content and path.parent.stat().st_mode & 0o077 == 0
    create(server, "photos", done.name)
    assert json.loads(server.learner("photos").settings["architecture.backbone"])["weights"] == done.name
    pictures = np.random.default_rng(0).integers(0, 255, (8, 3, 64, 64), np.uint8)
    pictures[4:] //= 4
    assert server.teach("photos", (pictures, ["light"] * 4 + ["dark"] * 4)) == 1
    file = server.exported("photos")[1]
    assert str(server.data).encode() not in file, "no path of the server leaves it"


def test_a_file_that_is_there_is_not_sent_again(server: Server) -> None:
    content = save({"weight": torch.arange(8_000_000, dtype=torch.float32)})
    sent: list[int] = []
    first = bring(server, content)
    assert first.name.endswith(".safetensors") and first.stored
    again = bring(server, content, sent)
    assert (again.name, again.stored) == (first.name, False)
    assert len(sent) < len(content) >> 20, "the answer came before all of it had been asked for"


class Evil:
    """Makes a file where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self._file,)


def bomb(_: Path) -> bytes:
    """A state dict with an entry that is small packed and large unpacked."""
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
        archive.writestr("archive/data/0", bytes(2 * LIMIT))
    return file.getvalue()


@pytest.mark.parametrize(
    "made",
    [
        lambda _: b"no weights",
        lambda _: save({"a": torch.zeros(9)})[:-5],
        lambda _: (1 << 40).to_bytes(8, "little") + b"{" + bytes(90),
        lambda _: saved({"a": torch.zeros(9)})[:-40],
        lambda _: saved([torch.zeros(9)]),
        lambda file: pickle.dumps(Evil(file)),
        lambda file: saved({"a": Evil(file)}),
        bomb,
    ],
    ids=[
        "garbage",
        "broken off",
        "a header without end",
        "half an archive",
        "a list",
        "a pickle",
        "an object",
        "a bomb",
    ],
)
def test_what_is_no_file_of_plain_tensors_is_refused_and_leaves_nothing(
    made: Callable[[Path], bytes], server: Server, tmp_path: Path
) -> None:
    before, made_when_run = kept(server), tmp_path / "it was run"
    with refused("WEIGHTS_MALFORMED"):
        bring(server, made(made_when_run))
    assert kept(server) == before and not list((server.data / "work").glob(".import*"))
    assert not made_when_run.exists()


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"size_bytes": 11}, "WEIGHTS_MALFORMED"),
        ({"size_bytes": 9}, "WEIGHTS_MALFORMED"),
        ({"size_bytes": 0}, "FIELD_INVALID"),
        ({"sha256": b""}, "FIELD_INVALID"),
        ({"sha256": bytes(31)}, "FIELD_INVALID"),
        ({"sha256": bytes(32)}, "CHECKSUM_MISMATCH"),
        ({"size_bytes": LIMIT + 1}, "WEIGHTS_TOO_LARGE"),
        ({"size_bytes": 1 << 60}, "WEIGHTS_TOO_LARGE"),
    ],
    ids=str,
)
def test_a_header_that_is_not_true_is_refused(header: dict[str, Any], reason: str, server: Server) -> None:
    before = kept(server)
    with refused(reason):
        bring(server, b"12345678{}", **header)
    assert kept(server) == before and not list((server.data / "work").glob(".import*"))


@pytest.mark.parametrize("part", [pb.ImportWeightsRequest(chunk=b"x"), pb.ImportWeightsRequest()], ids=["chunk", "no"])
def test_the_header_comes_first(part: pb.ImportWeightsRequest, server: Server) -> None:
    with refused("UNEXPECTED_MESSAGE"):
        server.admin.ImportWeights(iter([part]), timeout=SECONDS)


def test_all_files_together_are_bounded_and_those_that_are_there_are_always_known(serve: Callable[..., Server]) -> None:
    small = [save({"weight": torch.full((250,), float(i))}) for i in range(3)]
    server = serve(limits__weights_bytes=2 * len(small[0]))
    names = [bring(server, content).name for content in small[:2]]
    with refused("WEIGHTS_TOO_LARGE"):
        bring(server, small[2])
    assert not bring(server, small[0]).stored
    server.kill()
    server.restart()
    assert kept(server) == set(names), "they outlive a kill"
    (server.data / "weights" / names[0]).unlink()
    assert bring(server, small[2]).stored, "what an operator deleted makes room"


@pytest.mark.parametrize("name", ["../journal.db", "/etc/passwd", "missing.pth", "a" * 64 + ".pth", ""])
def test_a_learner_names_only_files_that_are_there(name: str, server: Server) -> None:
    with refused("CONFIG_INVALID"):
        create(server, "hopeless", name)
