"""PNG files from strangers, looked at in full before a decoder sees them.

The decoder (torchvision over libpng) does not survive its own error handling: a PNG with too few pixels ends the
process. So every way in which libpng could fail is ruled out here: structure, checksums, sizes, the compressed stream
to its last byte, the filter of every row. What it is given is written anew from the parts that decide over pixels;
texts, colour profiles and all else that could be crafted stay behind.

Raises only `Malformed`. Never inflates more than the image's own size, which the caller has compared with the limits.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

SIGNATURE = b"\x89PNG\r\n\x1a\n"

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Of an interlaced image: first column and row, and the steps between them."""
_HIGHEST_FILTER = 4
_DECIDING = (b"IHDR", b"PLTE", b"IDAT", b"IEND")


class Malformed(ValueError):  # noqa: N818 (says what is the matter)
    """Not a whole PNG; the message completes "image 3 …"."""


def header(data: bytes) -> tuple[int, int, int, int, int]:
    """(width, height, bits, colour type, interlacing) as the file claims them."""
    if len(data) < 33 or data[:8] != SIGNATURE or data[8:16] != b"\x00\x00\x00\rIHDR":
        raise Malformed("is a PNG without a header")
    width, height, depth, colour, compression, method, interlacing = struct.unpack(">IIBBBBB", data[16:29])
    if depth not in _DEPTHS.get(colour, ()) or compression or method or interlacing > 1:
        raise Malformed("is a PNG of a kind that does not exist")
    return width, height, depth, colour, interlacing


def rewritten(data: bytes) -> bytes:
    """The same image as a file that a decoder can be trusted with, or Malformed."""
    width, height, depth, colour, interlacing = header(data)
    parts: list[tuple[bytes, bytes]] = []
    pixels: list[bytes] = []
    ended = False
    for kind, content in _chunks(data):
        if kind == b"IDAT":
            if ended:
                raise Malformed("is a PNG whose pixels are in several places")
            pixels.append(content)
            continue
        ended = bool(pixels)
        if kind not in _DECIDING:
            if not kind[0] & 0x20:
                raise Malformed("is a PNG with a part that no decoder knows")
        elif kind == b"PLTE":
            if pixels or any(known == kind for known, _ in parts) or colour in (0, 4) or not 0 < len(content) <= 768:
                raise Malformed("is a PNG with a palette out of place")
            if len(content) % 3 == 0:
                parts.append((kind, content))
        else:
            parts.append((kind, content))
    kinds = [kind for kind, _ in parts]
    if kinds not in ([b"IHDR", b"IEND"], [b"IHDR", b"PLTE", b"IEND"]) or (colour == 3 and b"PLTE" not in kinds):
        raise Malformed("is a PNG whose parts are missing or out of order")
    stream = b"".join(pixels)
    _check_pixels(stream, width, height, depth * _CHANNELS[colour], interlacing)
    whole = [*parts[:-1], (b"IDAT", stream), parts[-1]]
    return SIGNATURE + b"".join(_chunk(kind, content) for kind, content in whole)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every part with its kind, up to the end of the image; whatever follows that is left behind."""
    place = 8
    while place + 12 <= len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        end = place + 12 + length
        if end > len(data):
            break
        kind, content = data[place + 4 : place + 8], data[place + 8 : end - 4]
        if zlib.crc32(data[place + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            raise Malformed("is damaged")
        yield kind, content
        if kind == b"IEND":
            return
        place = end
    raise Malformed("is a PNG without an end")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _check_pixels(stream: bytes, width: int, height: int, bits: int, interlacing: int) -> None:
    """Whether the compressed stream holds every row, each with a filter that exists, and nothing else."""
    rows = [(width, height)]
    if interlacing:
        rows = [((width - x + dx - 1) // dx, (height - y + dy - 1) // dy) for x, y, dx, dy in _PASSES]
    lengths = [(1 + (columns * bits + 7) // 8, count) for columns, count in rows if columns > 0 and count > 0]
    size = sum(length * count for length, count in lengths)
    inflating = zlib.decompressobj()
    try:
        raw = inflating.decompress(stream, size + 1)
    except zlib.error:
        raise Malformed("is damaged") from None
    if len(raw) != size or not inflating.eof or inflating.unused_data:
        raise Malformed("is a PNG with too many or too few pixels")
    place = 0
    for length, count in lengths:
        if max(raw[place : place + length * count : length]) > _HIGHEST_FILTER:
            raise Malformed("is damaged")
        place += length * count
