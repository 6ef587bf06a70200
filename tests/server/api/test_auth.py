"""Who may do what: a matrix of every RPC and every token, and the reload of the token file."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]

from sharp.inference import open_inference_pb2
from sharp.v1 import admin_pb2, learning_pb2, prediction_pb2
from sharp_server.api.auth import ROLES, Tokens, read_tokens, role_of, server_credentials
from sharp_server.config.model import ConfigurationError, TrustConfig
from tests.server.running import Failure, Server, refused

TOKENS = {"predict": "p-secret", "learn": "l-secret", "admin": "a-secret"}
SERVICES = [
    service
    for module in (learning_pb2, prediction_pb2, admin_pb2, open_inference_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
]
METHODS = [(f"/{service.full_name}/{method.name}", method) for service in SERVICES for method in service.methods]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("guarded")
    hashed = hashlib.sha256(TOKENS["admin"].encode()).hexdigest()
    (folder / "tokens").write_text(
        f"# tokens\n\npredict:{TOKENS['predict']}\nlearn: {TOKENS['learn']}\nadmin:sha256:{hashed}\n"
    )
    server = Server(folder / "server", trust__token_file=folder / "tokens").start()
    yield server
    server.stop()


def call(channel: grpc.Channel, path: str, method: Any, token: str | None) -> str:
    """Call a method with an empty request; returns the reason of its failure."""
    metadata = [("authorization", f"Bearer {token}")] if token is not None else []
    streams_in, streams_out = method.client_streaming, method.server_streaming
    kind = {(0, 0): "unary_unary", (0, 1): "unary_stream", (1, 0): "stream_unary", (1, 1): "stream_stream"}
    made = getattr(channel, kind[streams_in, streams_out])(path)
    try:
        answer = made(iter([b""]) if streams_in else b"", metadata=metadata, timeout=20)
        if streams_out:
            list(answer)
    except grpc.RpcError as error:
        return Failure(error).reason
    return ""


@pytest.mark.parametrize(("path", "method"), METHODS, ids=[path for path, _ in METHODS])
def test_every_method_takes_its_own_role_and_no_other(guarded: Server, path: str, method: Any) -> None:
    role = role_of(path)
    assert call(guarded.channel, path, method, None) == ("TOKEN_MISSING" if role else "")
    if role is None:
        return
    assert call(guarded.channel, path, method, "wrong") == "TOKEN_INVALID"
    for name, token in TOKENS.items():
        reason = call(guarded.channel, path, method, token)
        assert (reason == "ROLE_MISSING") == (name != role)
        assert reason not in ("TOKEN_MISSING", "TOKEN_INVALID", "INTERNAL_ERROR")


def test_every_service_has_a_role() -> None:
    assert {service.full_name for service in SERVICES} == set(ROLES)
    assert role_of("/unknown.Service/Method") == "admin" and role_of("nonsense") == "admin"


def test_reflection_takes_any_token_that_counts_and_health_takes_none(guarded: Server) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(guarded.channel)

    def services(token: str | None) -> set[str]:
        metadata = [("authorization", f"Bearer {token}")] if token is not None else []
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        answer = next(iter(stub.ServerReflectionInfo(asked, metadata=metadata, timeout=20)))
        return {service.name for service in answer.list_services_response.service}

    for token in TOKENS.values():
        assert services(token) >= set(ROLES)
    for bad, reason in ((None, "TOKEN_MISSING"), ("wrong", "TOKEN_INVALID")):
        with refused(reason):
            services(bad)
    health = health_pb2_grpc.HealthStub(guarded.channel)
    assert health.Check(health_pb2.HealthCheckRequest(service="sharp.v1.Prediction")).status == 1


@pytest.mark.parametrize("text", ["", "# nothing\n", "predict\n", "root:x\n", "predict:\n", "admin:sha256:12\n"])
def test_a_token_file_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"line|token|hex"):
        read_tokens(text)


def test_tls_files_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    with pytest.raises(ConfigurationError, match=r"junk\.pem are no certificate with its key"):
        server_credentials(TrustConfig(certificate=str(junk), key=str(junk)))
    with pytest.raises(ConfigurationError, match=r"cannot read .*absent\.pem of the TLS settings: No such file"):
        server_credentials(TrustConfig(certificate=str(junk), key=str(tmp_path / "absent.pem")))
    with pytest.raises(ConfigurationError, match=r"cannot read the token file .*absent: No such file"):
        Tokens(tmp_path / "absent")


def test_no_call_looks_at_the_token_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tokens"
    file.write_text("admin:one\n")
    tokens = Tokens(file)
    monkeypatch.setattr("sharp_server.api.auth._stamp", None)
    monkeypatch.setattr(Path, "read_text", None)
    tokens.check("admin", "Bearer one")


def test_a_changed_token_file_is_read_again_and_a_broken_one_is_not(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("admin:one\n")
    server = serve(trust__token_file=tokens)

    def works(token: str) -> bool:
        return call(server.channel, "/sharp.v1.Admin/GetServerStatus", _method("Admin", "GetServerStatus"), token) == ""

    assert works("one") and not works("two")
    tokens.write_text("admin:two-two\n")
    time.sleep(1.1)
    assert works("two-two") and not works("one")
    tokens.write_text("broken\n")
    time.sleep(1.1)
    assert works("two-two")


def _method(service: str, name: str) -> Any:
    return next(method for path, method in METHODS if path.endswith(f"{service}/{name}"))
