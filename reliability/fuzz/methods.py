"""Every method that a server offers, as listed by its own reflection, so that none can be forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]

from sharp.inference import open_inference_pb2
from sharp.v1 import admin_pb2, learning_pb2, prediction_pb2

KNOWN = (learning_pb2, prediction_pb2, admin_pb2, open_inference_pb2, health_pb2, reflection_pb2)
"""The modules whose descriptors are in the pool because they were imported here."""

_KINDS = {
    (False, False): "unary_unary",
    (False, True): "unary_stream",
    (True, False): "stream_unary",
    (True, True): "stream_stream",
}


@dataclass(frozen=True)
class Method:
    """One method, to be called with bytes."""

    path: str
    request: Descriptor
    response: Descriptor
    takes_stream: bool
    gives_stream: bool

    def on(self, channel: grpc.Channel) -> Any:
        """The method on a channel: bytes go in, bytes come out."""
        return getattr(channel, _KINDS[self.takes_stream, self.gives_stream])(self.path)


def offered(channel: grpc.Channel, metadata: Any = None) -> tuple[Method, ...]:
    """The methods of all services that the server behind a channel lists."""
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    answer = next(iter(stub.ServerReflectionInfo(iter([question]), timeout=60, metadata=metadata)))
    names = sorted(service.name for service in answer.list_services_response.service)
    pool = descriptor_pool.Default()
    return tuple(
        Method(
            f"/{name}/{method.name}",
            method.input_type,
            method.output_type,
            method.client_streaming,
            method.server_streaming,
        )
        for name in names
        for method in pool.FindServiceByName(name).methods
    )
