"""Writes bills of materials of the images in CycloneDX's format, from their locks.

    python -m devtools.sbom [FOLDER]

`sbom.json` lists what is in the server's image, `sbom-cluster.json` what is in the image of a cluster: every package
with its version and its hashes.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from devtools.lock import CLUSTER_LOCK, CUDA_LOCK, LOCK, ROOT

BILLS: Mapping[str, tuple[Path, ...]] = MappingProxyType(
    {"sbom.json": (LOCK, CUDA_LOCK), "sbom-cluster.json": (LOCK, CUDA_LOCK, CLUSTER_LOCK)}
)
"""Name of the file → the locks of its image."""


def write(folder: Path) -> list[Path]:
    """Write every bill into a folder; gives the files."""
    tool = Path(sysconfig.get_path("scripts")) / "cyclonedx-py"
    argv = [str(tool), "requirements", "--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"]
    argv += ["--output-reproducible", "--of", "JSON"]
    for name, locks in BILLS.items():
        packages = "".join(lock.read_text(encoding="utf-8") for lock in locks)
        subprocess.run([*argv, "-o", str(folder / name), "-"], input=packages, text=True, check=True)
    return [folder / name for name in BILLS]


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
