"""Options are checked when they are made, progress is shown with and without rich, and nothing heavy is imported."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharp_client import Limits, Retry, Timeout
from sharp_client._options import Token, is_loopback
from sharp_client.testing import FakeServer


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Timeout, {"call": 0}),
        (Timeout, {"acknowledge": -1}),
        (Timeout, {"connect": None}),
        (Retry, {"attempts": 0}),
        (Retry, {"initial_delay": "soon"}),
        (Limits, {"window_batches": 0}),
        (Limits, {"message_bytes": True}),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_name_and_value(kind: Any, options: dict[str, Any]) -> None:
    name, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=rf"{kind.__name__}\.{name} must be over 0, not {value!r}"):
        kind(**options)


def test_delays_grow_up_to_their_bound_and_never_undercut_the_server() -> None:
    retry = Retry(initial_delay=0.1, multiplier=2, largest_delay=1)
    delays = [retry.delay(failures) for failures in range(1, 10)]
    assert all(0.9 * 0.1 * 2**i <= delay <= 0.1 * 2**i for i, delay in enumerate(delays[:4]))
    assert max(delays) <= 1 and retry.delay(1, asked=7) == 7


def test_a_token_file_must_hold_one_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("two words")
    with pytest.raises(ValueError, match="one token"):
        Token(file=file)
    file.write_text("one")
    token = Token(file=file)
    file.unlink()
    assert token.metadata() == (("authorization", "Bearer one"),)  # it may be about to be replaced
    with pytest.raises(ValueError, match="not both"):
        Token("token", file)
    with pytest.raises(ValueError, match="empty"):
        Token(" ")


@pytest.mark.parametrize(
    ("address", "local"),
    [("localhost:1", True), ("127.0.0.1:1", True), ("[::1]:1", True), ("unix:/tmp/s", True), ("10.0.0.1:1", False)],
)
def test_addresses_on_this_machine_are_known(address: str, local: bool) -> None:
    assert is_loopback(address) == local


@pytest.mark.parametrize("with_rich", [True, False])
def test_waiting_shows_progress_with_rich_and_log_lines_without(
    with_rich: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not with_rich:
        monkeypatch.setitem(sys.modules, "rich.progress", None)
    caplog.set_level(logging.INFO, "sharp_client")
    with FakeServer().client() as sharp, sharp.learner("digits").learn() as stream:
        stream.send(np.ones((4, 2), np.float32), [1, 1, 2, 2])
        stream.end_episode().wait(5, progress=True)
    if with_rich:
        assert "episode 1 · learned · version 1" in capsys.readouterr().err
    else:
        assert "episode 1 · learned · version 1 (100 %)" in caplog.text


def test_the_client_works_with_everything_heavy_absent() -> None:
    program = """
        import sys

        class Blocker:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in {"torch", "torchvision", "PIL", "rich", "typer", "sklearn", "sharp_engine",
                                              "sharp_server", "safetensors", "grpc_status", "grpc_health"}:
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
                if name.startswith("google.rpc"):
                    raise ModuleNotFoundError(name)

        sys.meta_path.insert(0, Blocker())
        import numpy as np
        from sharp_client import AsyncClient, Client
        from sharp_client.testing import FakeServer

        x = np.array([[0.0, 1.0], [0.1, 1.0], [5.0, 0.0], [5.1, 0.0]])
        server = FakeServer()
        with server.serve() as address, Client(address) as sharp:
            with sharp.learner("d").learn() as stream:
                stream.send(x, ["a", "a", "b", "b"])
                stream.end_episode().wait(5, progress=True)
            assert sharp.learner("d").predict(x).labels.tolist() == ["a", "a", "b", "b"]
        assert "torch" not in sys.modules
    """
    path = [str(Path(__file__).parents[2] / folder) for folder in ("client", "proto")]
    program = f"import sys; sys.path[:0] = {path!r}\n" + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_client_imports_nothing_but_its_dependencies() -> None:
    path = [str(Path(__file__).parents[2] / folder) for folder in ("client", "proto")]
    program = (
        f"import sys; sys.path[:0] = {path!r}; import grpc.aio, numpy, google.protobuf; before = set(sys.modules); "
        "import sharp_client.testing; "
        "known = set(sys.stdlib_module_names) | {'sharp', 'sharp_client', 'grpc', 'numpy', 'google', '_cython_'}; "
        "print(sorted(m for m in set(sys.modules) - before if m.partition('.')[0] not in known))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_a_program_may_end_while_its_episodes_are_still_being_learned() -> None:
    program = """
        import threading, time
        import numpy as np
        from sharp_client import Client
        from sharp_client.testing import FakeServer

        class Slow(FakeServer):
            def handler(self, method):
                handle = super().handler(method)
                def slow(request):
                    answers = handle(request)
                    # Episodes are closed, and never learned.
                    return [a for a in answers if not a.HasField("event") or a.event.HasField("closed")]
                return slow

        server = Slow().serve()
        address = server.__enter__()
        sharp = Client(address)
        with sharp.learner("d").learn() as stream:
            stream.send(np.ones((4, 2), np.float32), [1, 1, 2, 2])
            report = stream.end_episode()
        assert not report.finished
        server.__exit__(None, None, None)
    """
    path = [str(Path(__file__).parents[2] / folder) for folder in ("client", "proto")]
    program = f"import sys; sys.path[:0] = {path!r}\n" + textwrap.dedent(program)
    quiet = {**os.environ, "GRPC_VERBOSITY": "ERROR"}  # gRPC itself logs that the server goes away
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, env=quiet)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
