"""Starts and stops a server: lock, trainer, gRPC, load, signals, drain. The one place where processes and ports begin.

The trainer is started before any object of gRPC is made. A second server on the same folder or port fails at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc  # type: ignore[import-untyped]

from sharp.inference import open_inference_pb2, open_inference_pb2_grpc
from sharp.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    learning_pb2,
    learning_pb2_grpc,
    prediction_pb2,
    prediction_pb2_grpc,
)
from sharp_engine import ConfigError
from sharp_engine.device import resolve_device
from sharp_server.api.admission import Admission
from sharp_server.api.auth import Tokens, server_credentials, tls_context
from sharp_server.api.guard import Guard
from sharp_server.config.model import ConfigurationError, LimitsConfig, ServerConfig
from sharp_server.context import ServerContext
from sharp_server.errors import JournalUnavailable
from sharp_server.http import HttpPort, make_app
from sharp_server.runtime import logs, malloc, version
from sharp_server.storage.data_folder import DataFolder, FolderInUseError
from sharp_server.storage.interface import StoreInUseError, UnsupportedFormatError

if TYPE_CHECKING:
    from sharp_server.cluster.member import ClusterMember

log = logging.getLogger(__name__)

SERVICES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (learning_pb2, "Learning"),
        (prediction_pb2, "Prediction"),
        (admin_pb2, "Admin"),
        (open_inference_pb2, "GRPCInferenceService"),
    )
)


def serve(config: ServerConfig, announce_json: bool = False) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    logs.set_up(config.log)
    malloc.keep_freed_memory()
    # The loop and the threads that compute share one interpreter lock: hand it over quickly.
    sys.setswitchinterval(0.001)
    folder = DataFolder(config.data.path)
    try:
        folder.acquire()
        code = asyncio.run(_serve(config, folder, announce_json))
        log.info("stopped")  # the last word: nothing of it is left but the process, and that ends now
        return code
    except (ConfigurationError, FolderInUseError, StoreInUseError, UnsupportedFormatError, PortInUseError) as error:
        log.error("%s", error)
        return 1
    except OSError as error:
        log.error("cannot go on: %s%s", error.strerror or error, f": {error.filename}" if error.filename else "")
        return 1
    except (sqlite3.Error, JournalUnavailable) as error:
        log.error("cannot go on: the journal can't be used: %s", error)
        return 1
    finally:
        folder.release()


class PortInUseError(RuntimeError):
    """The port can't be had."""


async def _serve(config: ServerConfig, folder: DataFolder, announce_json: bool) -> int:
    tokens = Tokens(Path(config.trust.token_file)) if config.trust.token_file else None
    credentials = server_credentials(config.trust)
    _check_devices(config)
    member: ClusterMember | None = None
    if config.cluster.node:
        from sharp_server.cluster.member import join

        context, member = join(config, folder)
    else:
        context = ServerContext(config, folder)
    context.trainer.launch()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    watching = loop.create_task(tokens.watch(), name="token file") if tokens is not None else None
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    server = grpc.aio.server(options=transport_options(config.limits))
    healthy = health.aio.HealthServicer()
    admission = Admission(context.state, config.limits.streams, tokens)
    _register(Guard(server, context.metrics, admission, None if member is None else member.forwarder), context, healthy)
    http = _make_http(context, admission, member) if config.http.enabled else None
    try:
        port = _bind(server, config, credentials)
        await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
        await _set_readiness(healthy, health_pb2.HealthCheckResponse.NOT_SERVING)
        await server.start()
        http_port = 0 if http is None else await _start_http(http, config)
        loading = asyncio.create_task(context.load())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            loading.result()
            if member is not None:
                await member.start(port, http_port)
            malloc.forget_start_up()
            await _set_readiness(healthy, health_pb2.HealthCheckResponse.SERVING)
            await asyncio.to_thread(_announce, config, port, http_port, announce_json)
            await stopping
        else:
            await asyncio.wait({loading}, timeout=config.stop.grace_seconds)
        log.info("stopping: calls under way have %.0f s to finish", config.stop.grace_seconds)
        await healthy.enter_graceful_shutdown()
        context.begin_stop()
        if member is not None:
            await member.stop()
        begun = loop.time()
        await admission.drained(config.stop.grace_seconds)
        await server.stop(max(0.0, config.stop.grace_seconds - (loop.time() - begun)))
        return 0
    finally:
        if watching is not None:
            watching.cancel()
        if http is not None:
            await http.stop()
        await server.stop(0)
        if member is not None:
            await member.stop()
        await context.close()
        if member is not None:
            await member.leave()


