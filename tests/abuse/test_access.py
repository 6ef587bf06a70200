"""Nobody in without being let in: every method and every token, TLS, names that are paths, and where it listens."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from devtools.certificates import DAY, NOW, Authority
from reliability.fuzz.methods import Method, offered
from reliability.fuzz.values import TEXTS
from sharp.v1 import learner_admin_pb2, learning_pb2
from sharp.v1 import snapshot_pb2 as snap
from sharp_server.api import auth
from sharp_server.config.model import ConfigurationError, HttpConfig, ListenConfig, ServerConfig, TrustConfig
from sharp_server.errors import RpcError
from tests.server.running import Failure, Server

TOKENS = {"predict": "p-secret", "learn": "l-secret", "admin": "a-secret"}
ANY = "any"
ROLES = {
    "sharp.v1.Learning": "learn",
    "sharp.v1.Prediction": "predict",
    "sharp.v1.Admin": "admin",
    "inference.GRPCInferenceService": "predict",
    "grpc.reflection.v1alpha.ServerReflection": ANY,
    "grpc.health.v1.Health": None,
}
"""What every service asks for, written down once more: a new service has to be put here on purpose."""
OPEN = ("/inference.GRPCInferenceService/ServerLive", "/inference.GRPCInferenceService/ServerReady")


def bearer(token: str | None) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token is not None else ()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("guarded")
    hashed = hashlib.sha256(TOKENS["admin"].encode()).hexdigest()
    (folder / "tokens").write_text(
        f"predict:{TOKENS['predict']}\nlearn:{TOKENS['learn']}\nadmin:sha256:{hashed}\n", encoding="utf-8"
    )
    server = Server(folder / "server", trust__token_file=folder / "tokens").start()
    yield server
    server.stop()


def outcome(method: Method, channel: grpc.Channel, data: bytes, metadata: Any) -> str:
    """The reason of a refusal, or "in": the call was let in, whatever became of it."""
    made = method.on(channel)
    try:
        answer = made(iter([data]) if method.takes_stream else data, metadata=metadata, timeout=30)
        if method.gives_stream:
            next(iter(answer), None)
            answer.cancel()
    except grpc.RpcError as error:
        found = Failure(error)
        assert found.code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE)
        return found.reason if found.reason in ("TOKEN_MISSING", "TOKEN_INVALID", "ROLE_MISSING") else "in"
    return "in"


def wanted(path: str) -> str | None:
    return None if path in OPEN else ROLES[path.split("/")[1]]


def test_every_method_lets_in_its_own_role_and_nobody_else(guarded: Server) -> None:
    methods = offered(guarded.channel, bearer(TOKENS["admin"]))
    assert {method.path.split("/")[1] for method in methods} == set(ROLES)
    tokens = {"no token": None, "a wrong one": "wrong", **TOKENS}
    found, right = {}, {}
    for method in methods:
        role = wanted(method.path)
        for name, token in tokens.items():
            found[method.path, name] = outcome(method, guarded.channel, b"", bearer(token))
            refusal = {"no token": "TOKEN_MISSING", "a wrong one": "TOKEN_INVALID"}.get(name, "ROLE_MISSING")
            let_in = role is None or name == role or (role == ANY and name in TOKENS)
            right[method.path, name] = "in" if let_in else refusal
    assert found == right and len(found) > 140


def test_nothing_that_a_stranger_sends_is_parsed(guarded: Server) -> None:
    for method in offered(guarded.channel, bearer(TOKENS["admin"])):
        if wanted(method.path) is not None:
            assert outcome(method, guarded.channel, b"\xff\xff\xff", ()) == "TOKEN_MISSING"


@pytest.mark.parametrize(
    ("authorization", "let_in"),
    [
        ("Bearer a-secret", True),
        ("bearer   a-secret ", True),
        ("Bearer a-secre", False),
        ("Bearer a-secret2", False),
        ("Bearer A-SECRET", False),
        ("Bearer", False),
        ("Bearer ", False),
        ("a-secret", False),
        ("Basic a-secret", False),
        ("Bearer a-secret,p-secret", False),
        (f"Bearer {hashlib.sha256(b'a-secret').hexdigest()}", False),
        (f"Bearer sha256:{hashlib.sha256(b'a-secret').hexdigest()}", False),
        ("Bearer admin:a-secret", False),
        ("Bearer " + "x" * 4000, False),
    ],
)
def test_only_the_token_itself_lets_in(guarded: Server, authorization: str, let_in: bool) -> None:
    stub: Any = guarded.channel.unary_unary("/sharp.v1.Admin/GetServerStatus")
    try:
        stub(b"", metadata=[("authorization", authorization)], timeout=30)
    except grpc.RpcError as error:
        assert Failure(error).reason == "TOKEN_INVALID"
        assert not let_in
    else:
        assert let_in


# ---- the tokens themselves --------------------------------------------------------------------------------------


def test_every_token_is_compared_in_constant_time_and_none_ends_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["first", "second", "third", "fourth"]
    (tmp_path / "tokens").write_text("".join(f"admin:{name}\n" for name in names))
    tokens = auth.Tokens(tmp_path / "tokens")
    digests = [hashlib.sha256(name.encode()).digest() for name in names]
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def watched(known: bytes, given: bytes) -> bool:
        compared.append((known, given))
        return real(known, given)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    for given in (*names, "none of them"):
        compared.clear()
        if given in names:
            tokens.check("admin", f"Bearer {given}")
        else:
            with pytest.raises(RpcError):
                tokens.check("admin", f"Bearer {given}")
        assert compared == [(digest, hashlib.sha256(given.encode()).digest()) for digest in digests]
    # Nothing but that comparison decides: with one that never agrees, nobody is let in.
    monkeypatch.setattr(hmac, "compare_digest", lambda known, given: False)
    for name in names:
        with pytest.raises(RpcError):
            tokens.check("admin", f"Bearer {name}")


def test_tokens_are_taken_back_with_the_file_and_stay_with_a_broken_one(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("admin:one\nlearn:two\n")
    tokens = auth.Tokens(file)

    def works(role: str, token: str) -> bool:
        tokens.look()
        try:
            tokens.check(role, f"Bearer {token}")
        except RpcError:
            return False
        return True

    assert works("admin", "one") and works("learn", "two") and not works("learn", "one")
    file.write_text("admin:three\n")
    assert works("admin", "three") and not works("admin", "one") and not works("learn", "two")
    for broken in ("", "admin\n", "root:four\n", "admin:sha256:00\n"):
        file.write_text(broken)
        assert works("admin", "three") and not works("admin", "four")
    file.unlink()
    assert works("admin", "three")
    file.write_text("admin:five-five\n")
    assert works("admin", "five-five") and not works("admin", "three")


# ---- where it listens -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "[::]", "10.0.0.1", "example.org", "localhost.example.org", "0", "127.1", "*", "::ffff:8.8.8.8"],
)
@pytest.mark.parametrize("setting", ["listen", "http"])
def test_it_listens_beyond_loopback_only_with_tokens_or_if_told_to(host: str, setting: str) -> None:
    where: dict[str, Any] = {setting: ListenConfig(host=host) if setting == "listen" else HttpConfig(host=host)}
    with pytest.raises(ConfigurationError, match="lets others in"):
        ServerConfig(**where)
    ServerConfig(**where, trust=TrustConfig(token_file="tokens"))
    ServerConfig(**where, trust=TrustConfig(insecure=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "[::1]", "localhost"])
def test_it_listens_on_loopback_as_it_is(host: str) -> None:
    assert ServerConfig(listen=ListenConfig(host=host)).listen.loopback


def test_a_server_that_may_not_listen_does_not_start(serve: Callable[..., Server]) -> None:
    server = serve(wait=False, listen__host="0.0.0.0")
    assert server.process.wait(120) == 2 and "lets others in" in server.log.read_text()
    assert not server.data.exists()


# ---- TLS --------------------------------------------------------------------------------------------------------


def test_tls_lets_in_only_whom_both_sides_trust(serve: Callable[..., Server], tmp_path: Path) -> None:
    ours, other = Authority("ours"), Authority("other")
    server_pair, expired = ours.vouch("server"), ours.vouch("server", until=NOW - DAY)
    client, late, stranger = ours.vouch("client"), ours.vouch("client", until=NOW - DAY), other.vouch("client")
    (tmp_path / "ca.pem").write_bytes(ours.certificate)

    def started(name: str, pair: Any, mutual: bool) -> Server:
        (tmp_path / f"{name}.pem").write_bytes(pair.certificate)
        (tmp_path / f"{name}.key").write_bytes(pair.key)
        more = {"trust__client_ca": tmp_path / "ca.pem"} if mutual else {}
        return serve(name, trust__certificate=tmp_path / f"{name}.pem", trust__key=tmp_path / f"{name}.key", **more)

    def answers(server: Server, authority: Authority, pair: Any = None, seconds: float = 4.0) -> bool:
        keys = (pair.key, pair.certificate) if pair is not None else (None, None)
        credentials = grpc.ssl_channel_credentials(authority.certificate, *keys)
        with grpc.secure_channel(f"localhost:{server.port}", credentials) as channel:
            return _answers(channel, seconds)

    mutual = started("mutual", server_pair, True)
    assert answers(mutual, ours, client, seconds=120.0)
    refused = {
        "a wrong authority": answers(mutual, other, client),
        "no client certificate": answers(mutual, ours),
        "a client certificate of another authority": answers(mutual, ours, stranger),
        "an expired client certificate": answers(mutual, ours, late),
        "no TLS at all": _answers(mutual.channel),
    }
    old = started("expired", expired, False)
    refused["an expired server certificate"] = answers(old, ours)
    assert not any(refused.values()), refused


def _answers(channel: grpc.Channel, seconds: float = 4.0) -> bool:
    stub: Any = channel.unary_unary("/sharp.v1.Admin/GetServerStatus")
    try:
        stub(b"", timeout=seconds)
    except grpc.RpcError as error:
        assert Failure(error).code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        return False
    return True


# ---- names ------------------------------------------------------------------------------------------------------

PATHS = [text for text in TEXTS if not text.isalnum()] + ["..", "../outside", "a/../../outside", "/tmp/outside", "a\\b"]


def test_names_of_learners_and_snapshots_cannot_leave_the_data_folder(guarded: Server) -> None:
    admin, learn = bearer(TOKENS["admin"]), bearer(TOKENS["learn"])
    stub, name = guarded.admin, "home"
    stub.CreateLearner(learner_admin_pb2.CreateLearnerRequest(name=name), metadata=admin, timeout=60)
    outside = guarded.folder / "outside.safetensors"
    outside.write_text("not yours")
    before = _tree(guarded.folder)
    reasons = set()

    def refused(call: Any, request: Any, metadata: Any = admin) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            answer = call(request, metadata=metadata, timeout=60)
            list(answer)
        reasons.add(Failure(caught.value).reason)

    for text in PATHS:
        refused(stub.CreateLearner, learner_admin_pb2.CreateLearnerRequest(name=text))
        refused(stub.DeleteLearner, learner_admin_pb2.DeleteLearnerRequest(name=text))
        header = snap.ImportSnapshotRequest(header=snap.ImportHeader(learner=text, size_bytes=8))
        refused(stub.ImportSnapshot, iter([header]))
        opening = learning_pb2.Open(learner=text, stream_id="s", create_if_missing=True)
        refused(guarded.learning.Learn, iter([learning_pb2.LearnRequest(open=opening)]), learn)
    for place in (*PATHS, "outside", "../outside", "../../outside", "../../../outside"):
        refused(stub.RestoreSnapshot, snap.RestoreSnapshotRequest(learner=name, snapshot_id=place))
        refused(stub.DeleteSnapshot, snap.DeleteSnapshotRequest(learner=name, snapshot_id=place))
        refused(stub.ExportSnapshot, snap.ExportSnapshotRequest(learner=name, snapshot_id=place))
    assert reasons <= {"NAME_INVALID", "LEARNER_NOT_FOUND", "SNAPSHOT_NOT_FOUND", "FIELD_INVALID"}
    assert _tree(guarded.folder) == before and outside.read_text() == "not yours"


def _tree(folder: Path) -> set[str]:
    """Every file and folder, but for what SQLite makes and drops as it goes."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.name.startswith("journal.db-")}


def test_a_data_folder_is_for_its_owner_alone(guarded: Server) -> None:
    data = guarded.folder / "data"
    assert [oct((data / name).stat().st_mode & 0o077) for name in (".", "snapshots", "work")] == ["0o0"] * 3
