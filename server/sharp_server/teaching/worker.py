"""The teaching process, from its first moment: signals, priority, then one request of the front after the other.

Must stay light: torch is imported only after the process gives way to others and dies with its parent. It ends by
itself when the front is gone, holds nothing that the journal does not have, and writes no file that it was not asked
for.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket

from sharp_server.config.model import LogConfig
from sharp_server.runtime import logs, malloc
from sharp_server.runtime.child_process import die_with_parent, name_process

NAME = "sharp-teacher"
_IDLE_SECONDS = 2.0
"""Without work for this long, freed memory is given back."""


def run_teacher(pipe: socket.socket, device: str, threads: int, niceness: int, log_config: LogConfig) -> None:
    """The main function of the teaching process."""
    die_with_parent()
    name_process(NAME)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the front closes the socket when it is time
    os.nice(niceness)
    logs.set_up(log_config)
    import torch

    torch.set_num_threads(threads)
    from sharp_server.teaching.desk import Desk

    malloc.forget_start_up()
    try:
        desk = Desk(pipe, device)
        while True:
            if not select.select([pipe], [], [], _IDLE_SECONDS)[0]:
                malloc.return_freed_memory()
                select.select([pipe], [], [])
            desk.serve_next()
    except (EOFError, OSError):
        pass  # the front is gone, or wants us to go
    logging.shutdown()
    os._exit(0)
