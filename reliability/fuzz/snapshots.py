"""Hostile snapshot files: headers that lie, descriptions that ask for the impossible, tensors that are something else.

Most have a right checksum: what a stranger can forge, the server has to see through without it.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from reliability.fuzz.messages import Draw, damaged
from sharp_engine.snapshot import FORMAT, VERSION, digest

_JSON: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 7, 2**31, 2**53, 2**63 - 1, 2**63, 10**400, 0.5, -0.5, 1e308, "", "x", "../x",
    [], {}, [[]], [0], [1, 1, 1], [2**31, 2**31, 2**31], [2**20], {"a": 1}, "linear", "conv", "auto",
    "\x00", "/etc/passwd", {"model": "resnet18", "layer": "avgpool"}, float("nan"), float("inf"),
)  # fmt: skip


class Parts:
    """A good snapshot, taken apart."""

    def __init__(self, file: Path) -> None:
        self.content = file.read_bytes()
        with safe_open(file, framework="pt") as opened:
            self.metadata: dict[str, str] = dict(opened.metadata())
            self.tensors: dict[str, Tensor] = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        self.description: dict[str, Any] = json.loads(self.metadata["learner"])

    def file(self, description: Any, tensors: dict[str, Tensor]) -> bytes:
        """A file of these parts, with a digest that fits them."""
        words = json.dumps(description)
        metadata = {"format": FORMAT, "version": str(VERSION), "learner": words, "digest": digest(words, tensors)}
        return bytes(save(tensors, metadata))


def with_header(header: bytes, body: bytes, length: int | None = None) -> bytes:
    """A safetensors file with a header of our own; `length` may lie about it."""
    return struct.pack("<Q", len(header) if length is None else length) + header + body


def lying_headers(parts: Parts) -> Iterator[bytes]:
    """Headers whose lengths, offsets, shapes and types are not those of the bytes behind them."""
    size = struct.unpack("<Q", parts.content[:8])[0]
    header, body = parts.content[8 : 8 + size], parts.content[8 + size :]
    for length in (0, 1, size - 1, size + 1, len(parts.content), 2**31, 2**63 - 1, 2**64 - 1):
        yield with_header(header, body, length)
    for lie in ([0, 2**63], [2**63, 2**64 - 1], [-1, 4], [8, 0], [0, 0], [len(body) - 1, len(body) + 7], "x", None):
        yield _changed(header, body, lambda entry, lie=lie: entry.update(data_offsets=lie))  # type: ignore[misc]
    for shape in ([2**63], [2**32, 2**32], [-1], [0], [], [1] * 64, ["a"], None, [2**31, 2**31, 2**31]):
        yield _changed(header, body, lambda entry, shape=shape: entry.update(shape=shape))  # type: ignore[misc]
    for dtype in ("F64", "I8", "BOOL", "X", "", None, "F8_E4M3"):
        yield _changed(header, body, lambda entry, dtype=dtype: entry.update(dtype=dtype))  # type: ignore[misc]
    yield with_header(b"[" * 100_000, b"")
    yield with_header(b'{"__metadata__":' * 1000, b"")
    start = f'{{"__metadata__":{{"format":"{FORMAT}","version":"{VERSION}","learner":"'.encode()
    yield with_header(start + b"[" * 50_000 + b'"}}', b"")
    yield with_header(b"{}", b"")
    yield with_header(b"", b"")
    yield b""


def _changed(header: bytes, body: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    table = json.loads(header)
    change(table[next(name for name in table if name != "__metadata__")])
    return with_header(json.dumps(table).encode(), body)


@st.composite
def forged(draw: Draw, parts: Parts) -> bytes:
    """One to three places of the description, or one tensor, are something else; the digest fits."""
    description, tensors = copy.deepcopy(parts.description), dict(parts.tensors)
    for _ in range(draw(st.integers(0, 3))):
        place: Any = description
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], (dict, list)) and place[key] and draw(st.integers(0, 4)):
                place = place[key]
                continue
            place[key] = copy.deepcopy(draw(st.sampled_from(_JSON)))  # the next change may be inside of it
            break
    if not draw(st.integers(0, 1)):
        name = draw(st.sampled_from(sorted(tensors)))
        tensors[name] = draw(st.sampled_from(_DISTORTIONS))(tensors[name]).contiguous()
    return parts.file(description, tensors)


_DISTORTIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda t: t[:0],
    lambda t: t.flatten(),
    lambda t: t[None],
    lambda t: t.double() if t.dtype != torch.float64 else t.float(),
    lambda t: t.to(torch.int64),
    lambda t: torch.full_like(t, float("nan")) if t.is_floating_point() else torch.full_like(t, 1),
    lambda t: torch.full_like(t, 1e38) if t.is_floating_point() else torch.zeros_like(t),
    lambda t: -t if t.dtype != torch.bool and t.dtype != torch.uint8 else ~t,
    lambda t: torch.cat([t, t]) if t.ndim else t,
    lambda t: torch.zeros(100_000, dtype=t.dtype),
)


def files(parts: Parts) -> st.SearchStrategy[bytes]:
    """Everything above, whole and damaged."""
    lies = st.sampled_from(list(lying_headers(parts)))
    return st.one_of(forged(parts), forged(parts), lies, damaged(st.just(parts.content)), damaged(lies))
