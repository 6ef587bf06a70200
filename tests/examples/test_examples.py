"""Every example runs, against a real server."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file

from examples import folder_watcher, from_partial_fit, torchvision_embeddings
from sharp_client import Client
from sharp_engine.sklearn import SharpClassifier
from tests.server.running import SMALL, Server

FOLDER = Path(__file__).parents[2] / "examples"
COLOURS = {"brick": (200, 60, 40), "grass": (60, 180, 60), "night": (20, 20, 60), "sand": (220, 200, 140)}
SMALL_IMAGES = {
    **SMALL,
    "architecture.dictionary.patches": "2000",
    "architecture.kind": "dictionary",
    "architecture.layers": '[{"kind": "linear", "units": 40}]',
}


@pytest.fixture
def address(shared: Server) -> str:
    return shared.address


def paint(folder: Path, colour: str, count: int, side: int = 12, first: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(first)
    for number in range(first, first + count):
        noisy = np.array(COLOURS[colour]) + rng.integers(-15, 16, (side, side, 3))
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{colour}-{number}.png")


def test_there_is_no_example_that_is_not_run_here_and_each_is_short() -> None:
    names = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert names == {"folder_watcher", "from_partial_fit", "torchvision_embeddings"}
    assert all(len((FOLDER / f"{name}.py").read_text().splitlines()) <= 100 for name in names)


def test_the_folder_watcher_learns_what_is_labelled_and_names_the_rest(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    incoming = tmp_path / "incoming"
    with Client(address) as client:
        client.create_learner("camera", input_shape=(3, 8, 8), overrides=SMALL_IMAGES)
    words = [str(incoming), "--once", "--address", address, "--side", "8"]
    paint(incoming / "brick", "brick", 12)
    paint(incoming / "grass", "grass", 12, side=20)  # another size: the server resizes
    paint(incoming / "unlabelled", "grass", 2, first=50)
    folder_watcher.main(words)
    assert "24 images to learn" in capsys.readouterr().out
    assert len(list((tmp_path / "learned" / "brick").iterdir())) == 12
    assert len(list((tmp_path / "named" / "grass").iterdir())) == 2
    assert not [path for path in incoming.rglob("*") if path.is_file()]

    paint(incoming / "night", "night", 12)  # a class that nobody announced
    paint(incoming / "unlabelled", "night", 1, first=60)
    paint(incoming / "unlabelled", "brick", 1, first=70)
    folder_watcher.main(words)
    output = capsys.readouterr().out
    assert "night-60.png: night" in output and "brick-70.png: brick" in output


def test_the_folder_watcher_waits_for_a_pair_and_for_something_learned(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    incoming = tmp_path / "incoming"
    paint(incoming / "brick", "brick", 1)
    paint(incoming / "unlabelled", "grass", 1)
    folder_watcher.main([str(incoming), "--once", "--address", address, "--learner", "waiting"])
    assert capsys.readouterr().out == ""
    assert len([path for path in incoming.rglob("*") if path.is_file()]) == 2


def test_embeddings_of_a_torchvision_model_are_learned(address: str, tmp_path: Path) -> None:
    for colour in COLOURS:
        paint(tmp_path / "photos" / colour, colour, 15, side=40)
    torch.manual_seed(0)
    weights = tmp_path / "squeezenet.safetensors"
    save_file(torchvision.models.squeezenet1_1(weights=None).state_dict(), weights)
    with Client(address) as client:
        client.create_learner("photos", overrides={"architecture.kind": "mlp", "metric.random_features": 100})
    words = ["--address", address, "--model", "squeezenet1_1", "--side", "32", "--learner", "photos"]
    assert torchvision_embeddings.main([str(tmp_path / "photos"), "--weights", str(weights), *words]) >= 0.8


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_a_local_file_of_weights_is_what_the_embeddings_come_from(tmp_path: Path, suffix: str) -> None:
    torch.manual_seed(1)
    model = torchvision.models.squeezenet1_1(weights=None)
    path = tmp_path / f"weights{suffix}"
    save: Any = save_file if suffix == ".safetensors" else torch.save
    save(model.state_dict(), path)
    images = torch.rand(2, 3, 32, 32)
    loaded = torchvision_embeddings.embedder("squeezenet1_1", str(path))(images)["embedding"]
    again = torchvision_embeddings.embedder("squeezenet1_1", str(path))(images)["embedding"]
    other = torchvision_embeddings.embedder("squeezenet1_1", None)(images)["embedding"]
    assert torch.equal(loaded, again) and not torch.equal(loaded, other)


def test_a_partial_fit_loop_forgets_and_its_successors_do_not(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"metric.random_features": 200}
    monkeypatch.setattr(from_partial_fit, "SharpClassifier", partial(SharpClassifier, options=small))
    with Client(address) as client:
        client.create_learner("from-partial-fit", overrides=small)
    accuracy = from_partial_fit.main(["--address", address])
    assert accuracy["SGDClassifier"] < 0.5
    assert accuracy["SharpClassifier"] >= 0.8 and accuracy["a server"] >= 0.8


def test_examples_run_as_scripts_too() -> None:
    done = subprocess.run([sys.executable, FOLDER / "folder_watcher.py", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--once" in done.stdout
