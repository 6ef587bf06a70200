"""Nobody in over HTTP without being let in: every route and every token, origins, names, TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from devtools.certificates import Authority
from tests.server.http.test_api import refused
from tests.server.running import Server

TOKENS = {"predict": "p-secret", "learn": "l-secret", "admin": "a-secret"}
OPEN = ("/v2/health/live", "/v2/health/ready", "/api/access")


def wanted(path: str) -> str | None:
    """The role that a route needs, written down once more: a new one has to be put here on purpose."""
    if path in OPEN:
        return None
    if path.startswith("/v2") or "/predict" in path:
        return "predict"
    return "learn" if "/teach" in path else "admin"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "tokens").write_text("\n".join(f"{role}:{token}" for role, token in TOKENS.items()) + "\n")
    with Server(folder / "server", trust__token_file=folder / "tokens").start() as server:
        yield server


@pytest.fixture
def http(guarded: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{guarded.http_port}", timeout=60) as client:
        yield client


def operations(http: httpx.Client) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in http.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def outcome(http: httpx.Client, method: str, path: str, token: str | None) -> str:
    """The reason of a refusal, or "in": the request was let in, whatever became of it."""
    address = path.replace("{episode}", "1").replace("{name}", "nobody").replace("{", "").replace("}", "")
    headers = {"authorization": f"Bearer {token}"} if token is not None else {}
    with http.stream(method.upper(), address, headers=headers) as answer:
        assert answer.status_code < 500
        if answer.status_code not in (401, 403):
            return "in"
        answer.read()
        assert (answer.status_code == 401) == ("www-authenticate" in answer.headers)
        return str(answer.json()["reason"])


def test_every_route_lets_in_its_own_role_and_nobody_else(http: httpx.Client) -> None:
    tokens = {"no token": None, "a wrong one": "wrong", **TOKENS}
    found, right = {}, {}
    for method, path, operation in operations(http):
        role = wanted(path)
        assert operation["x-role"] == role and ("security" in operation) == (role is not None)
        for name, token in tokens.items():
            found[method, path, name] = outcome(http, method, path, token)
            refusal = {"no token": "TOKEN_MISSING", "a wrong one": "TOKEN_INVALID"}.get(name, "ROLE_MISSING")
            right[method, path, name] = "in" if role is None or name == role else refusal
    assert found == right and len(found) >= 140


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/metrics", "/healthz"])
def test_what_holds_no_secret_needs_no_token(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 200


def test_a_stranger_is_refused_before_the_body_has_come(guarded: Server) -> None:
    for path in ("/api/learners", "/api/learners/a/predict/images", "/v2/models/a/infer"):
        with socket.create_connection(("127.0.0.1", guarded.http_port), timeout=60) as connection:
            host = f"127.0.0.1:{guarded.http_port}"
            connection.sendall(f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\n{{".encode())
            assert connection.recv(4096).startswith(b"HTTP/1.1 401")


def test_access_tells_which_roles_a_token_has(http: httpx.Client) -> None:
    assert http.get("/api/access").json() | {"version": ""} == {"version": "", "token_needed": True, "roles": []}
    headers = {"authorization": "Bearer l-secret"}
    assert http.get("/api/access", headers=headers).json()["roles"] == ["learn"]


# ---- browsers ---------------------------------------------------------------------------------------------------


def test_pages_of_another_site_may_not_ask(shared: Server) -> None:
    address = f"127.0.0.1:{shared.http_port}"
    with httpx.Client(base_url=f"http://{address}", timeout=60) as http:
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            refused(http.get("/api/learners", headers={"origin": origin}), 403, "ORIGIN_REFUSED")
        answer = http.get("/api/learners", headers={"origin": f"http://{address}"})
        assert answer.status_code == 200 and "access-control-allow-origin" not in answer.headers
        for host in ("evil.example", "evil.example:80", ""):
            refused(http.get("/api/learners", headers={"host": host}), 403, "ORIGIN_REFUSED")
        for host in ("localhost", f"localhost:{shared.http_port}", "[::1]:9464"):
            assert http.get("/api/learners", headers={"host": host}).status_code == 200


def test_named_origins_may_ask(serve: Callable[..., Server]) -> None:
    server = serve(http__cors_origins="https://labels.example, http://localhost:8000")
    with httpx.Client(base_url=f"http://127.0.0.1:{server.http_port}", timeout=60) as http:
        origin = {"origin": "https://labels.example"}
        answer = http.get("/api/learners", headers=origin)
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == origin["origin"]
        asked = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        assert http.options("/api/learners", headers=asked).status_code == 200
        refused(http.get("/api/learners", headers={"origin": "https://other.example"}), 403, "ORIGIN_REFUSED")


def test_every_answer_forbids_what_a_page_does_not_need(shared: Server) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{shared.http_port}", timeout=60) as http:
        for path in ("/", "/api/learners", "/nothing", "/metrics"):
            headers = http.get(path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
            assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-resource-policy"] == "same-origin" and "server" not in headers
        assert http.get("/api/learners").headers["cache-control"] == "no-store"


# ---- TLS --------------------------------------------------------------------------------------------------------


def test_http_has_tls_where_grpc_has_it(serve: Callable[..., Server], tmp_path: Path) -> None:
    ours, other = Authority("ours"), Authority("other")
    for name, pair in (("server", ours.vouch("server")), ("client", ours.vouch("client")), ("x", other.vouch("x"))):
        (tmp_path / f"{name}.pem").write_bytes(pair.certificate)
        (tmp_path / f"{name}.key").write_bytes(pair.key)
    (tmp_path / "ca.pem").write_bytes(ours.certificate)
    files = {"trust__certificate": tmp_path / "server.pem", "trust__key": tmp_path / "server.key"}
    server = serve(**files, trust__client_ca=tmp_path / "ca.pem")

    def answers(scheme: str, client: str | None) -> bool:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        if client is not None:
            context.load_cert_chain(tmp_path / f"{client}.pem", tmp_path / f"{client}.key")
        try:
            address = f"{scheme}://localhost:{server.http_port}/healthz"
            return httpx.get(address, verify=context, timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    found = {who: answers(*who) for who in (("https", "client"), ("https", None), ("https", "x"), ("http", None))}
    assert found == {("https", "client"): True, ("https", None): False, ("https", "x"): False, ("http", None): False}
