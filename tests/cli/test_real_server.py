"""The commands against a real server: what a learner remembers, what is refused and leaves nothing behind, the end."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import sharp_client
from devtools.server_process import ServerProcess, clone_environment
from sharp.inference import open_inference_pb2 as oip
from sharp.inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from sharp_cli import new_learner
from sharp_cli.main import app
from sharp_client import Client
from tests.cli.conftest import Outcome

pytest.importorskip("sharp_server")
torch = pytest.importorskip("torch")
models = pytest.importorskip("torchvision.models")

Run = Callable[..., Outcome]
SECONDS = 180.0
SMALL = {"metric.random_features": 50, "architecture.dictionary": {"atoms": 40, "patches": 2000}}
"""Settings of learners of images that learn in a moment: nothing here is about how well they do."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `sharp learn` asks for where it makes a learner, and more: it has no option for it."""
    ask = new_learner._in_json
    monkeypatch.setattr(new_learner, "_in_json", lambda settings: ask({**SMALL, **settings}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One for all; each test has learners of its own."""
    folder = tmp_path_factory.mktemp("server")
    weights = folder / "weights"
    weights.mkdir()
    torch.manual_seed(0)
    torch.save(models.resnet18(weights=None).state_dict(), weights / "resnet18.pth")
    torch.save({"other": torch.zeros(3)}, weights / "other.pth")
    settings = {"data.weights_folder": weights, "trainer.niceness": 0, "http.enabled": True, "http.port": 0}
    with ServerProcess(folder, settings).start() as started:
        yield started


@pytest.fixture
def run(server: ServerProcess) -> Run:
    """The command, with the server's address."""

    def typed(*words: str, **environment: str) -> Outcome:
        env = {"SHARP_ADDRESS": server.address, "COLUMNS": "120", **environment}
        done = CliRunner().invoke(app, list(words), env=env)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Outcome(done.exit_code, done.stdout, done.stderr)

    return typed


def paint(folder: Path, each: int = 5) -> Path:
    """Two classes of coloured images, each of another size, in every format."""
    random = np.random.default_rng(0)
    for label, colour in (("rose", (200, 30, 60)), ("moss", (60, 130, 40))):
        (folder / label).mkdir(parents=True)
        for index in range(each):
            pixels = random.normal(colour, 20, (12 + 5 * index, 40 - 4 * index, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{index}.{('png', 'jpg', 'webp', 'bmp')[index % 4]}")
    return folder


def learners(server: ServerProcess) -> set[str]:
    with Client(server.address) as client:
        return {learner.name for learner in client.list_learners()}


def test_a_learner_made_with_a_size_resizes_whoever_asks(server: ServerProcess, run: Run, tmp_path: Path) -> None:
    folder = paint(tmp_path / "plants")
    done = run("learn", str(folder), "--resize", "16x20")
    assert done.code == 0 and "✓ episode 1" in done.out, done.err
    assert "✓ episode 2" in run("learn", str(folder)).out  # nothing of it has to be said again
    assert run("evaluate", str(folder), "-l", "plants", "--json").json()["accuracy"] == 1.0
    file = folder / "rose" / "4.png"
    run("snapshot", "export", str(tmp_path / "plants.safetensors"), "-l", "plants")
    run("snapshot", "import", str(tmp_path / "plants.safetensors"), "-l", "moved")  # it is part of what is learned
    with Client(server.address) as client, grpc.insecure_channel(server.address) as channel:
        for name in ("plants", "moved"):
            assert client.get_learner(name).settings["architecture.resize"] == "true"
            assert client.learner(name).predict(file).labels.tolist() == ["rose"]
            content = file.read_bytes()
            request = oip.ModelInferRequest(
                model_name=name, raw_input_contents=[struct.pack("<I", len(content)) + content]
            )
            request.inputs.add(name="input", datatype="BYTES", shape=[1])
            request.outputs.add(name="label")
            answer = GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=SECONDS)
            assert answer.raw_output_contents[0].endswith(b"rose")


def test_a_backbone_is_ready_after_one_command(server: ServerProcess, run: Run, tmp_path: Path) -> None:
    folder, own = paint(tmp_path / "photos"), tmp_path / "my own resnet18.pth"
    torch.manual_seed(1)
    torch.save(models.resnet18(weights=None).state_dict(), own)
    words = ("learn", str(folder), "--resize", "64", "--backbone", "resnet18", "--weights", str(own))
    done = run(*words)
    assert done.code == 0, done.err
    name = f"{hashlib.sha256(own.read_bytes()).hexdigest()}.pth"
    assert (server.data / "weights" / name).read_bytes() == own.read_bytes()
    with Client(server.address) as client:
        made = client.get_learner("photos")
        assert json.loads(made.settings["architecture.backbone"])["weights"] == name
        assert made.input_shape == (3, 64, 64) and made.settings["architecture.mean"] == "[0.485, 0.456, 0.406]"
    answers = run("predict", str(folder), "-l", "photos", "--json").json()
    assert {one["label"] for one in answers["predictions"]} == {"rose", "moss"} and not answers["failures"]
    other = run(*words[:3], "96", *words[4:])
    assert other.code == 1 and "its examples are 3×64×64, not 3×96×96" in other.err


def test_weights_in_the_servers_own_folder_are_named_without_a_path(run: Run, tmp_path: Path) -> None:
    words = ("--resize", "64", "--backbone", "resnet18", "--weights", "resnet18.pth", "-l", "named")
    assert run("learn", str(paint(tmp_path / "photos")), *words).code == 0


@pytest.mark.parametrize(
    ("backbone", "weights", "said"),
    [
        ("resnet18", "missing.pth", "the server has no file 'missing.pth' in its folder of weights"),
        ("resnet18", "other.pth", "do not fit the backbone"),
        ("resnet18:layer9", "resnet18.pth", "no layer 'layer9'"),
        ("resnet7", "resnet18.pth", "torchvision has no such model"),
    ],
)
def test_a_backbone_that_cannot_work_is_refused_before_anything_is_sent(
    backbone: str, weights: str, said: str, server: ServerProcess, run: Run, tmp_path: Path
) -> None:
    done = run("learn", str(paint(tmp_path / "hopeless")), "--backbone", backbone, "--weights", weights)
    assert done.code == 1 and said in done.err and "--weights" in done.err, done.err
    assert "hopeless" not in learners(server)


def test_float_images_of_0_to_255_are_refused_first_and_later_and_leave_nothing_behind(
    server: ServerProcess, run: Run, tmp_path: Path
) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (8, 1, 12, 12), dtype=np.uint8)
    pixels[4:] //= 3
    labels = ["bright"] * 4 + ["dim"] * 4
    with Client(server.address) as client:
        for first in (True, False):
            learner = client.learner("floats")
            with pytest.raises(sharp_client.ValuesOutOfRangeError, match="divide them by 255"):  # noqa: SIM117
                with learner.learn() as stream:
                    stream.send(pixels.astype(np.float32), labels)
            assert ("floats" in learners(server)) is not first
            if first:
                with learner.learn() as stream:
                    stream.send(pixels, labels)
                    stream.end_episode().wait(SECONDS)
        with pytest.raises(sharp_client.ValuesOutOfRangeError):
            learner.predict(pixels.astype(np.float32))
        scaled, whole = learner.predict(pixels.astype(np.float32) / 255), learner.predict(pixels)
        assert scaled.labels.tolist() == whole.labels.tolist() == labels


def test_a_learner_that_others_use_stays_when_a_batch_is_refused(server: ServerProcess) -> None:
    with Client(server.address) as client:
        learner = client.learner("shared")
        with learner.learn() as first:
            first.send(np.eye(4, dtype=np.float32), ["a", "a", "b", "b"])
            first.flush()
            with pytest.raises(sharp_client.ShapeMismatchError):  # noqa: SIM117
                with learner.learn() as second:
                    second.send(np.zeros((1, 5), np.float32), ["a"])
            first.end_episode().wait(SECONDS)
        assert learner.get().status.episodes_learned == 1


def test_a_stream_may_say_how_its_learner_is_made(server: ServerProcess) -> None:
    config = sharp_client.LearnerConfig(overrides={"training.phases": "1"}, input_shape=(4,), seed=5)
    with Client(server.address) as client:
        for _ in range(2):  # there is no harm in saying it again
            with client.learn("configured", create=config) as stream:
                stream.send(np.eye(4, dtype=np.float32), [1, 1, 2, 2])
                stream.end_episode()
        made = client.get_learner("configured")
        assert made.settings["training.phases"] == "1" and made.config.seed == 5
        other = sharp_client.LearnerConfig(overrides={"training.phases": "2"})
        with pytest.raises(sharp_client.LearnerExistsError, match="training.phases is 1, not 2"):
            client.learn("configured", create=other)
        wrong = sharp_client.LearnerConfig(overrides={"training.phases": "none"})
        with pytest.raises(sharp_client.ConfigInvalidError):
            client.learn("misconfigured", create=wrong)
    assert "misconfigured" not in learners(server)


def test_broken_snapshots_are_refused_with_what_is_wrong(server: ServerProcess, run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", x=np.eye(4, dtype=np.float32), y=np.array([1, 1, 2, 2]))
    assert run("learn", str(tmp_path / "v.npz"), "-l", "sound").code == 0
    run("snapshot", "export", str(tmp_path / "sound"), "-l", "sound")
    sound = (tmp_path / "sound").read_bytes()
    header = int.from_bytes(sound[:8], "little")
    changed = bytearray(sound)
    changed[len(sound) // 2] ^= 1
    broken = {
        "it is no safetensors file at all": b"%PDF-1.7 " * 100,
        f"it breaks off: it has {len(sound) - 9} bytes of {len(sound)}": sound[:-9],
        "it breaks off within its header": sound[: header // 2],
        "it has 3 bytes too many at its end": sound + b"abc",
        "the file is damaged: its content is not what was saved": bytes(changed),
        "its header can't be read": sound[:9] + b"?" * (header - 1) + sound[8 + header :],
    }
    for said, content in broken.items():
        (tmp_path / "broken").write_bytes(content)
        done = run("snapshot", "import", str(tmp_path / "broken"), "-l", "new")
        assert done.code == 1 and said in done.err and str(tmp_path / "broken") in done.err, (said, done.err)
    assert "new" not in learners(server)


def test_metrics_say_nothing_of_when_counters_began_and_which_layers_need_idle_units(
    server: ServerProcess, run: Run, tmp_path: Path
) -> None:
    np.savez(tmp_path / "v.npz", x=np.eye(8, dtype=np.float32), y=np.arange(8) // 4)
    for name, preset in (("by-metric", ""), ("by-network", "sharp")):
        run("learner", "create", name, "--preset", preset)
        run("learn", str(tmp_path / "v.npz"), "-l", name)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=SECONDS) as answer:
        text = answer.read().decode()
    assert "sharp_requests_total{" in text and "_created" not in text
    needed = re.findall(r'sharp_idle_units_needed\{layer="(.+?)",learner="(.+?)"\} (.+)', text)
    found: dict[str, dict[str, float]] = {}
    for layer, learner, value in needed:
        found.setdefault(learner, {})[layer] = float(value)
    assert set(found["by-metric"].values()) == {0.0}
    assert set(found["by-network"].values()) == {1.0}


def test_a_large_file_is_sent_and_resized(run: Run, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (1300, 1300, 3), dtype=np.uint8)
    for label in ("a", "b"):
        (tmp_path / "large" / label).mkdir(parents=True)
        Image.fromarray(noise).save(tmp_path / "large" / label / "0.bmp")
    assert (tmp_path / "large" / "a" / "0.bmp").stat().st_size > 4 << 20
    assert run("learn", str(tmp_path / "large"), "--resize", "8").code == 0
    assert len(run("predict", str(tmp_path / "large"), "-l", "large", "--json").json()["predictions"]) == 2


def test_a_predict_token_is_enough_with_and_without_a_name_and_weights_need_one_for_admin(tmp_path: Path) -> None:
    tokens, mine = tmp_path / "tokens", {role: tmp_path / f"{role}.token" for role in ("learn", "predict")}
    tokens.write_text("".join(f"{role}:secret-of-{role}\n" for role in mine))
    tokens.chmod(0o644)
    for role, file in mine.items():
        file.write_text(f"secret-of-{role}\n")
        file.chmod(0o600)
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    with ServerProcess(tmp_path / "server", {"trust.token_file": tokens, "trainer.niceness": 0}).start() as server:

        def run(role: str, *words: str) -> Any:
            environment = {"SHARP_ADDRESS": server.address, "SHARP_TOKEN_FILE": str(mine[role])}
            return CliRunner().invoke(app, list(words), env=environment)

        assert run("learn", "learn", "iris").exit_code == 0
        for words in ((), ("--learner", "iris")):
            done = run("predict", "predict", str(tmp_path / "x.npy"), *words, "--json")
            assert done.exit_code == 0 and '"learner": "iris"' in done.stdout, done.stderr
            assert run("predict", "evaluate", "iris", *words).exit_code == 0
        photos, weights = paint(tmp_path / "photos"), tmp_path / "weights.pth"
        weights.write_bytes(b"weights")
        sending = run("learn", "learn", str(photos), "--backbone", "resnet18", "--weights", str(weights))
        assert sending.exit_code == 1 and "token for admin" in sending.stderr and "folder of weights" in sending.stderr
        refused = run("predict", "status")
        assert refused.exit_code == 1 and "role admin" in refused.stderr and "--token-file" in refused.stderr
        assert f"chmod o-r {tokens}" in server.log.read_text()


def test_the_process_is_gone_as_soon_as_it_says_that_it_stopped(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sharp_cli", "serve", "--port", "0", "--no-http-enabled"]
    command += ["--data-folder", str(tmp_path / "data"), "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clone_environment()
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "serving" in process.stdout.readline()
        process.terminate()
        assert any(line.rstrip().endswith("stopped") for line in process.stderr)  # reads no further than that line
        # A promise to whoever reads the log; it takes a tenth of that, for nothing but the system's own work is left.
        assert process.wait(timeout=1.0) == 0
