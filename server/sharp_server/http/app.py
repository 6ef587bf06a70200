"""The app: every route behind the guard, the page, and the description of it all.

Built once, from the operations that gRPC's services use too.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route

from sharp_server.api.admin import LearnersElsewhere, Operations
from sharp_server.api.admission import Admission
from sharp_server.api.decode import InputDecoder
from sharp_server.api.open_inference import InferenceService
from sharp_server.api.server_status import ServerStatus
from sharp_server.config.model import ServerConfig
from sharp_server.http.assets import asset_routes
from sharp_server.http.guard import GuardedRoute, Handler, HttpGuard
from sharp_server.http.headers import SecurityHeaders
from sharp_server.http.routes import (
    episodes,
    events,
    inference,
    learners,
    lessons,
    monitoring,
    predictions,
    snapshots,
    versions,
)
from sharp_server.learners.lessons import Lessons
from sharp_server.learners.registry import Registry
from sharp_server.prediction.batcher import Batcher
from sharp_server.runtime import version
from sharp_server.runtime.metrics import Metrics
from sharp_server.runtime.server_state import ServerState

_DESCRIPTION = """\
Learners, predictions, snapshots and events in JSON, and the Open Inference Protocol, on one port.

Errors have one form everywhere, with the reasons of the gRPC services. Where the server asks for tokens, send
`Authorization: Bearer …`; each route names the role that it needs. `/metrics` and `/healthz` need none."""

_TAGS = [
    {"name": "learners", "description": "Learners and their classes."},
    {"name": "lessons", "description": "One labelled example is enough, and known at once."},
    {"name": "predictions", "description": "What is this?"},
    {"name": "versions", "description": "How good they are, the step back, and names of classes."},
    {"name": "snapshots", "description": "A learner as it was, in one file."},
    {"name": "episodes", "description": "What could not be learned."},
    {"name": "events", "description": "What happens, as it happens."},
    {"name": "server", "description": "The server itself."},
    {"name": "Open Inference Protocol", "description": "For clients that know nothing of this server."},
]

_ALLOWED_HEADERS = ("authorization", "content-type", "inference-header-content-length", "last-event-id")


@dataclass(frozen=True)
class HttpParts:
    """What the routes use."""

    config: ServerConfig
    state: ServerState
    metrics: Metrics
    registry: Registry
    readers: Registry
    """Learners of which predictions are answered: in a cluster more than those of the registry."""
    operations: Operations
    status: ServerStatus
    batcher: Batcher
    decoder: InputDecoder
    inference: InferenceService
    lessons: Lessons


def make_app(parts: HttpParts, admission: Admission, elsewhere: LearnersElsewhere | None = None) -> FastAPI:
    """The app; in a cluster it lists the learners of other servers too."""
    config, limits, state, registry = parts.config, parts.config.limits, parts.state, parts.registry
    guard = HttpGuard(config, admission, parts.metrics)
    app = FastAPI(
        title="SHARP Serve",
        version=version.version(),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name,
    )
    made = [
        *monitoring.routers(guard, admission, parts.status),
        *learners.routers(guard, limits, state, registry, parts.operations, elsewhere),
        *lessons.routers(guard, state, registry, parts.decoder, parts.lessons),
        *predictions.routers(guard, limits, parts.readers, parts.batcher, parts.decoder),
        *versions.routers(guard, state, registry, parts.operations),
        *snapshots.routers(guard, admission, state, registry, parts.operations),
        *episodes.routers(guard, state, registry, parts.operations),
        *events.routers(guard, admission, limits, state, registry),
        *inference.routers(guard, config.http.json_bytes, state, parts.readers, parts.inference),
    ]
    for router in made:
        app.include_router(router)
    plain = {**monitoring.plain_routes(parts.metrics, state), **asset_routes()}
    answers = {path: guard.plain(answer, path) for path, answer in plain.items()}
    answers["/openapi.json"] = guard.guarded(_openapi(app, made), None, True, "/openapi.json")
    for path, answer in answers.items():
        app.router.routes.append(Route(path, answer, methods=["GET"]))
    app.add_exception_handler(HTTPException, guard.unrouted)
    if config.http.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.http.allowed_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=_ALLOWED_HEADERS,
        )
    app.add_middleware(SecurityHeaders)
    return app


def _openapi(app: FastAPI, routers: Sequence[APIRouter]) -> Handler:
    """The answer with the description. It takes half a second to make: not while starting, and beside the loop."""
    description = functools.cache(lambda: _described(app, routers))

    async def answer(request: Request) -> Response:
        return Response(await asyncio.to_thread(description), media_type="application/json")

    return answer


def _described(app: FastAPI, routers: Sequence[APIRouter]) -> bytes:
    """The description in OpenAPI, with the role that each route needs."""
    document = get_openapi(
        title=app.title, version=app.version, description=_DESCRIPTION, routes=app.routes, tags=_TAGS
    )
    schemas: dict[str, Any] = document["components"]["schemas"]
    infer = inference.InferRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= {**infer.pop("$defs"), "InferRequest": infer}
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for route in (route for router in routers for route in router.routes):
        assert isinstance(route, GuardedRoute)
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            operation["x-role"] = route.role
            if route.role is not None:
                operation["security"] = [{"token": []}]
    return json.dumps(document, separators=(",", ":")).encode()
