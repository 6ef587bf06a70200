"""What one client may take of the server over HTTP: bytes, time, connections."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.server.http.test_api import refused
from tests.server.running import Server

SECONDS = 0.6


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("strict")
    settings = {"http__client_seconds": SECONDS, "http__json_bytes": 2000, "limits__message_bytes": 4 << 20}
    with Server(folder, **settings).start() as server:
        server.create("one")
        yield server


def connected(server: Server, sent: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.http_port), timeout=60)
    connection.sendall(sent)
    return connection


def everything(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    found = b""
    try:
        while part := connection.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


def head(path: str, *headers: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    ("kind", "announced"), [("application/json", 2001), ("multipart/form-data; boundary=b", (4 << 20) + 1)]
)
def test_a_body_that_announces_too_much_is_refused_before_it_is_sent(strict: Server, kind: str, announced: int) -> None:
    sent = head("/api/learners/one/predict", f"Content-Type: {kind}", f"Content-Length: {announced}")
    with connected(strict, sent) as connection:
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 413") and b"BODY_TOO_LARGE" in answer


def test_a_body_that_announces_nothing_is_cut_at_the_limit(strict: Server) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    with httpx.Client(base_url=f"http://127.0.0.1:{strict.http_port}", timeout=60) as http:
        headers = {"content-type": "application/json"}
        refused(http.post("/api/learners", content=parts(), headers=headers), 413, "BODY_TOO_LARGE")


def test_the_json_before_binary_data_is_bounded_too(strict: Server) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{strict.http_port}", timeout=60) as http:
        headers = {"inference-header-content-length": "3000", "content-type": "application/octet-stream"}
        answer = http.post("/v2/models/one/infer", content=b" " * 4000, headers=headers)
        refused(answer, 413, "BODY_TOO_LARGE")


def test_slow_clients_are_cut_off(strict: Server) -> None:
    silent = connected(strict, b"")
    slow_head = connected(strict, b"GET /healthz HTTP/1.1\r\n")
    json_head = head("/api/learners/one/predict", "Content-Type: application/json", "Content-Length: 1000")
    slow_body = connected(strict, json_head + b"{")
    begun = time.monotonic()
    for _ in range(20):  # a byte now and then does not help
        for connection in (slow_head, slow_body):
            try:
                connection.sendall(b"x")
            except OSError:
                break
        time.sleep(0.1)
    assert everything(silent) == everything(slow_head) == b""
    answer = everything(slow_body)
    for connection in (silent, slow_head, slow_body):
        connection.close()
    assert answer.startswith(b"HTTP/1.1 408") and b"BODY_TOO_SLOW" in answer
    assert time.monotonic() - begun < 30


def test_who_does_not_read_is_cut_off(strict: Server) -> None:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", strict.http_port))
    asked = head("/openapi.json", method="GET")
    deadline = time.monotonic() + 60
    with connection, pytest.raises(OSError):
        connection.settimeout(5)
        while time.monotonic() < deadline:  # answers pile up: none of them is taken
            connection.sendall(asked)
            time.sleep(0.01)
    assert httpx.get(f"http://127.0.0.1:{strict.http_port}/healthz", timeout=60).status_code == 200


def test_a_head_without_end_is_refused(strict: Server) -> None:
    with connected(strict, b"GET / HTTP/1.1\r\nHost: localhost\r\n") as connection:
        try:
            for i in range(2000):
                connection.sendall(f"X-{i}: {'x' * 100}\r\n".encode())
        except OSError:
            pass
        answer = everything(connection)  # ends, though the head never does
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")


@pytest.fixture
def narrow(lend: Callable[..., Server]) -> Server:
    return lend(http__connections=4, limits__streams=1)


def test_more_connections_than_there_may_be_are_refused(narrow: Server) -> None:
    address = f"http://127.0.0.1:{narrow.http_port}/healthz"
    idle = [connected(narrow, b"") for _ in range(6)]
    try:
        assert httpx.get(address, timeout=60).status_code == 503
        more = [connected(narrow, b"") for _ in range(6)]
        assert any(everything(connection) == b"" for connection in more[-2:])
    finally:
        for connection in [*idle, *more]:
            connection.close()
    deadline = time.monotonic() + 60
    while httpx.get(address, timeout=60).status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_streams_over_http_count_with_those_over_grpc(narrow: Server) -> None:
    narrow.create("one")
    address = f"http://127.0.0.1:{narrow.http_port}"
    with narrow.stream("one"):
        refused(httpx.get(f"{address}/api/events", timeout=60), 429, "TOO_MANY_STREAMS")
