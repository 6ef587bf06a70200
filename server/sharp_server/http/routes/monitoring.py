"""/metrics for Prometheus, /healthz for whoever starts containers, and who may do what."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from sharp_server.api.admission import Admission
from sharp_server.api.server_status import ServerStatus
from sharp_server.http import conversion, models
from sharp_server.http.guard import Handler, HttpGuard
from sharp_server.runtime import version
from sharp_server.runtime.metrics import Metrics
from sharp_server.runtime.server_state import ServerState

_ROLES = ("predict", "learn", "admin")


def plain_routes(metrics: Metrics, state: ServerState) -> dict[str, Handler]:
    """What monitoring asks for, by path: no token, in every state of the server."""

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n") if state.serving else PlainTextResponse("not ready\n", 503)

    async def metrics_text(request: Request) -> Response:
        return Response(await metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return {"/healthz": healthz, "/metrics": metrics_text}


def routers(guard: HttpGuard, admission: Admission, status: ServerStatus) -> list[APIRouter]:
    """What the API says about the server itself."""
    everyone = guard.router(None, "server", always=True)
    operator = guard.router("admin", "server", always=True)

    @everyone.get("/api/access")
    async def access(request: Request) -> models.Access:
        """Whether a token is needed, and which roles the one that came has."""
        roles = admission.roles(request.headers.get("authorization"))
        return models.Access(
            version=version.version(),
            token_needed=roles is not None,
            roles=[role for role in _ROLES if roles is None or role in roles],  # type: ignore[misc]
        )

    @operator.get("/api/server")
    async def server() -> models.ServerStatus:
        """How the server is."""
        return conversion.server_status(await status.message())

    return [everyone, operator]
