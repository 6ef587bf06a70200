"""What every request passes through, whatever its route: admission, origin, bounds on the body, errors, counting.

A route says which role it needs by the router that it is on; there is no router without one. Nothing of a body is read
before its request was let in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar
from urllib.parse import urlsplit

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from sharp_server.api.admission import Admission
from sharp_server.config.model import ServerConfig, is_loopback
from sharp_server.http.body import BodyBounds
from sharp_server.http.errors import ErrorAnswer, HttpError, error_response
from sharp_server.runtime.metrics import Metrics

Handler = Callable[[Request], Awaitable[Response]]

_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorAnswer, "description": "The request is refused."},
    "5XX": {"model": ErrorAnswer, "description": "The server can't answer."},
}


class GuardedRoute(APIRoute):
    """A route behind the guard. Its class, made by `HttpGuard.router`, knows the role that it needs."""

    guard: ClassVar[HttpGuard]
    role: ClassVar[str | None]
    always: ClassVar[bool]
    streamed: ClassVar[bool]

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request."""
        handler = super().get_route_handler()
        return self.guard.guarded(handler, self.role, self.always, self.path_format, self.streamed)


class HttpGuard:
    """Makes the routers that routes are put on."""

    def __init__(self, config: ServerConfig, admission: Admission, metrics: Metrics) -> None:
        self._admission, self._metrics = admission, metrics
        self._bounds = BodyBounds(config.http, config.limits)
        self._origins = config.http.allowed_origins
        # Without tokens only this machine's own may ask, and a page from elsewhere must not pass for it (by a name of
        # its own that leads to 127.0.0.1).
        self._only_loopback = not admission.asks_for_tokens and not config.trust.insecure

    def router(self, role: str | None, tag: str, *, always: bool = False, streamed: bool = False) -> APIRouter:
        """A router whose routes need a role. `always`: they answer while the server starts and stops, too; `streamed`:
        they read bodies part by part and bound their sizes themselves.
        """
        kind = type("Route", (GuardedRoute,), {"guard": self, "role": role, "always": always, "streamed": streamed})
        return APIRouter(route_class=kind, responses=_ERRORS, tags=[tag])

    def plain(self, answer: Handler, path: str) -> Handler:
        """An answer for everybody, at any time, that reads no body."""
        return self.guarded(answer, None, True, path)

    async def unrouted(self, request: Request, error: Exception) -> Response:
        """The answer where there is no route."""
        response, code = error_response(error)
        self._metrics.requests.labels("HTTP", code).inc()
        return response

    def guarded(
        self, inner: Handler, role: str | None, always: bool, path: str, streamed: bool = False
    ) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """A handler behind the guard."""
        admission, requests = self._admission, self._metrics.requests

        async def handler(request: Request) -> Response:
            code = "OK"
            admission.begin_call()
            try:
                self._check_origin(request)
                admission.check(role, request.headers.get("authorization"), always)
                response = await inner(self._bounds.bounded(request, streamed))
            except ClientDisconnect:
                code, response = "CANCELLED", Response(status_code=499)
            except Exception as error:
                response, code = error_response(error, str(request.path_params.get("name", "")))
            finally:
                admission.end_call()
            requests.labels(f"{request.method} {path}", code).inc()
            return response

        return handler

    def _check_origin(self, request: Request) -> None:
        """Refuse what a page of another site made a browser send: the browser is on this machine, the page is not."""
        host = request.headers.get("host", "")
        if self._only_loopback and not is_loopback(urlsplit(f"//{host}").hostname or ""):
            raise HttpError("ORIGIN_REFUSED", "without tokens, only names of this machine itself are answered to")
        origin = request.headers.get("origin")
        if origin and origin not in self._origins and urlsplit(origin).netloc != host:
            raise HttpError(
                "ORIGIN_REFUSED", "pages of another origin may not ask; http.cors_origins names those that may"
            )
