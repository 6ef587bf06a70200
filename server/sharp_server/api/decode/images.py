"""Encoded images from the wire as arrays, with every check.

Nothing is decoded before its size, as its header claims it, is known to be within the limits. Pillow reads headers and
pixels: torchvision's PNG decoder does not survive errors of its own (a PNG with too few pixels ends the process), and
importing torchvision takes 170 MB; pixels are the same (`tests/server/api/test_decode_images.py`). Raises only
`RpcError`; run it in a thread.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch.nn import functional

from sharp_server.api.decode.tensors import check_count
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.learners.inputs import Examples, check_shape, shape_text

_IMAGES_OF_FULL_SIZE = 8
"""So many of the largest images, or their pixels in smaller ones, may come in one message: decoding takes time."""
_MOST_SCANS = 100
"""Of one JPEG; each is decoded over the whole image. Progressive ones have about ten."""
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
_PLAIN_BMPS = (0, 3)
"""Kinds of compression of a BMP that are none: plain pixels, and plain pixels with bit masks. The others are decoded by
a loop over bytes, which takes as long as whoever made the file wishes."""
_GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B")


@dataclass(frozen=True)
class _Header:
    """What a file claims to be."""

    height: int
    width: int
    grey: bool
    jpeg: bool

    @property
    def size(self) -> tuple[int, int]:
        return self.height, self.width


def image_examples(
    images: Sequence[bytes],
    resize: bool,
    shape: tuple[int, ...] | None,
    limits: LimitsConfig,
    at: str = "inputs.images",
) -> Examples:
    """Decoded images as bytes of [n, channels, height, width]."""
    if not images:
        raise RpcError("FIELD_INVALID", "there are no images", fields=(f"{at}.images",), field=f"{at}.images")
    check_count(len(images), limits)
    if shape is not None and len(shape) != 3:
        message = "a learner of vectors takes no images"
        raise RpcError("SHAPE_MISMATCH", message, fields=(at,), expected=shape_text(("n", *shape)), found="images")
    headers = [_header(image, i, limits) for i, image in enumerate(images)]
    if sum(header.height * header.width for header in headers) > limits.image_pixels * _IMAGES_OF_FULL_SIZE:
        raise _too_many("the images have too many pixels together", images, limits)
    if shape is None:
        first = headers[0]
        shape = (1 if all(header.grey for header in headers) else 3, first.height, first.width)
        check_shape(shape, limits, at)
    if shape[0] not in (1, 3):
        message, expected = f"images have 1 or 3 channels, the learner {shape[0]}", shape_text(("n", *shape))
        raise RpcError("SHAPE_MISMATCH", message, expected=expected, found="images", fields=("inputs.images",))
    for i, header in enumerate(headers):
        if not resize and header.size != shape[1:]:
            raise _wrong_size(i, header, shape[1:])
    if len(images) * shape[0] * shape[1] * shape[2] > limits.message_bytes * 4:
        raise _too_many("the decoded images are too large together", images, limits)
    out = np.empty((len(images), *shape), np.uint8)
    for i, (image, header) in enumerate(zip(images, headers, strict=True)):
        out[i] = _decoded(image, i, header, shape, limits)
    return Examples(out, out.tobytes())


def _too_many(why: str, images: Sequence[bytes], limits: LimitsConfig) -> RpcError:
    message = f"{why}: split the message"
    return RpcError("TOO_MANY_EXAMPLES", message, examples=len(images), limit=limits.batch_examples)


def _wrong_size(i: int, found: _Header, wanted: tuple[int, ...]) -> RpcError:
    expected, got = f"{wanted[0]}×{wanted[1]}", f"{found.height}×{found.width}"
    return RpcError(
        "SHAPE_MISMATCH",
        f"image {i} is {got}, expected {expected}; with resize it is scaled",
        fields=(f"inputs.images.images[{i}]",),
        expected=expected,
        found=got,
        example=i,
    )


def _malformed(i: int, why: str) -> RpcError:
    return RpcError("IMAGE_MALFORMED", f"image {i} {why}", example=i, fields=(f"inputs.images.images[{i}]",))


def _opened(image: bytes, i: int, limits: LimitsConfig) -> Image.Image:
    """The file as Pillow sees it; no pixel is decoded yet."""
    _check_webp(image, i, limits)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its size: ours is the limit that counts
            return Image.open(io.BytesIO(image), formats=_FORMATS)
    except Image.DecompressionBombError as error:
        raise RpcError("IMAGE_TOO_LARGE", f"image {i} has too many pixels", example=i) from error
    except UnidentifiedImageError:
        raise _malformed(i, "is no PNG, JPEG, WebP or BMP, or is damaged") from None
    except Exception:  # a file from anyone: whatever its header does to the reader
        raise _malformed(i, "is damaged") from None


def _header(image: bytes, i: int, limits: LimitsConfig) -> _Header:
    """What the file claims to be, refused where it is too large."""
    opened = _opened(image, i, limits)
    width, height = opened.size
    _check_size(width, height, i, limits)
    if opened.format == "BMP" and opened.info.get("compression") not in _PLAIN_BMPS:
        raise _malformed(i, "is a BMP with run-length encoding")
    if opened.format == "JPEG" and image.count(b"\xff\xda") > _MOST_SCANS:
        raise _malformed(i, f"is a JPEG of more than {_MOST_SCANS} scans")
    return _Header(height, width, opened.mode in _GREY_MODES, opened.format == "JPEG")


def _check_size(width: int, height: int, i: int, limits: LimitsConfig) -> None:
    if width < 1 or height < 1:
        raise _malformed(i, "has no pixels")
    if width * height > limits.image_pixels:
        raise RpcError(
            "IMAGE_TOO_LARGE",
            f"image {i} has {width}×{height} pixels, more than {limits.image_pixels}",
            fields=(f"inputs.images.images[{i}]",),
            example=i,
            pixels=width * height,
            limit=limits.image_pixels,
        )


def _check_webp(image: bytes, i: int, limits: LimitsConfig) -> None:
    """Look at the size of a WebP before Pillow does: its reader makes room for all pixels as soon as it is opened."""
    if image[:4] != b"RIFF" or image[8:12] != b"WEBP":
        return
    kind, content = image[12:16], image[20:30]
    if len(content) < 10:
        raise _malformed(i, "is damaged")
    if kind == b"VP8X":  # flags, then the canvas: two numbers of 24 bits, less one
        width, height = (1 + int.from_bytes(content[at : at + 3], "little") for at in (4, 7))
    elif kind == b"VP8L":  # a signature, then two numbers of 14 bits, less one
        sides = int.from_bytes(content[1:5], "little")
        width, height = 1 + (sides & 0x3FFF), 1 + (sides >> 14 & 0x3FFF)
    elif kind == b"VP8 ":  # six bytes of tag and start code, then two numbers of 14 bits
        width, height = (int.from_bytes(content[at : at + 2], "little") & 0x3FFF for at in (6, 8))
    else:
        raise _malformed(i, "is damaged")
    _check_size(width, height, i, limits)


def _decoded(image: bytes, i: int, header: _Header, shape: tuple[int, ...], limits: LimitsConfig) -> NDArray[np.uint8]:
    try:
        array = _pixels(image, i, header, "L" if shape[0] == 1 else "RGB", limits)
    except RpcError:
        raise
    except Exception:  # a file from anyone: whatever its content does to the decoder
        raise _malformed(i, "is damaged") from None
    pixels = torch.from_numpy(array.reshape(*array.shape[:2], shape[0])).permute(2, 0, 1)
    if tuple(pixels.shape[1:]) != shape[1:]:
        scaled = functional.interpolate(
            pixels[None].float(), size=shape[1:], mode="bilinear", antialias=True, align_corners=False
        )
        pixels = scaled[0].round().clamp(0, 255).to(torch.uint8)
    found: NDArray[np.uint8] = pixels.numpy()
    return found


def _pixels(image: bytes, i: int, header: _Header, mode: str, limits: LimitsConfig) -> NDArray[np.uint8]:
    if not header.jpeg:
        _opened(image, i, limits).verify()  # every part of a PNG and its checksum, to the end of the file
    opened = _opened(image, i, limits)
    if header.jpeg and mode == "L":
        opened.draft("L", None)  # the file's own luminance
    opened.load()
    if opened.mode.startswith("I"):  # a PNG of 16 bits per channel: the upper half is what 8 bits would be
        deep: NDArray[Any] = np.asarray(opened).astype(np.int64) >> 8
        opened = Image.fromarray(deep.astype(np.uint8), "L")
    return np.array(opened.convert(mode))
