"""Inputs are checked in full before anything is made of them."""

from __future__ import annotations

import asyncio
import io
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sharp.v1 import label_pb2, tensor_pb2
from sharp_server.api.decode import InputDecoder, label_of, labels_of
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.learners.inputs import Examples


def examples_of(message: tensor_pb2.Inputs, shape: tuple[int, ...] | None, limits: LimitsConfig) -> Examples:
    with ThreadPoolExecutor(1) as threads:
        return asyncio.run(InputDecoder(limits, threads).examples(message, shape))


LIMITS = LimitsConfig(image_pixels=10_000, batch_examples=1024)
U8, F32 = tensor_pb2.DTYPE_UINT8, tensor_pb2.DTYPE_FLOAT32


def inputs(dtype: Any, shape: list[int], data: bytes) -> tensor_pb2.Inputs:
    return tensor_pb2.Inputs(tensor=tensor_pb2.Tensor(dtype=dtype, shape=shape, data=data))


def image(mode: str, size: tuple[int, int], kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, 128 if mode == "L" else tuple([128] * len(mode))).save(out, kind)
    return out.getvalue()


def images(*files: bytes, resize: bool = False) -> tensor_pb2.Inputs:
    return tensor_pb2.Inputs(images=tensor_pb2.EncodedImages(images=files, resize=resize))


