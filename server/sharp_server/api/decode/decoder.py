"""The examples of a message, in whichever form they came; heavy checks and decoding go to threads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

from sharp.v1 import tensor_pb2
from sharp_server.api.decode.images import image_examples
from sharp_server.api.decode.tensors import INLINE_BYTES, raw_examples, tensor_examples, tensor_needs_thread
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.learners.inputs import Examples, InputSpec


class InputDecoder:
    """Checks and decodes inputs within the server's limits."""

    def __init__(self, limits: LimitsConfig, threads: Executor) -> None:
        self._limits, self._threads = limits, threads

    def decode_inline(self, inputs: tensor_pb2.Inputs, spec: InputSpec) -> Examples | None:
        """The examples, if that is little enough work for the event loop; else None."""
        kind = inputs.WhichOneof("kind")
        if kind is None:
            raise RpcError("FIELD_INVALID", "the examples are missing", fields=("inputs",), field="inputs")
        if kind == "images":
            return None
        tensor = inputs.tensor  # once: every look at a message makes an object
        return None if tensor_needs_thread(tensor) else tensor_examples(tensor, spec, self._limits)

    async def examples(self, inputs: tensor_pb2.Inputs, spec: InputSpec) -> Examples:
        """The examples, decoded in a thread where that is much work."""
        examples = self.decode_inline(inputs, spec)
        if examples is not None:
            return examples
        if inputs.WhichOneof("kind") == "images":
            return await self.images(inputs.images.images, inputs.images.resize, spec, "inputs.images")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, tensor_examples, inputs.tensor, spec, self._limits)

    async def images(self, images: Sequence[bytes], resize: bool, spec: InputSpec, at: str) -> Examples:
        """Encoded images; `resize`: the request asks for it."""
        resize = resize or spec.resize
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, image_examples, images, resize, spec.shape, self._limits, at)

    async def raw(self, dtype: int, dims: tuple[int, ...], data: bytes, spec: InputSpec, at: str) -> Examples:
        """A tensor by its parts."""
        work = (dtype, dims, data, spec, self._limits, at)
        if len(data) <= INLINE_BYTES or dtype == tensor_pb2.DTYPE_UINT8:
            return raw_examples(*work)
        return await asyncio.get_running_loop().run_in_executor(self._threads, raw_examples, *work)
