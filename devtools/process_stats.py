"""What the system says about a running process: memory, descriptors, processor time, children. Read from /proc.

Only looks: nothing here starts, changes or ends a process.
"""

from __future__ import annotations

import os
from pathlib import Path


def resident_bytes(process: int | str = "self") -> int | None:
    """Memory that a process holds in RAM now; None where the system does not say, or there is no such process."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_descriptors(pid: int) -> int:
    """Files, sockets and pipes that a process has open; 0 where the system does not say."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, over all its threads; NaN where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Processes that a process started and that still run; none where the system does not say."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []


def name(pid: int) -> str:
    """What a process calls itself; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def command_line(pid: int) -> list[str]:
    """The words that a process was started with; none if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