def bomb() -> bytes:
    """A PNG of 50000×50000 pixels by its header, and a few bytes by its size."""
    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 0, 0, 0, 0)
    chunks = [b"IHDR" + header, b"IDAT" + zlib.compress(bytes(1000))]
    parts = [struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def jpeg_of_scans(count: int) -> bytes:
    """A JPEG that has its scan over and over; each one is decoded over the whole image."""
    whole = image("L", (8, 8), "JPEG")
    start = whole.rindex(b"\xff\xda")
    return whole[:start] + whole[start:-2] * count + whole[-2:]


@pytest.mark.parametrize(
    ("message", "shape", "reason"),
    [
        (inputs(0, [1, 4], b"1234"), None, "DTYPE_UNSUPPORTED"),
        (inputs(9, [1, 4], b"1234"), None, "DTYPE_UNSUPPORTED"),
        (inputs(U8, [], b""), None, "SHAPE_MISMATCH"),
        (inputs(U8, [4], b"1234"), None, "SHAPE_MISMATCH"),
        (inputs(U8, [1, 2, 2], b"1234"), None, "SHAPE_MISMATCH"),
        (inputs(U8, [1, 4], b"1234"), (5,), "SHAPE_MISMATCH"),
        (inputs(U8, [0, 4], b""), None, "FIELD_INVALID"),
        (inputs(U8, [2**31, 2**31, 2**31, 2**31], b"1"), None, "TOO_MANY_EXAMPLES"),
        (inputs(U8, [1, 2**31, 2**31, 2**31], b"1"), None, "FIELD_INVALID"),
        (inputs(F32, [1, 4], b"1234"), None, "TENSOR_SIZE_MISMATCH"),
        (inputs(U8, [1025, 1], b"1" * 1025), None, "TOO_MANY_EXAMPLES"),
        (inputs(F32, [2, 1], np.array([1, np.nan], np.float32).tobytes()), None, "NON_FINITE_VALUES"),
        (inputs(F32, [2, 1], np.array([np.inf, 0], np.float32).tobytes()), None, "NON_FINITE_VALUES"),
        (tensor_pb2.Inputs(), None, "FIELD_INVALID"),
        (images(), None, "FIELD_INVALID"),
        (images(b"GIF89a"), None, "IMAGE_MALFORMED"),
        (images(b""), None, "IMAGE_MALFORMED"),
        (images(image("RGB", (8, 8))[:60]), None, "IMAGE_MALFORMED"),
        (images(image("RGB", (8, 8), "JPEG")[:30]), None, "IMAGE_MALFORMED"),
        (images(bomb()), None, "IMAGE_TOO_LARGE"),
        (images(*[image("L", (100, 100))] * 9), None, "TOO_MANY_EXAMPLES"),
        (images(jpeg_of_scans(101)), None, "IMAGE_MALFORMED"),
        (inputs(U8, [1, 4] + [1] * 100_000, b"1234"), (4,), "SHAPE_MISMATCH"),
        (images(image("L", (8, 8)), image("L", (9, 8))), None, "SHAPE_MISMATCH"),
        (images(image("L", (8, 8))), (12,), "SHAPE_MISMATCH"),
        (images(image("L", (8, 8))), (1, 9, 9), "SHAPE_MISMATCH"),
    ],
)
def test_bad_inputs_are_refused_with_their_reason(message: Any, shape: Any, reason: str) -> None:
    with pytest.raises(RpcError) as caught:
        examples_of(message, shape, LIMITS)
    assert caught.value.reason == reason


def test_a_tensor_is_a_view_of_the_bytes_that_came() -> None:
    data = bytes(range(12))
    examples = examples_of(inputs(U8, [3, 4], data), (4,), LIMITS)
    assert np.shares_memory(examples.x, np.frombuffer(examples.data, np.uint8))
    np.testing.assert_array_equal(examples.x, np.arange(12).reshape(3, 4))


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_images_are_converted_to_the_channels_of_the_learner(kind: str) -> None:
    grey, colour = image("L", (6, 4), kind), image("RGB", (6, 4), kind)
    assert examples_of(images(grey), None, LIMITS).x.shape == (1, 1, 4, 6)
    assert examples_of(images(colour, grey), None, LIMITS).x.shape == (2, 3, 4, 6)
    assert examples_of(images(colour), (1, 4, 6), LIMITS).x.shape == (1, 1, 4, 6)
    assert examples_of(images(colour, resize=True), (3, 8, 8), LIMITS).x.shape == (1, 3, 8, 8)
    small, large = image("RGB", (6, 5)), image("RGB", (4, 9))
    assert examples_of(images(small, large, resize=True), None, LIMITS).x.shape[2:] == (5, 6)
    np.testing.assert_array_equal(examples_of(images(grey), (3, 4, 6), LIMITS).x, np.full((1, 3, 4, 6), 128))
    assert examples_of(images(image("RGBA", (6, 4))), None, LIMITS).x.shape == (1, 3, 4, 6)


@pytest.mark.parametrize(
    ("labels", "kind", "reason"),
    [
        (label_pb2.Labels(), None, "FIELD_INVALID"),
        (label_pb2.Labels(texts=label_pb2.TextLabels(values=["a"])), None, "LABEL_COUNT_MISMATCH"),
        (label_pb2.Labels(texts=label_pb2.TextLabels(values=["a", ""])), None, "LABEL_INVALID"),
        (label_pb2.Labels(texts=label_pb2.TextLabels(values=["a", "b" * 1025])), None, "LABEL_INVALID"),
        (label_pb2.Labels(texts=label_pb2.TextLabels(values=["a", "b"])), "integer", "LABEL_KIND_MISMATCH"),
        (label_pb2.Labels(integers=label_pb2.IntegerLabels(values=[1, 2])), "text", "LABEL_KIND_MISMATCH"),
    ],
)
def test_bad_labels_are_refused_with_their_reason(labels: label_pb2.Labels, kind: str | None, reason: str) -> None:
    with pytest.raises(RpcError) as caught:
        labels_of(labels, kind, 2)
    assert caught.value.reason == reason


def test_a_single_label_is_required_and_of_the_learners_kind() -> None:
    assert label_of(label_pb2.Label(integer=0), "integer") == 0
    assert label_of(label_pb2.Label(text="a"), None) == "a"
    with pytest.raises(RpcError, match="missing"):
        label_of(label_pb2.Label(), None)
