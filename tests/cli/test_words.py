"""What a command says when something is in the way: the address, the file, the option that helps."""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

import sharp_client
from devtools.certificates import DAY, NOW, Authority, Pair
from sharp.v1 import snapshot_pb2
from sharp_cli.main import app
from sharp_cli.watch_view import WatchView
from sharp_client import (
    Backlog,
    EpisodeClosed,
    EpisodeEvent,
    LayerStatistics,
    LearnerStatus,
    LearnerUpdate,
    MemoryStatistics,
    Progress,
    RankCount,
    read_address,
)
from sharp_client._snapshot_files import SnapshotReceiver
from sharp_client.testing import FakeServer

Sharp = Any


@pytest.mark.parametrize(
    ("given_", "target"),
    [
        ("localhost", "localhost:50051"),
        (" example.org:6000 ", "example.org:6000"),
        ("::1", "[::1]:50051"),
        ("[::1]", "[::1]:50051"),
        ("[::1]:7", "[::1]:7"),
        ("http://localhost", "localhost:50051"),
        ("http://localhost:7/", "localhost:7"),
        ("unix:/run/sharp.sock", "unix:/run/sharp.sock"),
        ("dns:///example.org:7", "dns:///example.org:7"),
    ],
)
def test_an_address_is_read_as_people_write_it(given_: str, target: str) -> None:
    assert read_address(given_) == sharp_client.Address(target)


def test_https_asks_for_tls() -> None:
    assert read_address("https://example.org") == sharp_client.Address("example.org:50051", tls=True)


@pytest.mark.parametrize(
    "wrong", ["", " ", "ftp://a", "http://a/b", "a:b", "a:0", "a:99999", ":7", "http://", "a b:7", "me@host:7", "[]:7"]
)
def test_what_is_no_address_is_refused_with_words(wrong: str, sharp: Sharp) -> None:
    with pytest.raises(ValueError, match="no address of a server: give host:port"):
        read_address(wrong)
    if wrong.strip():
        done = sharp("status", "--address", wrong)
        assert done.code == 1 and "no address of a server" in done.err and done.err.count("\n") == 1


@given(st.text(max_size=30))
def test_no_address_breaks_the_reader(text: str) -> None:
    try:
        assert read_address(text).target
    except ValueError as error:
        assert "no address" in str(error)


def test_the_address_that_was_tried_is_named(sharp: Sharp) -> None:
    done = sharp("status", address="localhost:1")
    assert "at localhost:1 (connection refused)" in done.err and "--address" in done.err


def test_an_http_address_reaches_the_server(sharp: Sharp) -> None:
    runner = CliRunner()
    with FakeServer().serve() as address:
        assert runner.invoke(app, ["status", "--address", f"http://{address}"]).exit_code == 0


# ---- TLS ------------------------------------------------------------------------------------------------------------


@contextmanager
def tls_server(pair: Pair) -> Iterator[str]:
    """A server that speaks TLS and nothing else."""
    server = grpc.server(ThreadPoolExecutor(1))
    credentials = grpc.ssl_server_credentials([(pair.key, pair.certificate)])
    port = server.add_secure_port("localhost:0", credentials)
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(None).wait()


def said(*words: str) -> str:
    done = CliRunner().invoke(app, ["status", "--timeout", "5", *words])
    assert done.exit_code == 1 and done.stderr.count("\n") == 1
    return done.stderr


def test_a_certificate_of_an_unknown_authority_is_said_to_be_so(tmp_path: Path) -> None:
    known, other = Authority("known"), Authority("other")
    (tmp_path / "other.pem").write_bytes(other.certificate)
    with tls_server(known.vouch("server")) as address:
        text = said("-a", address, "--ca-file", str(tmp_path / "other.pem"))
    assert f"certificate of {address} is from an authority that is not known here" in text and "--ca-file" in text


def test_a_certificate_that_is_too_old_or_for_another_name_is_said_to_be_so(tmp_path: Path) -> None:
    authority = Authority("known")
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    with tls_server(authority.vouch("server", NOW - DAY)) as address:
        assert "has expired" in said("-a", address, "--ca-file", str(tmp_path / "ca.pem"))
    with tls_server(authority.vouch("server")) as address:
        text = said("-a", address, "--ca-file", str(tmp_path / "ca.pem"), "--server-name", "elsewhere")
        assert "is for another name" in text and "--server-name" in text


def test_tls_with_a_server_that_has_none_is_said_to_be_so(tmp_path: Path) -> None:
    with FakeServer().serve() as address:
        assert f"{address} does not speak TLS" in said("-a", address, "--tls")


# ---- options that help ----------------------------------------------------------------------------------------------


@pytest.fixture
def taught(sharp: Sharp) -> Sharp:
    """A server that knows iris."""
    assert sharp("learn", "iris", "--json").code == 0
    return sharp


def test_forgetting_asks_first(taught: Sharp, server: FakeServer) -> None:
    refused = taught("class", "forget", "setosa", input="n\n")
    assert refused.code == 1 and "Make iris forget setosa" in refused.err and "nothing was changed" in refused.err
    alone = taught("class", "forget", "setosa")
    assert alone.code == 1 and "--yes" in alone.err and "setosa" in server.learners["iris"].classes
    assert taught("class", "forget", "setosa", input="y\n").code == 0
    assert "setosa" not in server.learners["iris"].classes
    assert taught("learner", "delete", "iris").code == 1 and "iris" in server.learners


def test_a_restore_that_leaves_a_class_out_names_the_option(taught: Sharp, server: FakeServer) -> None:
    made = taught("snapshot", "create", "--json").json()["id"]
    taught("class", "forget", "setosa", "--yes")
    left_out = taught("snapshot", "restore", made)
    assert "setosa was forgotten since" in left_out.out and "--include-forgotten" in left_out.out
    assert taught("snapshot", "restore", made, "--include-forgotten").code == 0
    assert "setosa" in server.learners["iris"].classes


