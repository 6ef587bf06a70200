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
from sharp_engine.config import ArchitectureConfig
from sharp_server.api.decode import InputDecoder, label_of, labels_of
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.learners.inputs import Examples, InputSpec


def examples_of(
    message: tensor_pb2.Inputs, shape: tuple[int, ...] | None, limits: LimitsConfig, **spec: Any
) -> Examples:
    with ThreadPoolExecutor(1) as threads:
        return asyncio.run(InputDecoder(limits, threads).examples(message, InputSpec(shape, **spec)))


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


def webp_canvas(width: int, height: int) -> bytes:
    """A WebP that claims a canvas, and has nothing on it."""
    content = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    chunk = b"VP8X" + struct.pack("<I", len(content)) + content
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def bmp_with_runs() -> bytes:
    """A BMP of eight bits per pixel whose rows are run-length encoded."""
    plain = bytearray(image("L", (8, 8), "BMP"))
    plain[30:34] = struct.pack("<I", 1)
    return bytes(plain)


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
        (images(image("RGB", (8, 8), "WEBP")[:40]), None, "IMAGE_MALFORMED"),
        (images(image("RGB", (8, 8), "WEBP")[:22]), None, "IMAGE_MALFORMED"),
        (images(image("RGB", (101, 100), "WEBP")), None, "IMAGE_TOO_LARGE"),
        (images(webp_canvas(1 << 24, 1 << 24)), None, "IMAGE_TOO_LARGE"),
        (images(image("RGB", (8, 8), "BMP")[:70]), None, "IMAGE_MALFORMED"),
        (images(image("RGB", (101, 100), "BMP")), None, "IMAGE_TOO_LARGE"),
        (images(bmp_with_runs()), None, "IMAGE_MALFORMED"),
        (inputs(F32, [1, 1, 2, 2], np.array([0, 9, 200, 255], np.float32).tobytes()), None, "VALUES_OUT_OF_RANGE"),
        (inputs(F32, [1, 1, 1, 2], np.array([-40, 0], np.float32).tobytes()), (1, 1, 2), "VALUES_OUT_OF_RANGE"),
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


@pytest.mark.parametrize(("kind", "options"), [("WEBP", {"lossless": True}), ("BMP", {})])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "1", "P"])
def test_webp_and_bmp_keep_their_pixels(kind: str, options: dict[str, Any], mode: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (7, 9, 3), dtype=np.uint8)
    picture, out = Image.fromarray(pixels).convert(mode), io.BytesIO()
    picture.save(out, kind, **options)
    found = examples_of(images(out.getvalue()), (3, 7, 9), LIMITS).x[0]
    np.testing.assert_array_equal(found.transpose(1, 2, 0), np.asarray(picture.convert("RGB")))


def test_the_first_image_of_an_animation_counts() -> None:
    out = io.BytesIO()
    frames = [Image.new("RGB", (6, 6), colour) for colour in ("red", "blue")]
    frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    found = examples_of(images(out.getvalue()), None, LIMITS).x[0]
    assert found[:, 3, 3].tolist() == [255, 0, 0]


def test_a_learner_that_resizes_does_so_without_being_asked() -> None:
    small, large = image("L", (5, 4)), image("RGB", (30, 20), "JPEG")
    assert examples_of(images(small, large), (3, 8, 8), LIMITS, resize=True).x.shape == (2, 3, 8, 8)
    with pytest.raises(RpcError, match="expected 8×8"):
        examples_of(images(small, large), (3, 8, 8), LIMITS)


def test_float_images_must_be_scaled_as_the_learner_normalises_them() -> None:
    pixels = np.array([0, 1, 127, 255], np.float32)
    scaled = inputs(F32, [1, 1, 2, 2], (pixels / 255).tobytes())
    standardised = inputs(F32, [1, 1, 2, 2], (pixels / 64 - 2).tobytes())
    unscaled = inputs(F32, [1, 1, 2, 2], pixels.tobytes())
    for message in (scaled, standardised):
        assert examples_of(message, None, LIMITS).x.shape == (1, 1, 2, 2)
    with pytest.raises(RpcError, match="from 0 to 255.*divide them by 255.*architecture.std") as caught:
        examples_of(unscaled, None, LIMITS)
    assert caught.value.metadata == {"example": "0", "lowest": "0", "highest": "255"}
    own = InputSpec.of(ArchitectureConfig(mean=(127.0,), std=(64.0,)), None)
    assert examples_of(unscaled, None, LIMITS, lowest=own.lowest, highest=own.highest).x.max() == 255
    assert examples_of(inputs(F32, [1, 4], pixels.tobytes()), None, LIMITS).x.max() == 255  # vectors are of any scale


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
