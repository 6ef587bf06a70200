"""Writes `docs/licences.md`: under which licence each package of the images may be used, as its own metadata says.

    python -m devtools.licences

The packages are those of the images' locks; all of them are in the developers' environment too, where their metadata is
read. It must never guess: a package that names no licence is listed as such.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from devtools.lock import CLUSTER_LOCK, CUDA_LOCK, LOCK, ROOT, pins

PAGE = ROOT / "docs" / "licences.md"
_LONGEST = 100
"""A licence field longer than this is the licence's text, not its name."""
_CLASSIFIER = "License :: OSI Approved :: "

_HEAD = """# Licences

What is in the images, and under which licence, as each package's own metadata says. Written by `make licences` and
compared by `tests/docker/test_licences.py`; versions and hashes are in the locks of the same names in `docker/`, and
`make sbom` writes bills of materials from them. SHARP Serve itself is under the MIT licence.

Packages of the second table come with torch's wheels for CUDA; images with torch from another index have none.
`cuda-toolkit` holds no files, only the names of NVIDIA's packages. Those of the third are in the image of a cluster
alone.
"""


def licence(package: str) -> str:
    """The licence of an installed package: its expression, else its classifiers, else its licence field."""
    metadata = importlib.metadata.metadata(package).json
    if "license_expression" in metadata:
        return str(metadata["license_expression"])
    every = metadata.get("classifier", ())
    classifiers = [text.removeprefix(_CLASSIFIER) for text in every if text.startswith("License")]
    named = [c.removeprefix("License :: ") for c in classifiers if c != "License :: OSI Approved"]
    if named:
        return ", ".join(named)
    field = " ".join(str(metadata.get("license", "")).split())
    return field if 0 < len(field) <= _LONGEST else "none named"


def page() -> str:
    """The whole page."""
    return _HEAD + "".join("\n" + _table(lock) for lock in (LOCK, CUDA_LOCK, CLUSTER_LOCK))


def _table(lock: Path) -> str:
    rows = [f"| {name} | {licence(name)} |" for name in sorted(pins(lock))]
    return "\n".join([f"| {lock.name} | licence |", "| --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
