"""The Open Inference Protocol over REST: JSON, and the extension for binary data.

It says the same as the protocol's gRPC half, word for word, so requests are handed to that: here is only the form.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Request
from fastapi.exceptions import RequestValidationError
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response

from sharp.inference import open_inference_pb2 as pb
from sharp_server.api.open_inference import InferenceService
from sharp_server.errors import RpcError
from sharp_server.http.body import too_large
from sharp_server.http.guard import HttpGuard
from sharp_server.learners.registry import Registry
from sharp_server.prediction.model import nothing_learned
from sharp_server.runtime.server_state import ServerState, not_ready

_DTYPES: dict[str, np.dtype[Any]] = {"FP32": np.dtype("<f4"), "UINT8": np.dtype("u1"), "INT64": np.dtype("<i8")}
_HEADER = "Inference-Header-Content-Length"

ModelName = Annotated[str, Path(description="The learner's name.")]
ModelVersion = Annotated[str, Path(description="The version that serves.")]
Side = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]


class Tensor(BaseModel):
    """An input or an output. Its data are here, or binary after the JSON."""

    name: str
    datatype: str
    shape: list[Side]
    parameters: dict[str, Any] = Field(default_factory=dict)
    data: list[Any] | None = None


class WantedOutput(BaseModel):
    """An output that is asked for."""

    name: str
    parameters: dict[str, Any] = Field(default_factory=dict)


class InferRequest(BaseModel):
    """Examples to predict."""

    id: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    inputs: list[Tensor]
    outputs: list[WantedOutput] = Field(default_factory=list)


class InferResponse(BaseModel):
    """The answer."""

    model_name: str
    model_version: str
    id: str
    parameters: dict[str, Any]
    outputs: list[Tensor]


class Live(BaseModel):
    """The server answers."""

    live: bool


class Ready(BaseModel):
    """The server, or a learner, takes predictions."""

    ready: bool


class ModelReady(Ready):
    """A learner can predict."""

    name: str


class ServerMetadata(BaseModel):
    """Name and version of the software."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """What a tensor is like; a size of -1 may be any."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """What a learner takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


_INFER_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/InferRequest"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
_BINARY_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}


def routers(
    guard: HttpGuard, json_bytes: int, state: ServerState, registry: Registry, service: InferenceService
) -> list[APIRouter]:
    """The routes."""
    tag = "Open Inference Protocol"
    probes = guard.router(None, tag, always=True)
    server = guard.router("predict", tag, always=True)
    models = guard.router("predict", tag)

    @probes.get("/v2/health/live")
    async def server_live() -> Live:
        """Whether the server answers."""
        return Live(live=True)

    @probes.get("/v2/health/ready")
    async def server_ready() -> Ready:
        """Whether the server takes predictions; 503 while it does not."""
        if not state.serving:
            raise not_ready(state.stage)
        return Ready(ready=True)

    @server.get("/v2")
    async def server_metadata() -> ServerMetadata:
        """Name and version of the software."""
        found = await service.ServerMetadata(pb.ServerMetadataRequest(), None)
        return ServerMetadata(name=found.name, version=found.version, extensions=["binary_tensor_data"])

    async def metadata(name: str, version: str) -> ModelMetadata:
        found = await service.ModelMetadata(pb.ModelMetadataRequest(name=name, version=version), None)
        inputs, outputs = (
            [TensorMetadata(name=t.name, datatype=t.datatype, shape=list(t.shape)) for t in tensors]
            for tensors in (found.inputs, found.outputs)
        )
        return ModelMetadata(
            name=found.name, versions=list(found.versions), platform=found.platform, inputs=inputs, outputs=outputs
        )

    async def ready(name: str, version: str) -> ModelReady:
        served = registry.get(name)
        await metadata(name, version)  # refuses a version that does not serve
        if served.model.predictor is None:
            raise nothing_learned(served.model.version)
        return ModelReady(name=name, ready=True)

    async def infer(name: str, version: str, request: Request) -> Response:
        body = await request.body()
        asked, rest = _read(body, request.headers.get(_HEADER), json_bytes)
        message = _message(asked, rest)
        message.model_name, message.model_version = name, version
        return _answer(asked, await service.ModelInfer(message, None))

    @models.get("/v2/models/{name}")
    async def model_metadata(name: ModelName) -> ModelMetadata:
        """What a learner takes and gives."""
        return await metadata(name, "")

    @models.get("/v2/models/{name}/ready")
    async def model_ready(name: ModelName) -> ModelReady:
        """Whether a learner can predict; 400 while it knows nothing."""
        return await ready(name, "")

    @models.post(
        "/v2/models/{name}/infer", response_model=InferResponse, responses=_BINARY_ANSWER, openapi_extra=_INFER_BODY
    )
    async def model_infer(name: ModelName, request: Request) -> Response:
        """Predict the class of each example."""
        return await infer(name, "", request)

    @models.get("/v2/models/{name}/versions/{version}")
    async def version_metadata(name: ModelName, version: ModelVersion) -> ModelMetadata:
        """The same of one version, if it serves."""
        return await metadata(name, version)

    @models.get("/v2/models/{name}/versions/{version}/ready")
    async def version_ready(name: ModelName, version: ModelVersion) -> ModelReady:
        """The same of one version."""
        return await ready(name, version)

    @models.post(
        "/v2/models/{name}/versions/{version}/infer",
        response_model=InferResponse,
        responses=_BINARY_ANSWER,
        openapi_extra=_INFER_BODY,
    )
    async def version_infer(name: ModelName, version: ModelVersion, request: Request) -> Response:
        """The same by one version, if it serves."""
        return await infer(name, version, request)

    return [probes, server, models]


