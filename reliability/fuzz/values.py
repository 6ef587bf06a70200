"""Values that break programs: numbers at the edges, names that are paths, texts that are too long or too strange."""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import strategies as st

from sharp_engine.config import LearnerConfig, to_dict

INTEGERS = (0, 1, 2, 3, 7, 127, 255, 8193, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 
            2**64 - 1, -1, -2, -(2**31), -(2**63))  # fmt: skip

TEXTS = (
    "", " ", ".", "..", "../..", "../../../etc/passwd", "/etc/passwd", "/", "a/b", "C:\\windows", "~", "-rf", "a\x00b",
    "\x00", "\n\r", "%2e%2e%2f", "${HOME}", "'; DROP TABLE learners; --", "*", "?", "nul", "CON", ".hidden", "a" * 63,
    "a" * 64, "x" * 1024, "x" * 1025, "x" * 100_000, "é" * 63, "\u202etxt", "\ufeff", "😀" * 300, "ﷺ" * 200,
    "i̇", "ｖｉｃｔｉｍ",
    "W10=", "eyJhIjoxfQ==", "0", "-1", "1e999", "NaN", "null", "true", "\x7f", "\ud7ff", "victim/../planted",
)  # fmt: skip

JSON_VALUES = (
    "", "null", "true", "-1", "0", "1", "1.5", "NaN", "Infinity", "-Infinity", "1e999", "2147483648",
    "9223372036854775808", "1" + "0" * 400, "9" * 5000, '""', '"x"', '"../../x"', '"/etc/passwd"', "[]", "{}",
    "[[[[]]]]",
    "[" * 3000, '{"a":' * 1500, '[{"kind": "linear", "units": 2}]', '[{"kind": "linear", "units": -5}]',
    '[{"kind": "linear", "units": 1000000000000}]', '[{"kind": "conv", "units": 3, "pool": true}]',
    '[{"kind": "linear"}]', '{"model": "resnet18", "layer": "avgpool", "weights": "../x.pt"}',
    '{"model": "../x", "layer": "", "weights": null}', '{"weights": 7}', "\x00", "x" * 10_000,
)  # fmt: skip


def _names(prefix: str, values: dict[str, Any]) -> list[str]:
    found = []
    for key, value in values.items():
        found.append(prefix + key)
        if isinstance(value, dict):
            found += _names(f"{prefix}{key}.", value)
    return found


SETTINGS = (*_names("", to_dict(LearnerConfig())), "", ".", "a.b.c", "training", "training.", "__class__", "x" * 5000)

FLOATS = (0.0, -0.0, 1.0, float("nan"), float("inf"), float("-inf"), 1e38, -1e38, 1e-45, 5e-324, 1e308)

BLOCKS = (
    b"", b"\x00", b"\xff" * 48, b"\x00" * 48, b"\x00" * 12, struct.pack("<12f", *range(12)),
    struct.pack("<12f", *[float("nan")] * 12), struct.pack("<12f", *[float("inf")] * 12), b"\x00" * (1 << 20),
    b"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\n" + b"\x00" * 40, b"\xff\xd8\xff", b"\xff\xd8" + b"\xff" * 200,
    (2**63 - 1).to_bytes(8, "little") + b"{}", (2).to_bytes(8, "little") + b"{}", b"\x80\x05cos\nsystem\n.",
)  # fmt: skip


def integers(least: int, most: int) -> st.SearchStrategy[int]:
    """Whole numbers that a field can carry, the dangerous ones first."""
    edges = [value for value in INTEGERS if least <= value <= most]
    return st.one_of(st.sampled_from(edges), st.integers(least, most))


def texts(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Names that are known to the server, hostile ones, and anything else that is Unicode."""
    return st.one_of(st.sampled_from((*names, *TEXTS)), st.text(max_size=12))


def blocks(extra: tuple[bytes, ...] = ()) -> st.SearchStrategy[bytes]:
    """Bytes: of a tensor, of an image, of a file, of nothing."""
    return st.one_of(st.sampled_from((*BLOCKS, *extra)), st.binary(max_size=24))


def overrides() -> st.SearchStrategy[dict[str, str]]:
    """Settings of a learner: real names with impossible values, and the other way round."""
    values = st.one_of(st.sampled_from(JSON_VALUES), st.sampled_from([json.dumps(v) for v in INTEGERS]))
    return st.dictionaries(st.sampled_from(SETTINGS), values, max_size=4)
