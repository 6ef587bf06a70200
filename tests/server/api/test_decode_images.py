"""PNGs from anyone: whole ones keep their pixels, others are refused, and none takes the server with it."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms.functional import resize

from sharp_server.api.decode.images import image_examples
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
RANDOM = np.random.default_rng(0)
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def part(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def made(
    raw: bytes,
    size: tuple[int, int] = (8, 8),
    depth: int = 8,
    colour: int = 0,
    interlaced: int = 0,
    before: bytes = b"",
) -> bytes:
    """A PNG of these rows, whatever they are."""
    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, interlaced)
    return SIGNATURE + part(b"IHDR", header) + before + part(b"IDAT", zlib.compress(raw)) + part(b"IEND", b"")


def rows(width: int, height: int, depth: int = 8, colour: int = 0) -> bytes:
    length = (width * CHANNELS[colour] * depth + 7) // 8
    return b"".join(b"\x00" + RANDOM.bytes(length) for _ in range(height))


def interlaced_rows(width: int, height: int, colour: int) -> bytes:
    raw = b""
    for x, y, dx, dy in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        columns, count = len(range(x, width, dx)), len(range(y, height, dy))
        raw += rows(columns, count, 8, colour) if columns else b""
    return raw


def saved(mode: str, size: tuple[int, int]) -> bytes:
    shape = (size[1], size[0], len(mode)) if mode in ("RGB", "RGBA", "LA") else (size[1], size[0])
    picture = Image.fromarray(RANDOM.integers(0, 255, shape, dtype=np.uint8))
    out = io.BytesIO()
    picture.convert(mode).save(out, "PNG", optimize=True)
    return out.getvalue()


def expected(data: bytes, mode: ImageReadMode) -> torch.Tensor:
    """What libpng makes of a whole file."""
    decoded: torch.Tensor = decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode)
    return (decoded.to(torch.int32) >> 8) if decoded.dtype == torch.uint16 else decoded.to(torch.int32)


@pytest.mark.parametrize("size", [(8, 8), (1, 1), (33, 17)], ids=str)
def test_whole_images_keep_their_pixels(size: tuple[int, int]) -> None:
    files = [saved(mode, size) for mode in ("L", "LA", "RGB", "RGBA", "P", "1")]
    files += [made(rows(*size, 16, colour), size, 16, colour) for colour in (0, 2, 4, 6)]
    files += [made(interlaced_rows(*size, colour), size, 8, colour, 1) for colour in (0, 2, 6)]
    for data in files:
        for mode in (ImageReadMode.GRAY, ImageReadMode.RGB):
            channels = 1 if mode is ImageReadMode.GRAY else 3
            found = image_examples([data], False, (channels, size[1], size[0]), LimitsConfig()).x[0]
            np.testing.assert_allclose(found.astype(int), expected(data, mode), atol=1)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"quality": 30, "subsampling": 2}], ids=str)
def test_a_jpeg_has_the_pixels_that_torchvision_gives_it(options: dict[str, Any]) -> None:
    noise = Image.fromarray(RANDOM.integers(0, 255, (10, 14, 3), dtype=np.uint8)).resize((53, 37))
    for kind in ("RGB", "L", "CMYK"):
        out = io.BytesIO()
        noise.convert(kind).save(out, "JPEG", **options)
        for mode, channels in ((ImageReadMode.GRAY, 1), (ImageReadMode.RGB, 3)):
            found = image_examples([out.getvalue()], False, (channels, 37, 53), LimitsConfig()).x[0]
            np.testing.assert_array_equal(found, expected(out.getvalue(), mode))


def test_an_image_is_scaled_as_torchvision_scales_it() -> None:
    data = saved("RGB", (33, 17))
    found = image_examples([data], True, (3, 8, 9), LimitsConfig()).x[0]
    whole = torch.from_numpy(image_examples([data], False, None, LimitsConfig()).x[0].copy())
    np.testing.assert_array_equal(found, resize(whole, [8, 9], antialias=True))


def test_texts_and_profiles_decide_nothing() -> None:
    raw = rows(8, 8)
    extra = part(b"iCCP", b"p\x00\x00" + zlib.compress(bytes(1 << 20))) + part(b"tEXt", b"k\x00" + b"v" * 1000)
    plain, adorned = (
        image_examples([made(raw, before=before)], False, None, LimitsConfig()) for before in (b"", extra)
    )
    np.testing.assert_array_equal(plain.x, adorned.x)


GOOD = rows(8, 8)
HOSTILE = {
    "no pixels": made(b""),
    "too few pixels": made(GOOD[:-1]),
    "too many pixels": made(GOOD + b"\x00"),
    "too few of 16 bits": made(GOOD, depth=16),
    "a filter that does not exist": made(b"\x05" + GOOD[1:]),
    "too few of an interlaced image": made(interlaced_rows(8, 8, 0)[:-1], interlaced=1),
    "no palette": made(GOOD, colour=3),
    "an empty palette": made(GOOD, colour=3, before=part(b"PLTE", b"")),
    "a palette of a grey image": made(GOOD, before=part(b"PLTE", b"\x00" * 3)),
    "a palette that is too long": made(GOOD, colour=3, before=part(b"PLTE", b"\x00" * 771)),
    "an unknown part that decides": made(GOOD, before=part(b"QQQQ", b"")),
    "a second header": made(GOOD, before=part(b"IHDR", struct.pack(">IIBBBBB", 99, 99, 8, 0, 0, 0, 0))),
    "a depth that does not exist": made(GOOD, depth=3),
    "a colour that does not exist": made(GOOD, colour=5),
    "an interlacing that does not exist": made(GOOD, interlaced=2),
    "a checksum that is wrong": made(GOOD)[:-17] + b"\x00" + made(GOOD)[-16:],
    "no end": made(GOOD)[:-12],
    "pixels in several places": made(GOOD)[:-12] + part(b"tEXt", b"") + part(b"IDAT", b"x") + part(b"IEND", b""),
    "a header alone": made(GOOD)[:33],
}


HARMLESS = (
    "too many pixels", "no palette", "an empty palette", "a palette of a grey image", "an unknown part that decides",
    "pixels in several places",
)  # fmt: skip
"""Every pixel is there, whatever else is wrong."""


@pytest.mark.parametrize("name", sorted(HOSTILE.keys() - set(HARMLESS)))
def test_a_png_that_is_not_whole_is_refused(name: str) -> None:
    with pytest.raises(RpcError) as caught:
        image_examples([HOSTILE[name]], False, None, LimitsConfig())
    assert caught.value.reason == "IMAGE_MALFORMED"


@pytest.mark.parametrize("name", HARMLESS)
def test_a_png_that_has_all_its_pixels_is_taken_or_refused_and_breaks_nothing(name: str) -> None:
    with contextlib.suppress(RpcError):
        assert image_examples([HOSTILE[name]], False, None, LimitsConfig()).x.shape[2:] == (8, 8)


def test_sixteen_bits_are_taken_as_their_upper_eight() -> None:
    raw = b"".join(b"\x00" + bytes(v for x in range(8) for v in (30 * x, 255)) for _ in range(8))
    examples = image_examples([made(raw, depth=16)], False, None, LimitsConfig())
    np.testing.assert_array_equal(examples.x[0, 0, 0], np.arange(8) * 30)
