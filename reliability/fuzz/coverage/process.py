"""The process that atheris takes over: instruments a target's modules, writes its seeds, and fuzzes until told to end.

`python -m reliability.fuzz.coverage.process TARGET [libFuzzer's options] CORPUS`
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import atheris
import numpy as np

MODULES = {
    "decoders": ["sharp_server.api.decode"],
    "snapshots": ["sharp_engine"],
    "journal": ["sharp_server.storage"],
}


def main() -> None:
    """Fuzz; ends the process by itself."""
    logging.disable(logging.CRITICAL)
    np.seterr(all="ignore")
    name, *words = sys.argv[1:]
    with atheris.instrument_imports(include=MODULES[name]):
        from reliability.fuzz.coverage.targets import TARGETS, without_digest
    target = TARGETS[name]
    for number, seed in enumerate(target.seeds()):
        (Path(words[-1]) / f"seed-{number}").write_bytes(seed)
    without_digest()
    atheris.Setup([sys.argv[0], *words], target.call)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