# ---- reading --------------------------------------------------------------------------------------------------------


def _read(body: bytes, announced: str | None, json_bytes: int) -> tuple[InferRequest, bytes]:
    """The JSON of a body, and the binary data after it."""
    length = len(body)
    if announced is not None:
        if not (announced.isascii() and announced.isdigit()) or int(announced[:19]) > len(body):
            raise _invalid(_HEADER, "it must be the length of the JSON at the start of the body")
        length = int(announced)
    if length > json_bytes:
        raise too_large(json_bytes)
    try:
        return InferRequest.model_validate_json(body[:length]), body[length:]
    except ValidationError as error:
        raise RequestValidationError([{**entry, "loc": ("body", *entry["loc"])} for entry in error.errors()]) from None


def _message(asked: InferRequest, rest: bytes) -> pb.ModelInferRequest:
    """The same request as the protocol's gRPC half has it."""
    message = pb.ModelInferRequest(id=asked.id)
    _set_parameters(message.parameters, asked.parameters)
    place = 0
    for i, tensor in enumerate(asked.inputs):
        at = f"inputs[{i}]"
        entry = message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        _set_parameters(entry.parameters, tensor.parameters)
        size = tensor.parameters.get("binary_data_size")
        if size is not None:
            if type(size) is not int or not 0 <= size <= len(rest) - place:
                raise _invalid(f"{at}.parameters.binary_data_size", "there are not so many bytes after the JSON")
            message.raw_input_contents.append(rest[place : place + size])
            place += size
        elif tensor.data is not None:
            message.raw_input_contents.append(_raw(tensor.datatype, tensor.data, f"{at}.data"))
    if place != len(rest):
        raise _invalid("body", "there are bytes after the JSON that no input lays claim to")
    for wanted in asked.outputs:
        _set_parameters(message.outputs.add(name=wanted.name).parameters, wanted.parameters)
    return message


def _set_parameters(target: Any, parameters: dict[str, Any]) -> None:
    """Their names: what some of them would ask for is refused by name, and no value of one counts."""
    for name in parameters:
        target[name].bool_param = True


def _raw(datatype: str, data: list[Any], at: str) -> bytes:
    """JSON's numbers as bytes, flat or nested; images of BYTES as texts in base64."""
    if datatype == "BYTES":
        try:
            files = [base64.b64decode(text, validate=True) for text in data]
        except (TypeError, ValueError, binascii.Error):
            raise _invalid(at, "images are texts in base64") from None
        return b"".join(struct.pack("<I", len(file)) + file for file in files)
    try:
        found: NDArray[Any] = np.asarray(data)
    except (ValueError, OverflowError):
        raise _invalid(at, "the rows are not all of one length") from None
    if found.size and found.dtype.kind not in "iuf":
        raise _invalid(at, "the data are not all numbers")
    if datatype == "UINT8" and not (found.dtype.kind in "iu" and found.min() >= 0 and found.max() <= 255):
        raise _invalid(at, "UINT8 takes integers from 0 to 255")
    with np.errstate(over="ignore"):  # too large a number is an infinity, which is refused
        raw: bytes = found.astype(_DTYPES.get(datatype, _DTYPES["FP32"])).tobytes()
    return raw


def _invalid(field: str, message: str) -> RpcError:
    return RpcError("FIELD_INVALID", message, fields=(field,), field=field)


# ---- answering ------------------------------------------------------------------------------------------------------


def _answer(asked: InferRequest, found: pb.ModelInferResponse) -> Response:
    """The answer, with binary data for those outputs that were asked for so."""
    everything = asked.parameters.get("binary_data_output") is True
    binary = {wanted.name: wanted.parameters.get("binary_data", everything) is True for wanted in asked.outputs}
    outputs, rest = [], b""
    for tensor, raw in zip(found.outputs, found.raw_output_contents, strict=True):
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        if binary.get(tensor.name, everything):
            entry["parameters"] = {"binary_data_size": len(raw)}
            rest += raw
        else:
            entry["data"] = _values(tensor.datatype, raw)
        outputs.append(entry)
    content = {
        "model_name": found.model_name,
        "model_version": found.model_version,
        "id": found.id,
        "parameters": {name: value.int64_param for name, value in found.parameters.items()},
        "outputs": outputs,
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    if not rest:
        return Response(text, media_type="application/json")
    return Response(text + rest, headers={_HEADER: str(len(text))}, media_type="application/octet-stream")


def _values(datatype: str, raw: bytes) -> list[Any]:
    if datatype != "BYTES":
        values: list[Any] = np.frombuffer(raw, _DTYPES[datatype]).tolist()
        return values
    texts, place = [], 0
    while place < len(raw):
        length = int.from_bytes(raw[place : place + 4], "little")
        texts.append(raw[place + 4 : place + 4 + length].decode())
        place += 4 + length
    return texts
