"""Who may do what: TLS, mutual TLS, and bearer tokens by role.

The token file has one `role:token` per line; role is `predict`, `learn` or `admin`; a token may be given as
`sha256:HEX` of itself instead, so that the file holds no secret. Empty lines and lines that start with # don't count.

    predict:4f1c…
    admin:sha256:9b74c9897bac770ffc029102a200c5de…

A token counts for its own role only; give one token on several lines for several roles. Health needs no token,
reflection one of any role. The file is read again when it changes; one that can't be read or has a line of another form
leaves the tokens as they were, and is logged. Tokens are compared as SHA-256 digests in constant time, all of them
every time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import ssl
import stat
from pathlib import Path

import grpc

from sharp_server.config.model import ConfigurationError, TrustConfig
from sharp_server.errors import RpcError

log = logging.getLogger(__name__)

ROLES = {"sharp.v1.Learning": "learn", "sharp.v1.Prediction": "predict", "sharp.v1.Admin": "admin",
         "inference.GRPCInferenceService": "predict"}  # fmt: skip
"""The role that each service needs."""

ANY_ROLE = "any"
"""Stands for whatever role: any token that counts will do."""

ANY_ROLE_SERVICES = ("grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection")
"""Reflection: for everyone who may do anything on the server, and for nobody else."""

OPEN_SERVICES = ("grpc.health.v1.Health",)
OPEN_METHODS = ("/inference.GRPCInferenceService/ServerLive", "/inference.GRPCInferenceService/ServerReady")
"""What needs no token: probes have none."""

_SECONDS_BETWEEN_LOOKS = 0.5


def role_of(method: str) -> str | None:
    """The role that a method needs; None: no token. A method of an unknown service needs the strongest role."""
    service = method.split("/")[1] if method.count("/") == 2 else ""
    if method in OPEN_METHODS or service in OPEN_SERVICES:
        return None
    if service in ANY_ROLE_SERVICES:
        return ANY_ROLE
    return ROLES.get(service, "admin")


class Tokens:
    """The tokens that are in force."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        try:
            self._digests = read_tokens(path.read_text())
            _warn_of_readers(path)
        except OSError as error:
            raise ConfigurationError(f"cannot read the token file {path}: {error.strerror}") from None
        except ValueError as error:
            raise ConfigurationError(f"cannot use the token file {path}: {error}") from None

    def check(self, role: str, authorization: str | bytes | None) -> None:
        """Refuse a call whose token does not give it the role."""
        if not authorization:
            raise RpcError("TOKEN_MISSING", "the call needs a bearer token in the metadata key 'authorization'")
        roles = self.roles(authorization)
        if not roles:
            raise RpcError("TOKEN_INVALID", "the token is not one that the server knows")
        if role not in roles and role != ANY_ROLE:
            raise RpcError("ROLE_MISSING", f"the call needs a token of the role {role}", role=role)

    def roles(self, authorization: str | bytes | None) -> frozenset[str]:
        """The roles that a token gives; none: it is not one that counts."""
        text = authorization.encode() if isinstance(authorization, str) else authorization or b""
        scheme, _, token = text.partition(b" ")
        given = hashlib.sha256(token.strip()).digest()
        roles = set()
        for known_role, digest in self._digests:
            if hmac.compare_digest(digest, given):
                roles.add(known_role)
        return frozenset(roles) if scheme.lower() == b"bearer" else frozenset()

    async def watch(self) -> None:
        """Look at the file now and then, in a thread, until cancelled: no call waits for a disk."""
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Read the file again if it has changed."""
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._digests = read_tokens(self._path.read_text())
            _warn_of_readers(self._path)
            log.info("the token file was read again: %d tokens", len(self._digests))
        except (OSError, ValueError) as error:
            log.error("the token file changed and can't be used, the tokens stay as they were: %s", error)


def _warn_of_readers(path: Path) -> None:
    if os.stat(path).st_mode & stat.S_IROTH:
        log.warning("everybody on this machine can read the token file: chmod o-r %s", path)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
        return found.st_mtime_ns, found.st_size, found.st_ino
    except OSError:
        return 0, 0, 0


def read_tokens(text: str) -> list[tuple[str, bytes]]:
    """(role, SHA-256 of the token) of every line, or ValueError with the number of the line."""
    tokens = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        role, colon, token = line.partition(":")
        role, token = role.strip(), token.strip()
        if not colon or role not in set(ROLES.values()) or not token:
            raise ValueError(f"line {number} is not of the form role:token")
        if token.startswith("sha256:"):
            digest = bytes.fromhex(token.removeprefix("sha256:").strip())
            if len(digest) != 32:
                raise ValueError(f"line {number} has a hash of {len(digest)} bytes, not 32")
        else:
            digest = hashlib.sha256(token.encode()).digest()
        tokens.append((role, digest))
    if not tokens:
        raise ValueError("there is no token in it")
    return tokens


def server_credentials(trust: TrustConfig) -> grpc.ServerCredentials | None:
    """What the port is opened with; None: in the clear."""
    if not trust.certificate:
        return None
    try:
        key, chain = Path(trust.key).read_bytes(), Path(trust.certificate).read_bytes()
        authority = Path(trust.client_ca).read_bytes() if trust.client_ca else None
    except OSError as error:
        raise ConfigurationError(f"cannot read {error.filename} of the TLS settings: {error.strerror}") from None
    tls_context(trust)  # gRPC would only say that the port can't be had
    return grpc.ssl_server_credentials([(key, chain)], authority, require_client_auth=authority is not None)


def tls_context(trust: TrustConfig) -> ssl.SSLContext | None:
    """The same for a port that is not gRPC's; refuses files that neither could use."""
    if not trust.certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(trust.certificate, trust.key, password=lambda: "")  # never ask at the terminal
    except ssl.SSLError as error:
        files = f"{trust.certificate} and {trust.key}"
        raise ConfigurationError(f"{files} are no certificate with its key in PEM: {error.reason or error}") from None
    if trust.client_ca:
        try:
            context.load_verify_locations(trust.client_ca)
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"{trust.client_ca} holds no certificate in PEM: {error.reason or error}"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context
