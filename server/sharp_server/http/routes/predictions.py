"""Asking a learner: vectors in JSON, images as files."""

from __future__ import annotations

import asyncio
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Form, UploadFile

from sharp.v1 import tensor_pb2
from sharp_server.api.decode import InputDecoder
from sharp_server.api.prediction import refuse_results
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.http import conversion, models
from sharp_server.http.guard import HttpGuard
from sharp_server.http.routes.learners import Name
from sharp_server.learners.inputs import Examples, InputSpec, shape_text
from sharp_server.learners.registry import Registry
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.prediction.batcher import Batcher
from sharp_server.prediction.model import nothing_learned

Images = Annotated[list[UploadFile], Form(description="PNG, JPEG, WebP or BMP files.")]
Resize = Annotated[bool, Form(description="Whether to scale images to the learner's size.")]
Results = Annotated[int, Form(ge=0, lt=1 << 32)]


def routers(
    guard: HttpGuard, limits: LimitsConfig, registry: Registry, batcher: Batcher, decoder: InputDecoder
) -> list[APIRouter]:
    """The routes."""
    router = guard.router("predict", "predictions")

    async def ready(name: str, top: int, memories: int, version: int, known: int) -> tuple[ServedLearner, float]:
        """The learner, when it can answer, and how long that took."""
        served = registry.get(name)
        if top > limits.top_k or memories > limits.nearest_memories:
            refuse_results(top, limits)
        begun = asyncio.get_running_loop().time()
        if version > served.model.version:
            await served.reach(version, limits.version_wait_seconds)
        if known > served.examples_known:
            await served.reach_examples(known, limits.version_wait_seconds)
        if served.model.predictor is None:
            raise nothing_learned(served.model.version)
        return served, asyncio.get_running_loop().time() - begun

    async def answer(
        served: ServedLearner, examples: Examples, top: int, memories: int, novelty: bool, waited: float
    ) -> models.Predictions:
        part = await batcher.predict(served, examples.x, top, memories, novelty)
        return conversion.predictions(part, top, memories, novelty, waited)

    @router.post("/api/learners/{name}/predict")
    async def predict(name: Name, request: models.PredictRequest) -> models.Predictions:
        """Predict the class of each vector."""
        top, memories = request.top_k, request.nearest_memories
        served, waited = await ready(name, top, memories, request.min_model_version, request.min_examples)
        examples = await vector_examples(decoder, request.vectors, served.input_spec)
        return await answer(served, examples, top, memories, request.novelty, waited)

    @router.post("/api/learners/{name}/predict/images")
    async def predict_images(
        name: Name,
        images: Images,
        resize: Resize = False,
        top_k: Results = 0,
        nearest_memories: Results = 0,
        novelty: Annotated[bool, Form()] = False,
        min_model_version: Annotated[int, Form(ge=0, lt=1 << 63)] = 0,
        min_examples: Annotated[int, Form(ge=0, lt=1 << 63)] = 0,
    ) -> models.Predictions:
        """Predict the class of each image."""
        served, waited = await ready(name, top_k, nearest_memories, min_model_version, min_examples)
        examples = await image_examples(decoder, images, resize, served.input_spec)
        return await answer(served, examples, top_k, nearest_memories, novelty, waited)

    return [router]


async def vector_examples(decoder: InputDecoder, vectors: list[list[float]], spec: InputSpec) -> Examples:
    """Vectors as examples, with every check."""
    lengths = {len(vector) for vector in vectors}
    if len(lengths) != 1:
        message = "the vectors are not all of one length"
        found = shape_text(sorted(lengths))
        raise RpcError("SHAPE_MISMATCH", message, fields=("vectors",), expected="vectors of one length", found=found)
    with np.errstate(over="ignore"):  # too large a number is an infinity, which is refused
        x = np.asarray(vectors, "<f4")
    return await decoder.raw(tensor_pb2.DTYPE_FLOAT32, x.shape, x.tobytes(), spec, "vectors")


async def image_examples(decoder: InputDecoder, images: list[UploadFile], resize: bool, spec: InputSpec) -> Examples:
    """Image files as examples, with every check."""
    return await decoder.images([await image.read() for image in images], resize, spec, "images")
