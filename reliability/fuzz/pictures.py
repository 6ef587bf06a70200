"""Hostile images: small files that ask for a lot of memory or time, and files whose parts contradict each other."""

from __future__ import annotations

import functools
import struct
import zlib

from hypothesis import strategies as st

from reliability.fuzz import seeds
from reliability.fuzz.messages import damaged

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, data: bytes) -> bytes:
    """A part of a PNG with its checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(
    width: int, height: int, rows: bytes | None = None, depth: int = 8, colour: int = 0, between: bytes = b""
) -> bytes:
    """A PNG that claims a size; `rows`, uncompressed, need not fit it. None: as many zeros as it takes."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    pixels = b"\x00" * (height * (1 + width * {0: 1, 2: 3, 6: 4}.get(colour, 1))) if rows is None else rows
    return SIGNATURE + chunk(b"IHDR", header) + between + chunk(b"IDAT", zlib.compress(pixels, 9)) + chunk(b"IEND", b"")


def jpeg_of_size(width: int, height: int) -> bytes:
    """A small JPEG whose frame header claims another size."""
    data = bytearray(seeds.encoded("JPEG"))
    at = next(i for i in range(2, len(data)) if data[i] == 0xFF and data[i + 1] == 0xC0)
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def jpeg_of_scans(scans: int) -> bytes:
    """A small JPEG with the same scan over and over: each is decoded over the whole image."""
    data = seeds.encoded("JPEG")
    at = data.rindex(b"\xff\xda")
    return data[:at] + data[at:-2] * scans + data[-2:]


def webp_of_size(width: int, height: int) -> bytes:
    """A small WebP within a canvas that claims another size."""
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    canvas = b"VP8X" + struct.pack("<I", 10) + bytes(4) + sides
    parts = b"WEBP" + canvas + seeds.encoded("WEBP")[12:]
    return b"RIFF" + struct.pack("<I", len(parts)) + parts


def bmp_of(width: int, height: int, compression: int = 0) -> bytes:
    """A small BMP whose header claims another size and kind of compression."""
    data = bytearray(seeds.encoded("BMP"))
    data[18:26] = struct.pack("<ii", width, height)
    data[30:34] = struct.pack("<I", compression)
    return bytes(data)


@functools.cache
def bombs() -> tuple[bytes, ...]:
    """Images that must be refused, or cost no more than the limits say."""
    profile = chunk(b"iCCP", b"p\x00\x00" + zlib.compress(b"\x00" * (32 << 20)))
    text = chunk(b"zTXt", b"t\x00\x00" + zlib.compress(b"a" * (32 << 20)))
    return (
        png(2**31 - 1, 2**31 - 1, b"\x00" * 64),
        png(65_535, 65_535, b"\x00" * 64),
        png(2**32 - 1, 1, b"\x00" * 64),
        png(0, 8, b""),
        png(8, 8, b"\x00" * (64 << 20)),
        png(4096, 4096),
        png(4096, 4096, b"\x00"),
        png(8, 8, between=profile),
        png(8, 8, between=text * 20),
        png(8, 8, b"\x00" * 72, depth=16, colour=6),
        png(8, 8, b"\x00" * 72, colour=3),
        png(8, 8, b"\x07" * 72),
        SIGNATURE + chunk(b"IHDR", b"\x00" * 13),
        jpeg_of_size(65_500, 65_500),
        jpeg_of_size(4000, 4000),
        jpeg_of_size(0, 8),
        jpeg_of_scans(2000),
        b"\xff\xd8" + b"\xff\xe1\xff\xff" * 4000,
        b"GIF89a" + b"\xff" * 64,
        b"RIFF\xff\xff\xff\x7fWEBPVP8 ",
        webp_of_size(1 << 24, 1 << 24),
        webp_of_size(4096, 4096),
        bmp_of(65_535, 65_535),
        bmp_of(2**31 - 1, -(2**31)),
        bmp_of(4000, 4000, compression=1),
        bmp_of(8, 8, compression=4),
    )


def images() -> st.SearchStrategy[bytes]:
    """Bombs, whole images, and both of them damaged."""
    whole = st.sampled_from([*(seeds.encoded(kind) for kind in ("PNG", "JPEG", "WEBP", "BMP")), *bombs()])
    return st.one_of(whole, damaged(whole))