def _check_devices(config: ServerConfig) -> None:
    """Without its GPU, a server must not even look at its snapshots: each of them would seem damaged."""
    for name, device in (("predictor.device", config.predictor.device), ("trainer.device", config.trainer.device)):
        try:
            resolve_device(device)
        except ConfigError as error:
            raise ConfigurationError(f"{name}: {error}") from None


_PENDING_CALLS = 1 << 16
"""Calls that may wait to be accepted. By default gRPC drops some from the thousandth on, without a word to the handler:
their clients read CANCELLED, whenever the event loop is busy for a third of a second. What waits is bounded by
`batching.queue_examples` and `limits.streams`, and refused with a reason (`tests/server/api/test_accepting.py`)."""


def transport_options(limits: LimitsConfig) -> list[tuple[str, Any]]:
    """The settings of gRPC's own core."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.server.max_pending_requests", _PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", _PENDING_CALLS),
    ]


def _register(guard: Any, context: ServerContext, healthy: Any) -> None:
    learning_pb2_grpc.add_LearningServicer_to_server(context.learning, guard)
    prediction_pb2_grpc.add_PredictionServicer_to_server(context.prediction, guard)
    admin_pb2_grpc.add_AdminServicer_to_server(context.admin, guard)
    open_inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(context.inference, guard)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, guard)
    names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), guard)


def _bind(server: grpc.aio.Server, config: ServerConfig, credentials: grpc.ServerCredentials | None) -> int:
    host = f"[{config.listen.host}]" if ":" in config.listen.host else config.listen.host
    address = f"{host}:{config.listen.port}"
    try:
        port = (
            server.add_secure_port(address, credentials)
            if credentials is not None
            else server.add_insecure_port(address)
        )
    except RuntimeError:
        port = 0
    if not port:
        raise PortInUseError(f"cannot listen on {address}: is another server there?")
    return port


def _make_http(context: ServerContext, admission: Admission, member: ClusterMember | None) -> HttpPort:
    app: Any = make_app(context.http, admission, None if member is None else member.forwarder.others)
    config = context.http.config
    return HttpPort(app if member is None else member.http_app(app), config, tls_context(config.trust))


async def _start_http(http: HttpPort, config: ServerConfig) -> int:
    host = config.http.host or config.listen.host
    try:
        return await http.start(host, config.http.port)
    except OSError as error:
        raise PortInUseError(f"cannot listen on {host}:{config.http.port} for HTTP: {error.strerror}") from None


async def _set_readiness(healthy: Any, status: Any) -> None:
    for name in SERVICES:
        await healthy.set(name, status)


def _announce(config: ServerConfig, port: int, http_port: int, as_json: bool) -> None:
    ports = {"port": port, "http_port": http_port, "pid": os.getpid()}
    line = f"sharp {version.version()} serves on {config.listen.host}:{port}, http {http_port}"
    if as_json:
        line = json.dumps({"event": "serving", "version": version.version(), "host": config.listen.host, **ports})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    log.info("serving on %s:%d, http on %d", config.listen.host, port, http_port)
    if config.listen.port_file:
        path = Path(config.listen.port_file)
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(json.dumps(ports) + "\n")
        temporary.replace(path)
