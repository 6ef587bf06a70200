"""Real connections: dropped at random, refused, restarted on the same port, silent, and over TLS."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import socket
import subprocess
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import sharp_client
from sharp.v1 import learning_pb2_grpc
from sharp_client import AsyncClient, Client, Limits, Retry, Timeout, Tls
from sharp_client.testing import FakeServer
from sharp_client.testing._transports import _handlers

_spec = importlib.util.spec_from_file_location("chaos", Path(__file__).with_name("chaos.py"))
assert _spec is not None and _spec.loader is not None
chaos = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(chaos)

QUICK = Retry(initial_delay=0.01, largest_delay=0.05, resume_for=20)
X = np.array([[i % 2, 1.0, -1.0] for i in range(20)], np.float32)
Y = [i % 2 for i in range(20)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_over_a_connection_dropped_at_random_teaches_each_batch_once(seed: int) -> None:
    server = FakeServer()
    with server.serve("127.0.0.1:0") as address, chaos.ChaosProxy(address, seed, drops=5) as proxy:
        with Client(proxy.address, retry=QUICK, limits=Limits(window_batches=4)) as sharp:
            with sharp.learner("digits").learn() as stream:
                for _ in range(60):
                    stream.send(X, Y)
                report = stream.end_episode()
            report.wait(20)
    assert proxy.dropped > 0 and stream.resumptions > 0
    assert [known.count for known in server.learners["digits"].classes.values()] == [600, 600]


@pytest.mark.parametrize("seed", range(2))
def test_an_async_stream_over_a_connection_dropped_at_random_teaches_each_batch_once(seed: int) -> None:
    server = FakeServer()

    async def teach(address: str) -> int:
        async with AsyncClient(address, retry=QUICK, limits=Limits(window_batches=4)) as sharp:
            async with sharp.learner("digits").learn() as stream:
                for _ in range(60):
                    await stream.send(X, Y)
                report = await stream.end_episode()
            await report.wait(20)
            return stream.resumptions

    with server.serve("127.0.0.1:0") as address, chaos.ChaosProxy(address, seed, drops=5) as proxy:
        assert asyncio.run(teach(proxy.address)) > 0
    assert [known.count for known in server.learners["digits"].classes.values()] == [600, 600]


def test_a_server_restarted_on_its_port_continues_the_stream() -> None:
    server, address = FakeServer(), f"127.0.0.1:{free_port()}"
    with Client(address, retry=QUICK) as sharp:
        with server.serve(address):
            stream = sharp.learner("digits").learn()
            stream.send(X, Y)
            stream.flush(5)
        stream.send(X, Y)  # nobody listens
        time.sleep(0.1)
        with server.serve(address):
            stream.end_episode().wait(10)
    assert stream.resumptions >= 1
    assert [known.count for known in server.learners["digits"].classes.values()] == [20, 20]


def test_a_call_is_repeated_until_the_server_is_there() -> None:
    server, address = FakeServer(), f"127.0.0.1:{free_port()}"
    ready, done = threading.Event(), threading.Event()

    def start_late() -> None:
        time.sleep(0.3)
        with server.serve(address):
            ready.set()
            done.wait(10)

    thread = threading.Thread(target=start_late)
    thread.start()
    try:
        with Client(address, retry=Retry(attempts=50, initial_delay=0.05, largest_delay=0.1)) as sharp:
            assert sharp.get_server_status().version == "fake"
    finally:
        done.set()
        thread.join()


def test_no_server_at_all_is_unavailable_after_the_tries() -> None:
    with Client(f"127.0.0.1:{free_port()}", retry=Retry(attempts=2, initial_delay=0.01)) as sharp:
        with pytest.raises(sharp_client.UnavailableError):
            sharp.get_server_status()


class Silent(learning_pb2_grpc.LearningServicer):
    """Takes calls and never answers."""

    def __init__(self) -> None:
        self.calls = 0
        self.end = threading.Event()

    def Learn(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        self.calls += 1
        self.end.wait(10)
        return iter(())

    def Teach(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise NotImplementedError


def test_a_server_that_never_opens_the_stream_is_given_up() -> None:
    silent = Silent()
    with futures.ThreadPoolExecutor(4) as workers:
        server = grpc.server(workers)
        learning_pb2_grpc.add_LearningServicer_to_server(silent, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            with Client(address, timeout=Timeout(connect=0.3)) as sharp:
                started = time.monotonic()
                with pytest.raises(sharp_client.SharpError):
                    sharp.learner("digits").learn()
                assert time.monotonic() - started < 5 and silent.calls >= 1

            async def learn() -> None:
                async with AsyncClient(address, timeout=Timeout(connect=0.3)) as sharp:
                    async with sharp.learner("digits").learn():
                        pass

            with pytest.raises(sharp_client.SharpError):
                asyncio.run(learn())
        finally:
            silent.end.set()
            server.stop(0).wait()


def test_a_deadline_is_kept() -> None:
    class Deaf(FakeServer):
        def unary(self, method: str, request: Any) -> Any:
            time.sleep(0.5)
            return super().unary(method, request)

    with Deaf().serve() as address, Client(address) as sharp:
        with pytest.raises(sharp_client.DeadlineError):
            sharp.get_server_status(timeout=0.1)


def test_tokens_travel_with_every_call_and_are_read_again_from_their_file(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Intercept(grpc.ServerInterceptor):
        def intercept_service(self, continuation: Any, details: Any) -> Any:
            seen.append(dict(details.invocation_metadata).get("authorization"))
            return continuation(details)

    fake = FakeServer()
    token = tmp_path / "token"
    token.write_text("first\n")
    with futures.ThreadPoolExecutor(4) as workers:
        server = grpc.server(workers, interceptors=[Intercept()])
        server.add_generic_rpc_handlers(tuple(_handlers(fake)))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            with Client(address, token_file=token) as sharp:
                sharp.get_server_status()
                token.write_text("second-token\n")
                sharp.get_server_status()
                sharp.learner("digits").learn().close()
        finally:
            server.stop(0).wait()
    assert seen == ["Bearer first", "Bearer second-token", "Bearer second-token"]


def test_a_token_is_not_sent_unencrypted_to_another_machine() -> None:
    with pytest.raises(ValueError, match="unencrypted"):
        Client("sharp.example:50051", token="secret")
    Client("sharp.example:50051", token="secret", insecure=True).close()
    Client("127.0.0.1:1", token="secret").close()


def test_a_refusal_of_the_server_comes_as_its_exception_with_all_it_says() -> None:
    server = FakeServer()
    server.fail_next("Predict", sharp_client.QueueFullError("full", metadata={"limit": "9"}), times=9)
    with server.serve() as address, Client(address, retry=Retry(attempts=2)) as sharp:
        with pytest.raises(sharp_client.QueueFullError) as refused:
            sharp.predict("digits", X)
    error = refused.value
    assert (error.code, error.metadata, error.message) == ("RESOURCE_EXHAUSTED", {"limit": "9"}, "full")
    assert error.retry_delay == pytest.approx(0.01) and error.retryable
    assert sum(method == "Predict" for method, _ in server.calls) == 2


def test_a_message_over_the_limit_of_the_transport_is_a_typed_error() -> None:
    with futures.ThreadPoolExecutor(4) as workers:
        server = grpc.server(workers, options=[("grpc.max_receive_message_length", 1000)])
        server.add_generic_rpc_handlers(tuple(_handlers(FakeServer())))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            with Client(address) as sharp, pytest.raises(sharp_client.MessageTooLargeError):
                sharp.predict("digits", np.zeros((100, 100), np.float32))
        finally:
            server.stop(0).wait()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, and certificates of a server called sharp.test and of a client."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates, and is not here")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=CA", "-days", "2")
    for name in ("server", "client"):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "names").write_text("subjectAltName=DNS:sharp.test")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return folder


@pytest.mark.parametrize("mutual", [False, True])
def test_tls_lets_in_who_trusts_and_is_trusted(mutual: bool, certificates: Path) -> None:
    def read(name: str) -> bytes:
        return (certificates / name).read_bytes()

    pair = [(read("server.key"), read("server.pem"))]
    authority = read("ca.pem") if mutual else None
    credentials = grpc.ssl_server_credentials(pair, authority, mutual)
    names: dict[str, Any] = {"cert_file": certificates / "client.pem", "key_file": certificates / "client.key"}
    own = names if mutual else {}
    trusting = Tls(certificates / "ca.pem", server_name="sharp.test", **own)
    with futures.ThreadPoolExecutor(4) as workers:
        server = grpc.server(workers)
        server.add_generic_rpc_handlers(tuple(_handlers(FakeServer())))
        address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
        server.start()
        try:
            with Client(address, tls=trusting, token="secret") as sharp:
                assert sharp.get_server_status().version == "fake"

            async def ask() -> str:
                async with AsyncClient(address, tls=trusting) as sharp:
                    return (await sharp.get_server_status()).version

            assert asyncio.run(ask()) == "fake"
            # A wrong name, an unknown authority, no TLS at all, and, if asked for, no certificate of our own.
            strangers = [Tls(certificates / "ca.pem", **own), Tls(certificates / "client.pem", **own), None]
            for tls in [*strangers, *([Tls(certificates / "ca.pem", server_name="sharp.test")] if mutual else [])]:
                with Client(address, tls=tls, retry=Retry(attempts=1)) as sharp:
                    with pytest.raises(sharp_client.UnavailableError):
                        sharp.get_server_status(timeout=5)
        finally:
            server.stop(0).wait()


def test_tls_files_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="come together"):
        Tls(cert_file="client.pem")
