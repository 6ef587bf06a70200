"""The Open Inference Protocol's prediction part: each learner a model, its serving version the model's version."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from sharp.inference import open_inference_pb2 as pb
from sharp.inference import open_inference_pb2_grpc
from sharp.v1 import tensor_pb2
from sharp_server.api.decode import InputDecoder
from sharp_server.api.decode.tensors import check_count
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.learners.inputs import MOST_SIDES, Examples
from sharp_server.learners.registry import Registry
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.prediction.batcher import Batcher, Slice
from sharp_server.prediction.model import nothing_learned
from sharp_server.runtime import version
from sharp_server.runtime.server_state import ServerState

_OUTPUTS = ("label", "vote_share", "distance", "novelty")
_DTYPES = {"UINT8": tensor_pb2.DTYPE_UINT8, "FP32": tensor_pb2.DTYPE_FLOAT32}
_SEQUENCES = ("sequence_id", "sequence_start", "sequence_end")
_SHARED_MEMORY = ("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size")


class InferenceService(open_inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Serves `inference.GRPCInferenceService`."""

    def __init__(
        self, limits: LimitsConfig, state: ServerState, registry: Registry, batcher: Batcher, decoder: InputDecoder
    ) -> None:
        self._limits, self._state, self._registry = limits, state, registry
        self._batcher, self._decoder = batcher, decoder

    async def ServerLive(self, request: Any, context: Any) -> pb.ServerLiveResponse:  # noqa: N802
        """Whether the server answers."""
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> pb.ServerReadyResponse:  # noqa: N802
        """Whether the server takes predictions."""
        return pb.ServerReadyResponse(ready=self._state.serving)

    async def ModelReady(self, request: pb.ModelReadyRequest, context: Any) -> pb.ModelReadyResponse:  # noqa: N802
        """Whether a learner can predict."""
        served = self._registry.find(request.name)
        ready = (
            served is not None
            and served.model.predictor is not None
            and request.version in ("", str(served.model.version))
        )
        return pb.ModelReadyResponse(ready=ready)

    async def ServerMetadata(self, request: Any, context: Any) -> pb.ServerMetadataResponse:  # noqa: N802
        """Name and version of the software."""
        return pb.ServerMetadataResponse(name="sharp", version=version.version())

    async def ModelMetadata(  # noqa: N802
        self, request: pb.ModelMetadataRequest, context: Any
    ) -> pb.ModelMetadataResponse:
        """What a learner takes and gives."""
        served = self._registry.get(request.name)
        _check_version(served, request.version)
        tensor = pb.ModelMetadataResponse.TensorMetadata
        labels = "INT64" if served.label_kind == "integer" else "BYTES"
        return pb.ModelMetadataResponse(
            name=served.name,
            versions=[str(served.model.version)] if served.model.version else [],
            platform="sharp",
            inputs=[tensor(name="input", datatype="FP32", shape=[-1, *(served.input_shape or ())])],
            outputs=[
                tensor(name=name, datatype=labels if name == "label" else "FP32", shape=[-1]) for name in _OUTPUTS
            ],
        )

    async def ModelInfer(self, request: pb.ModelInferRequest, context: Any) -> pb.ModelInferResponse:  # noqa: N802
        """Predict the class of each example."""
        served = self._registry.get(request.model_name)
        _check_version(served, request.model_version)
        if len(request.outputs) > 16:
            raise _invalid("outputs", "at most 16 outputs")
        if len(request.inputs) > 16:
            raise _invalid("inputs", "exactly one input with one raw content is taken")
        _check_features(request)
        outputs = [output.name for output in request.outputs] or list(_OUTPUTS[:3])
        for i, name in enumerate(outputs):
            if name not in _OUTPUTS:
                raise _invalid(f"outputs[{i}].name", f"no output {name[:80]!r}; there are {', '.join(_OUTPUTS)}")
        if served.model.predictor is None:
            raise nothing_learned(served.model.version)
        if len(request.inputs) != 1 or len(request.raw_input_contents) != 1:
            raise _invalid("inputs", "exactly one input with one raw content is taken")
        examples = await self._examples(served, request)
        part = await self._batcher.predict(served, examples.x, 0, 0, "novelty" in outputs)
        return _response(request, part, outputs)

    async def _examples(self, served: ServedLearner, request: pb.ModelInferRequest) -> Examples:
        tensor, data, at = request.inputs[0], request.raw_input_contents[0], "inputs[0]"
        dims = tuple(tensor.shape[:MOST_SIDES])
        if tensor.datatype == "BYTES":
            files = _elements(data, dims, self._limits)
            return await self._decoder.images(files, False, served.input_spec, at)
        if tensor.datatype not in _DTYPES:
            message = "the input must be UINT8, FP32 or BYTES"
            raise RpcError("DTYPE_UNSUPPORTED", message, dtype=tensor.datatype, fields=(f"{at}.datatype",))
        return await self._decoder.raw(_DTYPES[tensor.datatype], dims, data, served.input_spec, at)


