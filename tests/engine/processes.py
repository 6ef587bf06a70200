"""Processes that learn together: started once, then given one task after another, each in a group of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

SECONDS = 20.0
"""After which a process that is waited for counts as lost."""


@contextlib.contextmanager
def joined(store: Path, rank: int, processes: int, seconds: float = SECONDS) -> Iterator[None]:
    """In a group of processes that meet at a file; alone without any."""
    if processes == 1:
        yield
        return
    os.environ["GLOO_SOCKET_IFNAME"] = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    meeting = dist.FileStore(str(store), processes)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=meeting, rank=rank, world_size=processes, timeout=timedelta(seconds=seconds))
    try:
        dist.barrier()  # whoever leaves at once must not hang up on one that still connects
        yield
    finally:
        dist.destroy_process_group()


def _work(pipe: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            task, store, rank, processes, seconds, arguments = pipe.recv()
        except EOFError:
            return
        try:
            with joined(store, rank, processes, seconds):
                pipe.send(task(rank, *arguments))
        except Exception as error:
            pipe.send(error)


def _started() -> tuple[ForkServerProcess, Connection]:
    context = multiprocessing.get_context("forkserver")
    # Once for all of them.
    context.set_forkserver_preload(["torch.distributed", "sharp_engine", "tests.engine.fixtures"])
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return process, ours


class Team:
    """So many processes at most; one that died is started anew for the next task."""

    def __init__(self, most: int, folder: Path) -> None:
        self._folder, self._tasks = folder, 0
        self._members = [_started() for _ in range(most)]

    def run(self, processes: int, task: Callable[..., Any], *arguments: Any, seconds: float = SECONDS) -> list[Any]:
        """What each process of a group returns or raises; nothing of one that died. `task` gets its rank first."""
        self._tasks += 1
        store = self._folder / f"store-{self._tasks}"
        self._members = [member if member[0].is_alive() else _started() for member in self._members]
        members = self._members[:processes]
        for rank, (_, pipe) in enumerate(members):
            pipe.send((task, store, rank, processes, seconds, arguments))
        results = []
        for _, pipe in members:
            try:
                assert pipe.poll(60), "a process does not answer"
                results.append(pipe.recv())
            except EOFError:
                results.append(None)
        return results

    def end(self) -> None:
        for process, pipe in self._members:
            process.kill()
            process.join()
            pipe.close()
