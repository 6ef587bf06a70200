"""HTTP requests find their owner too: those about a learner of another server are passed on to it, bodies as they come.

Browsers and curl need to know nothing. Tokens, bounds and errors are the answering server's: it has the same ones. A
request is passed on once, like a call of gRPC.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

import httpx
from starlette.requests import ClientDisconnect

from sharp_server.api.passing import unreachable
from sharp_server.cluster.directory import Directory
from sharp_server.cluster.forwarding import PASSED_ON_KEY
from sharp_server.config.model import ClusterConfig, TrustConfig
from sharp_server.errors import RpcError
from sharp_server.http.errors import error_response
from sharp_server.learners.registry import Registry
from sharp_server.storage.board import Place

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_LEARNER = re.compile(r"/(?:api/learners|v2/models)/(?P<name>[^/]+)(?P<rest>/.*)?")
_OF_CONNECTION = {b"connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade", b"proxy-connection"}
"""Headers that belong to one connection."""
_SECONDS_TO_CONNECT = 1.0


class PassingApp:
    """The app of this server, and before it the question whether another one should answer."""

    def __init__(
        self, app: App, owned: Registry, readers: Registry, directory: Directory, client: httpx.AsyncClient
    ) -> None:
        self._app, self._owned, self._readers = app, owned, readers
        self._directory, self._client = directory, client

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        found = _LEARNER.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            return await self._app(scope, receive, send)
        name, rest = unquote(found["name"]), found["rest"] or ""
        predicts = scope["path"].startswith("/v2/") or rest.startswith("/predict")
        if (self._readers if predicts else self._owned).find(name) is not None:
            return await self._app(scope, receive, send)
        place = await self._directory.look_up(name)
        if place is None:
            return await self._app(scope, receive, send)
        try:
            if any(key == PASSED_ON_KEY.encode() for key, _ in scope["headers"]):
                raise RpcError("NOT_OWNER", "this server does not own the learner", retry=0.2)
            if not place.http:
                raise unreachable(name)
            await self._pass_on(place, scope, receive, send)
        except RpcError as refusal:
            response, _ = error_response(refusal, name)
            await response(scope, receive, send)
        return None

    async def _pass_on(self, place: Place, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        query = scope["query_string"].decode("ascii")
        path = scope.get("raw_path", scope["path"].encode()).decode("ascii").partition("?")[0]
        url = f"{place.http}{path}{'?' if query else ''}{query}"
        headers = [(key, value) for key, value in scope["headers"] if key not in _OF_CONNECTION]
        headers.append((PASSED_ON_KEY.encode(), b"1"))
        has_body = any(key in (b"content-length", b"transfer-encoding") for key, _ in scope["headers"])
        request = self._client.build_request(
            scope["method"], url, headers=headers, content=_body(receive) if has_body else None
        )
        try:
            answer = await self._client.send(request, stream=True)
        except httpx.TransportError:
            await self._directory.refresh()
            raise unreachable(place.name, place.http) from None
        try:
            kept = [(key.lower(), value) for key, value in answer.headers.raw if key.lower() not in _OF_CONNECTION]
            await send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
            async for part in answer.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await answer.aclose()


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    """The body of a request, as it comes."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        yield message.get("body", b"")
        more = message.get("more_body", False)


def make_client(trust: TrustConfig, cluster: ClusterConfig) -> httpx.AsyncClient:
    """What requests are passed on with: TLS where this server has it."""
    verify: ssl.SSLContext | bool = True
    if trust.certificate:
        verify = ssl.create_default_context(cafile=cluster.ca or None)
        verify.load_cert_chain(trust.certificate, trust.key)
    timeout = httpx.Timeout(None, connect=_SECONDS_TO_CONNECT)
    # As many as this server itself has: pages watch as long as they are open, and nobody may wait for them to close.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    return httpx.AsyncClient(verify=verify, timeout=timeout, limits=limits, trust_env=False, follow_redirects=False)