def _invalid(field: str, message: str) -> RpcError:
    return RpcError("FIELD_INVALID", message, fields=(field,), field=field)


def _check_version(served: ServedLearner, version: str) -> None:
    serving = str(served.model.version)
    if version and (version != serving or not served.model.version):
        raise RpcError(
            "VERSION_NOT_FOUND", "that version is not being served", version=version, serving=serving,
            learner=served.name,
        )  # fmt: skip


def _check_features(request: pb.ModelInferRequest) -> None:
    """Refuse what this server does not offer, by its name."""
    feature = ""
    if any(name in request.parameters for name in _SEQUENCES):
        feature = "sequences"
    for tensor in request.inputs:
        if tensor.HasField("contents"):
            feature = "typed contents"
        if any(name in tensor.parameters for name in _SHARED_MEMORY):
            feature = "shared memory"
    for output in request.outputs:
        if any(name in output.parameters for name in _SHARED_MEMORY):
            feature = "shared memory"
        if "classification" in output.parameters:
            feature = "class counts"
    if feature:
        raise RpcError("FEATURE_UNSUPPORTED", f"{feature} are not offered", feature=feature)


def _elements(data: bytes, shape: tuple[int, ...], limits: LimitsConfig) -> list[bytes]:
    """The elements of a BYTES tensor of shape [n]."""
    if len(shape) != 1:
        raise RpcError("SHAPE_MISMATCH", "a BYTES input has the shape [n]", expected="[n]", found=list(shape),
                      fields=("inputs[0].shape",))  # fmt: skip
    check_count(shape[0], limits)
    elements: list[bytes] = []
    place = 0
    while place + 4 <= len(data) and len(elements) < max(shape[0], 0):
        length = int.from_bytes(data[place : place + 4], "little")
        if place + 4 + length > len(data):
            break
        elements.append(data[place + 4 : place + 4 + length])
        place += 4 + length
    if place != len(data) or len(elements) != shape[0]:
        raise RpcError(
            "TENSOR_SIZE_MISMATCH", "the elements are not as many or as long as announced", expected=shape[0],
            found=len(elements), fields=("raw_input_contents[0]",),
        )  # fmt: skip
    return elements


def _response(request: pb.ModelInferRequest, part: Slice, outputs: list[str]) -> pb.ModelInferResponse:
    found, span, model = part.batch.predictions, slice(part.first, part.end), part.batch.model
    labels: list[Any] = found.labels[span]
    response = pb.ModelInferResponse(model_name=request.model_name, model_version=str(model.version), id=request.id)
    for key, value in (
        ("episodes_learned", model.episodes),
        ("queue_us", int(part.waited * 1e6)),
        ("compute_us", int(part.batch.seconds * 1e6)),
    ):
        response.parameters[key].int64_param = value
    for name in outputs:
        if name == "label" and isinstance(labels[0], str):
            texts = [label.encode() for label in labels]
            datatype, raw = "BYTES", b"".join(struct.pack("<I", len(text)) + text for text in texts)
        elif name == "label":
            datatype, raw = "INT64", np.asarray(labels, "<i8").tobytes()
        else:
            values = {"vote_share": found.share, "distance": found.distance, "novelty": found.novelty}[name]
            assert values is not None
            datatype, raw = "FP32", values[span].astype("<f4").tobytes()
        response.outputs.add(name=name, datatype=datatype, shape=[len(labels)])
        response.raw_output_contents.append(raw)
    return response
