"""Stock clients against a real server: `python -m tests.stock_clients.run [--only NAME …] [--work FOLDER]`.

Starts a server, teaches it digits, and lets tritonclient (gRPC and HTTP), grpc-requests and @grpc/grpc-js each predict
some of them.
Each client has an environment of its own in the work folder, made on the first run (which needs pip and npm). Exit code
0 if all give the answers of `sharp_client`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from devtools.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PACKAGES = {
    "tritonclient": ["tritonclient[grpc]"],
    "tritonclient-http": ["tritonclient[http]"],
    "grpc-requests": ["grpc-requests"],
}
SCRIPTS = {
    "tritonclient": "open_inference.py",
    "tritonclient-http": "open_inference_rest.py",
    "grpc-requests": "by_reflection.py",
}
OVER_HTTP = ("tritonclient-http",)
SETTINGS = {"http.enabled": True, "http.port": 0}
NODE_PACKAGES = ["@grpc/grpc-js", "@grpc/proto-loader"]
NAMES = (*PACKAGES, "grpc-js")


def main(arguments: list[str]) -> int:
    """Run the clients and tell how each did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=NAMES, help="run only this client; may be repeated")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "stock_clients", help="where environments go")
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    names = options.only or NAMES
    commands = {name: prepare(name, options.work) for name in names}
    failed = False
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder), SETTINGS).start() as server:
        examples = Path(folder) / "examples.json"
        expected = teach(server.address, examples)
        for name, command in commands.items():
            started = time.monotonic()
            environment = {**os.environ, "NODE_PATH": str(options.work / "node" / "node_modules")}
            address = f"127.0.0.1:{server.http_port}" if name in OVER_HTTP else server.address
            words = [*command, address, "digits", str(examples)]
            if name == "grpc-js":
                words.append(str(ROOT / "proto"))
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment)
            right = done.returncode == 0 and json.loads(done.stdout) == expected
            failed |= not right
            say(f"{'ok  ' if right else 'FAIL'} {name} ({time.monotonic() - started:.1f} s)")
            if not right:
                say(f"  expected {expected}\n  got {done.stdout.strip()}\n{done.stderr.strip()}")
    return int(failed)


def prepare(name: str, work: Path) -> list[str]:
    """Make the environment of a client if it is not there yet, and give the command that runs it."""
    if name == "grpc-js":
        folder = work / "node"
        if not (folder / "node_modules" / "@grpc" / "grpc-js").is_dir():
            folder.mkdir(exist_ok=True)
            say(f"installing {' and '.join(NODE_PACKAGES)}")
            (folder / "package.json").write_text('{"private": true}\n')
            subprocess.run(["npm", "install", "--silent", "--no-audit", *NODE_PACKAGES], cwd=folder, check=True)
        return ["node", str(HERE / "predict.js")]
    folder = work / name
    ready = folder / "ready"
    if not ready.exists():
        say(f"installing {name}")
        venv.create(folder, with_pip=True, clear=True)
        python = str(folder / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES[name]], check=True)
        ready.touch()
    return [str(folder / "bin" / "python"), str(HERE / SCRIPTS[name])]


def teach(address: str, examples: Path) -> list[int]:
    """Teach digits, write some examples to a file, and give their labels as our own client gets them."""
    import numpy as np
    from sklearn.datasets import load_digits

    from sharp_client import Client

    digits = load_digits()
    x = (digits.data / 16).astype(np.float32)
    with Client(address) as sharp:
        learner = sharp.learner("digits")
        with learner.learn() as stream:
            stream.send(x[:600], digits.target[:600])
            report = stream.end_episode()
        report.wait(120)
        examples.write_text(json.dumps(x[600:632].tolist()))
        labels: list[int] = learner.predict(x[600:632]).labels.tolist()
    say(f"taught {len(set(labels))} kinds of digits, version {report.model_version} serves on {address}")
    return labels


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
