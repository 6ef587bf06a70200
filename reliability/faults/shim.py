"""The faults of disk and clock, from outside: compiles `shim.c` and turns what it does on and off at run time."""

from __future__ import annotations

import errno
import mmap
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Literal

_SOURCE = Path(__file__).with_name("shim.c")
_LAYOUT = struct.Struct("=dqq")
_ERRNOS = {"": 0, "full": errno.ENOSPC, "read-only": errno.EROFS}


class NoCompilerError(RuntimeError):
    """There is no C compiler here."""


class Shim:
    """One server's disk and clock."""

    def __init__(self, folder: Path, data: Path) -> None:
        """`folder`: where the library and its control file go; `data`: whose files are on the failing disk."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise NoCompilerError("faults of disk and clock are made by a C library, and there is no compiler here")
        folder.mkdir(parents=True, exist_ok=True)
        library, control = folder / "shim.so", folder / "control"
        words = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", str(_SOURCE), "-o", str(library), "-ldl"]
        subprocess.run(words, check=True)
        control.write_bytes(bytes(_LAYOUT.size))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.environment = {
            "LD_PRELOAD": str(library),
            "SHARP_FAULTS_CONTROL": str(control),
            "SHARP_FAULTS_FOLDER": str(data.absolute()),
        }
        """What the server is started with."""

    def set(
        self, *, fsync_seconds: float = 0.0, clock_ahead: int = 0, disk: Literal["", "full", "read-only"] = ""
    ) -> None:
        """From now on: how long each fsync takes, how far the clock is ahead, and what the disk refuses."""
        self._control[:] = _LAYOUT.pack(fsync_seconds, clock_ahead, _ERRNOS[disk])
