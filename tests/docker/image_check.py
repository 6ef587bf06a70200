"""`make image-check`: builds the image and shows, with containers of it, that it keeps its promises.

Needs root, Debian's buildah, debootstrap, podman and runc, 20 GB of disk and some minutes, so it is no part of
`make test`. The recipes of docs/operations.md are run here with the same commands as there.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.docker.image import ROOT, Container, Machine, Unfit, inspect

CPU, NEXT, CUDA = (f"localhost/sharp-serve:{tag}" for tag in ("cpu", "next", "cuda"))
TOKENS = "/run/secrets/sharp_tokens"
LEAST_ACCURACY = 0.8
NEXT_VERSION = "99.0"


def main(words: list[str]) -> int:
    """Build, check, report."""
    parser = argparse.ArgumentParser(prog="make image-check", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/sharp-image"), help="where images are kept")
    parser.add_argument("--storage-driver", default="overlay", help="overlay, or vfs where the kernel has no overlay")
    options = parser.parse_args(words)
    try:
        machine = Machine(options.folder, options.storage_driver)
    except Unfit as unfit:
        sys.stderr.write(f"{unfit}\n")
        return 2
    begun = time.monotonic()
    machine.make_stand_in()
    machine.build(CPU)
    machine.build(NEXT, _next_version(options.folder / "next"))
    machine.build(CUDA, VARIANT="cuda")
    _say(begun, "the image was built: CPU, CUDA, and a next version of it")
    machine.remove("sharp-check")
    checks = Checks(machine)
    for check in (
        checks.the_image_says_how_it_wants_to_be_run,
        checks.without_tokens_it_refuses_and_says_what_to_do,
        checks.without_a_gpu_the_cuda_variant_refuses,
        checks.it_starts_and_passes_its_health_check,
        checks.it_is_not_root_and_writes_nowhere_but_to_its_volume,
        checks.tokens_are_asked_for,
        checks.it_learns_digits,
        checks.what_it_learned_and_what_it_was_sent_survives_a_kill,
        checks.a_back_up_is_restored_into_a_new_container,
        checks.an_upgrade_keeps_everything_and_so_does_the_way_back,
        checks.sigterm_drains,
    ):
        _run(check)
    machine.remove("sharp-check")
    return 0


class Checks:
    """The promises, in the order in which they are looked at; each raises an AssertionError where it does not hold."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.exchange = machine.folder / "exchange"
        self._prepare_exchange()
        self.server = self._container("sharp-check", CPU, "sharp-check-data")
        self.before: Any = None

    def _prepare_exchange(self) -> None:
        """A folder that containers share with the machine: data, tokens, and what stands for a mounted bucket."""
        import numpy as np
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        self.exchange.mkdir(exist_ok=True)
        np.savez(self.exchange / "digits.npz", x=(x / 16).astype(np.float32), y=y)
        np.savez(self.exchange / "more.npz", x=(x / 16).astype(np.float32), y=y)
        tokens = {role: secrets.token_hex(24) for role in ("predict", "learn", "admin")}
        (self.exchange / "tokens").write_text("".join(f"{role}:{token}\n" for role, token in tokens.items()))
        for role, token in tokens.items():
            (self.exchange / role).write_text(token + "\n")
        bucket = self.exchange / "bucket"
        bucket.mkdir(exist_ok=True)
        bucket.chmod(0o777)

    def _container(self, name: str, image: str, volume: str, tokens: bool = True) -> Container:
        mounts = [f"{self.exchange}:/exchange"]
        if not tokens:
            return Container(self.machine, name, image, volume, *mounts)
        mounts.append(f"{self.exchange / 'tokens'}:{TOKENS}:ro")
        return Container(self.machine, name, image, volume, *mounts, SHARP_TRUST_TOKEN_FILE=TOKENS)

    def _evaluated(self, server: Container, learner: str = "digits") -> Any:
        words = ("evaluate", "/exchange/digits.npz", "--learner", learner, "--part", "test", "--json")
        answer = json.loads(server.sharp(*words, token="/exchange/predict"))
        return {key: answer[key] for key in ("accuracy", "per_class", "confusion")}

    def the_image_says_how_it_wants_to_be_run(self) -> str:
        """User, volume, ports, signal, health check, labels."""
        image = inspect(self.machine, CPU)
        config = image["Config"]
        assert config["User"] == "10001:10001" and list(config["Volumes"]) == ["/var/lib/sharp"]
        assert config["Entrypoint"] == ["sharp"] and config["Cmd"] == ["serve"]
        assert config["StopSignal"] in ("SIGTERM", "15") and set(config["ExposedPorts"]) == {"50051/tcp", "9464/tcp"}
        assert image["Healthcheck"]["Test"] == ["CMD", "sharp", "health"]
        assert image["Labels"]["org.opencontainers.image.licenses"] == "MIT"
        return f"{image['Size'] / 1e9:.1f} GB"

    def without_tokens_it_refuses_and_says_what_to_do(self) -> str:
        """The default must not let everybody in."""
        code, said = self._container("sharp-check-open", CPU, "sharp-check-open", tokens=False).run_to_its_end()
        assert code == 2 and "SHARP_TRUST_TOKEN_FILE" in said and "SHARP_TRUST_INSECURE" in said, said
        return said.strip()

    def without_a_gpu_the_cuda_variant_refuses(self) -> str:
        """It neither falls back unseen nor takes its snapshots for damaged."""
        code, said = self._container("sharp-check-cuda", CUDA, "sharp-check-cuda").run_to_its_end()
        assert code == 1 and "predictor.device" in said and "cuda" in said, said
        return str(json.loads(said.splitlines()[-1])["message"])

    def it_starts_and_passes_its_health_check(self) -> str:
        """The engine runs the image's own health check."""
        begun = time.monotonic()
        self.server.start()
        took = time.monotonic() - begun
        begun = time.monotonic()
        self.machine.podman("healthcheck", "run", self.server.name)
        return f"healthy after {took:.1f} s, a health check takes {time.monotonic() - begun:.1f} s"

    def it_is_not_root_and_writes_nowhere_but_to_its_volume(self) -> str:
        """Every process has the image's user; the root file system is read-only."""
        processes = self.server.processes()
        assert len(processes) >= 2 and {user for user, _ in processes} == {"10001"}, processes
        for folder in ("/", "/etc", "/opt/sharp", "/usr"):
            assert self.server.run("touch", f"{folder}/written").returncode, folder
        for folder in ("/var/lib/sharp", "/tmp"):
            assert self.server.run("touch", f"{folder}/written").returncode == 0, folder
        return f"{len(processes)} processes of user 10001"

    def tokens_are_asked_for(self) -> str:
        """Without a token nobody gets in, and a token counts for its role only."""
        refused = self.server.run("sharp", "status")
        assert refused.returncode == 1 and "token" in refused.stderr, refused
        refused = self.server.run("sharp", "--token-file", "/exchange/predict", "status")
        assert refused.returncode == 1 and "admin" in refused.stderr, refused
        assert json.loads(self.server.sharp("status", "--json", token="/exchange/admin"))["state"] == "serving"
        return "by role"

    def it_learns_digits(self) -> str:
        """Five episodes of two classes each, through the command line."""
        begun = time.monotonic()
        words = ("learn", "/exchange/digits.npz", "--part", "train", "--classes-per-episode", "2", "--json")
        learned = [json.loads(line) for line in self.server.sharp(*words, token="/exchange/learn").splitlines()]
        assert [entry["state"] for entry in learned[:-1]] == ["learned"] * 5, learned
        self.before = self._evaluated(self.server)
        assert self.before["accuracy"] >= LEAST_ACCURACY, self.before
        took = time.monotonic() - begun
        return f"{self.before['accuracy']:.1%} right on held-out digits of all ten classes after {took:.0f} s"

    def what_it_learned_and_what_it_was_sent_survives_a_kill(self) -> str:
        """Killed while it learns: predictions are as before, and what was acknowledged is learned all the same."""
        words = ("learn", "/exchange/more.npz", "--classes-per-episode", "5", "--no-wait", "--json")
        sent = json.loads(self.server.sharp(*words, token="/exchange/learn").splitlines()[-1])
        self.server.kill()
        assert self.server.state("ExitCode") == "137"
        self.server.start()
        assert self._evaluated(self.server) == self.before
        shown = self._wait_for_episodes("more", 2)
        assert shown["status"]["backlog"]["episodes_parked"] == 0
        return f"{sent['examples_durable']} examples were sent before, and learned after"

    def _wait_for_episodes(self, learner: str, episodes: int) -> Any:
        deadline = time.monotonic() + 600
        while True:
            shown = json.loads(self.server.sharp("learners", "show", learner, "--json", token="/exchange/admin"))
            if shown["status"]["episodes_learned"] == episodes:
                return shown
            assert time.monotonic() < deadline, shown
            time.sleep(1)

    def _wait_until_it_trains(self) -> None:
        deadline = time.monotonic() + 120
        while not json.loads(self.server.sharp("status", "--json", token="/exchange/admin"))["trainer"]["learner"]:
            assert time.monotonic() < deadline, self.server.logs()
            time.sleep(0.2)

    def a_back_up_is_restored_into_a_new_container(self) -> str:
        """Exported to a mounted folder, imported by a container with an empty volume."""
        file = "/exchange/bucket/digits.safetensors"
        self.server.sharp("snapshot", "export", file, "--learner", "digits", token="/exchange/admin")
        other = self._container("sharp-check-other", CPU, "sharp-check-other-data")
        other.start()
        other.sharp("snapshot", "import", file, "--learner", "digits", token="/exchange/admin")
        assert self._evaluated(other) == self.before
        assert other.stop() == 0
        return f"{(self.exchange / 'bucket' / 'digits.safetensors').stat().st_size / 1e6:.1f} MB"

    def an_upgrade_keeps_everything_and_so_does_the_way_back(self) -> str:
        """The next image on the same volume, then this one again."""
        said = []
        for image in (NEXT, CPU):
            assert self.server.stop() == 0
            self.machine.podman("rm", self.server.name)
            self.server = self._container("sharp-check", image, "sharp-check-data")
            self.server.start()
            assert self._evaluated(self.server) == self.before
            status = json.loads(self.server.sharp("status", "--json", token="/exchange/admin"))
            assert status["version"] == inspect(self.machine, image)["Labels"]["org.opencontainers.image.version"]
            said.append(status["version"])
        assert said[0] == NEXT_VERSION != said[1], said
        return " and back to ".join(said)

    def sigterm_drains(self) -> str:
        """In the middle of an episode: it ends by itself, with 0, and the next start goes on."""
        words = ("learn", "/exchange/more.npz", "--learner", "more", "--classes-per-episode", "2", "--no-wait")
        self.server.sharp(*words, token="/exchange/learn")
        self._wait_until_it_trains()
        begun = time.monotonic()
        assert self.server.stop() == 0, self.server.logs()
        took = time.monotonic() - begun
        said = [json.loads(line)["message"] for line in self.server.logs().splitlines() if line.startswith("{")]
        assert "stopped" in said and any(message.startswith("stopping") for message in said), said
        self.server.start()
        self._wait_for_episodes("more", 7)
        assert self.server.stop() == 0
        return f"after {took:.1f} s, and the episode went on after it"


def _next_version(folder: Path) -> Path:
    """A copy of the sources under another version: what an upgrade brings."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns(
        ".*", "__pycache__", "tests", "benchmarks", "reliability", "devtools", "demo", "docs"
    )
    shutil.copytree(ROOT, folder, ignore=ignored)
    shutil.copy(ROOT / ".dockerignore", folder)
    for name, before, after in (
        ("pyproject.toml", r'^version = ".*"$', f'version = "{NEXT_VERSION}"'),
        ("docker/Dockerfile", r"^ARG VERSION=.*$", f"ARG VERSION={NEXT_VERSION}"),
    ):
        text, found = re.subn(before, after, (folder / name).read_text(), flags=re.MULTILINE)
        assert found == 1, f"{name} has no version"
        (folder / name).write_text(text)
    return folder


def _run(check: Callable[[], str]) -> None:
    begun = time.monotonic()
    said = check()
    _say(begun, f"{check.__name__.replace('_', ' ')}: {said}")


def _say(begun: float, text: str) -> None:
    sys.stdout.write(f"ok {time.monotonic() - begun:6.1f} s  {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
