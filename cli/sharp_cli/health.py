"""`sharp health`: whether a server accepts requests, as an exit code for whatever runs containers.

It asks grpc.health.v1, which needs no token, and so knows nothing of learners. It runs every few seconds for as long as
a container lives: it must never import torch, nor wait longer than a moment.
"""

from __future__ import annotations

from typing import Annotated, Any

import grpc
import typer

from sharp.v1 import prediction_pb2
from sharp_cli import connection
from sharp_cli.output import console, write_json

LONGEST_SECONDS = 5.0
"""An answer that takes longer is none."""

READINESS = prediction_pb2.DESCRIPTOR.services_by_name["Prediction"].full_name
"""The service that is healthy once the learners are loaded, until the server stops."""


def health(
    ctx: typer.Context,
    live: Annotated[
        bool, typer.Option("--live", help="Check only whether it is alive, also while it loads its learners.")
    ] = False,
) -> None:
    """Check whether the server accepts requests: exit code 0 if it does, 1 if not, or if nobody answers."""
    options = connection.of(ctx)
    word = _ask(options, "" if live else READINESS)
    if options.json:
        write_json({"healthy": word == "serving", "status": word})
    elif word == "serving":
        console().print(word)
    else:
        typer.echo(f"sharp: {options.address}: {word}", err=True)
    if word != "serving":
        raise typer.Exit(1)


def _ask(options: connection.Connection, service: str) -> str:
    """The status of a service, in lower case, or the failure."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

    request = health_pb2.HealthCheckRequest(service=service)
    with _channel(options) as channel:
        try:
            answer: Any = health_pb2_grpc.HealthStub(channel).Check(
                request, timeout=min(options.timeout, LONGEST_SECONDS)
            )
        except grpc.RpcError as error:
            return " ".join(f"{error.code().name.lower()}: {error.details()}".split())
    name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return name.lower().replace("_", " ")


def _channel(options: connection.Connection) -> grpc.Channel:
    if options.tls is None:
        return grpc.insecure_channel(options.address)
    name = options.tls.server_name
    arguments = [("grpc.ssl_target_name_override", name)] if name else []
    return grpc.secure_channel(options.address, options.tls.credentials(), arguments)