def test_exporting_keeps_a_file_that_is_there_unless_told_otherwise(taught: Sharp, tmp_path: Path) -> None:
    file = tmp_path / "iris.safetensors"
    file.write_text("mine")
    done = taught("snapshot", "export", str(file))
    assert done.code == 1 and "there already" in done.err and "--overwrite" in done.err and file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]
    assert taught("snapshot", "export", str(file), "--overwrite").code == 0 and file.stat().st_size > 100


def test_a_file_that_appears_during_an_export_stays(tmp_path: Path) -> None:
    content = b"a snapshot"
    snapshot = snapshot_pb2.Snapshot(size_bytes=len(content), sha256=hashlib.sha256(content).digest())
    with SnapshotReceiver(tmp_path / "file") as receiver:
        receiver.receive(snapshot_pb2.ExportSnapshotResponse(snapshot=snapshot))
        receiver.receive(snapshot_pb2.ExportSnapshotResponse(chunk=content))
        (tmp_path / "file").write_text("mine")
        with pytest.raises(FileExistsError):
            receiver.finish()
    assert (tmp_path / "file").read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("error", "option"),
    [
        (sharp_client.BackboneNeededError("images of 99×99 need a backbone"), "--set"),
        (sharp_client.ConfigInvalidError("training.phases: too many"), "--set"),
        (sharp_client.TokenMissingError("no token"), "--token-file"),
        (sharp_client.RoleMissingError("the call needs a token of the role admin"), "--token-file"),
    ],
)
def test_a_refusal_names_the_option_that_helps(
    error: sharp_client.SharpError, option: str, sharp: Sharp, server: FakeServer
) -> None:
    server.fail_next("GetServerStatus", error)
    done = sharp("status")
    assert done.code == 1 and error.message in done.err and option in done.err and done.err.count("\n") == 1


def test_a_broken_snapshot_is_named_with_what_is_wrong(sharp: Sharp, tmp_path: Path) -> None:
    for name, content in (("text.safetensors", b"not a snapshot"), ("empty.safetensors", b"")):
        (tmp_path / name).write_bytes(content)
        done = sharp("snapshot", "import", str(tmp_path / name), "-l", "new")
        assert done.code == 1 and done.err.count(str(tmp_path / name)) == 1 and done.err.count("\n") == 1


def test_a_token_file_that_everybody_can_read_is_warned_about(
    sharp: Sharp, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    for mode, warned in ((0o600, False), (0o640, False), (0o644, True)):
        caplog.clear()
        file.chmod(mode)
        with caplog.at_level(logging.WARNING, "sharp_client"):
            sharp_client.Client("localhost:1", token_file=file).close()
        assert [f"chmod o-r {file}" in record.message for record in caplog.records] == [True] * warned
    assert "secret" not in caplog.text


def test_a_second_episode_has_the_learners_number(taught: Sharp) -> None:
    second = taught("learn", "iris")
    assert "✓ episode 2: learned" in second.out
    assert taught("learn", "iris", "--json").lines()[0]["episode"] == 3


def test_a_failed_first_batch_leaves_no_learner(sharp: Sharp, server: FakeServer, tmp_path: Path) -> None:
    np.savez(tmp_path / "photos.npz", x=np.full((4, 3, 8, 8), 200, np.float32), y=np.array([0, 0, 1, 1]))
    done = sharp("learn", str(tmp_path / "photos.npz"))
    assert done.code == 1 and "scaled" in done.err and not server.learners


# ---- watch ----------------------------------------------------------------------------------------------------------


def status(layers: int) -> LearnerStatus:
    ranks = (RankCount(rank=0, units=40), RankCount(rank=1, units=60))
    made = tuple(LayerStatistics(name=f"F{i}-linear", units=100, idle=40, ranks=ranks) for i in range(layers))
    return LearnerStatus(
        state="training",
        model_version=123,
        episodes_learned=45,
        layers=made,
        memories=MemoryStatistics(classes=77, stm_bytes=10**6, stm_bytes_limit=10**7, ltm_bytes=3 * 10**7),
        backlog=Backlog(bytes=5 * 10**8, bytes_limit=10**9, episodes_waiting=3, episodes_parked=2, lag_examples=9999),
        training_episode=46,
        progress=Progress(phase=2, phases=3, epoch=1, epochs=2, fraction=0.5, loss=1.25, time_left=61.0),
    )


@given(layers=st.integers(0, 12), events=st.integers(0, 6), width=st.integers(60, 120), height=st.integers(16, 50))
def test_a_watched_learner_fits_its_terminal_and_keeps_what_matters(
    layers: int, events: int, width: int, height: int
) -> None:
    view = WatchView("digits")
    happened = [EpisodeEvent(episode=i, closed=EpisodeClosed(closed_by="mark", examples=10)) for i in range(events)]
    view.update(LearnerUpdate(status=status(layers), events=tuple(happened)))
    console = Console(
        width=width, height=height, record=True, force_terminal=True, color_system=None, file=io.StringIO()
    )
    console.print(view.render(width, height))
    lines = console.export_text().splitlines()
    assert len(lines) < height and max(map(len, lines)) <= width
    shown = "\n".join(lines)
    for word in ("training", "version 123", "classes 77", "episode 46", "3 waiting", "2 parked", "9,999 examples",
                 "examples/s"):  # fmt: skip
        assert word in shown, word
    if height >= 24:
        assert not events or f"episode {events - 1} closed" in shown
        assert not layers or f"F{layers - 1}-linear" in shown
