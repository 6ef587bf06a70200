"""Servers that start in a moment: forked from a process that has imported what a server imports, torch among it.

Importing costs each server two seconds of processor time, its trainer two more, and tests start more than a hundred. A
forked server is as real as another: a process of its own with its own signals, which runs `python -m sharp_server` from
its first line on. What is different is its parent, who passes on how it ended, and its first two trainers: they are
its children as usual, but were forked before there was anything to inherit, and wait; so were its first two teachers.
Whatever follows when both have died is spawned, as all are elsewhere.

`python -m tests.warm_servers` is that parent: it reads what to start from standard input, a JSON document per line.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pickle
import queue
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from devtools.server_process import ONE_THREAD, START_SECONDS, clone_environment

if TYPE_CHECKING:
    from sharp_server.runtime.child_process import Process


class WarmProcess:
    """A process that somebody else is the parent of, as `subprocess.Popen` would show it."""

    def __init__(self, pid: int, ended: threading.Condition) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended

    def end(self, code: int) -> None:
        """It has ended."""
        with self._ended:
            self.returncode = code
            self._ended.notify_all()

    def poll(self) -> int | None:
        """How it ended, None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended."""
        with self._ended:
            if not self._ended.wait_for(lambda: self.returncode is not None, timeout):
                raise subprocess.TimeoutExpired("a warm server", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it still runs."""
        if self.returncode is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class WarmParent:
    """The parent, seen from the tests."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.warm_servers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clone_environment(ONE_THREAD),
        )
        self._ended = threading.Condition()
        self._one_at_a_time = threading.Lock()
        self._started: queue.SimpleQueue[WarmProcess] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, name="warm-servers", daemon=True)
        self._listener.start()
        atexit.register(self.stop)

    def start(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> WarmProcess:
        """Start `python -m sharp_server` with these arguments."""
        order = {"arguments": arguments, "environment": dict(environment), "log": str(log), "folder": os.getcwd()}
        assert self._parent.stdin is not None
        with self._one_at_a_time:
            self._parent.stdin.write(json.dumps(order).encode() + b"\n")
            self._parent.stdin.flush()
            return self._started.get(timeout=START_SECONDS)

    def _listen(self) -> None:
        assert self._parent.stdout is not None
        processes: dict[int, WarmProcess] = {}
        for line in self._parent.stdout:
            event = json.loads(line)
            if "started" in event:
                process = processes[event["started"]] = WarmProcess(event["started"], self._ended)
                self._started.put(process)
            else:
                processes.pop(event["ended"]).end(event["code"])

    def stop(self) -> None:
        """End it; servers that still run are left alone."""
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait()
        self._listener.join()
        self._parent.stdout.close()


@cache
def _parent() -> WarmParent:
    """The one of this process, started when it is first needed."""
    return WarmParent()


def start(arguments: list[str], environment: Mapping[str, str], log: Path) -> WarmProcess:
    """Start `python -m sharp_server` with these arguments."""
    return _parent().start(arguments, environment, log)


# ---- in the parent --------------------------------------------------------------------------------------------------


def _serve_orders() -> None:
    import sharp_server.__main__
    import sharp_server.server  # noqa: F401 (what takes so long)

    gc.freeze()  # what is here stays: nobody needs to look through it again
    # A trainer begins with the main module of its server.
    sys.modules["__main__"] = sharp_server.__main__
    heard, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    orders = sys.stdin.fileno()
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(heard, selectors.EVENT_READ)
        selector.register(orders, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == heard:
                    os.read(heard, 1 << 12)
                    _tell_who_ended()
                    continue
                read = os.read(orders, 1 << 16)
                if not read:
                    return
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    _fork(json.loads(line))


def _fork(order: dict[str, Any]) -> None:
    pid = os.fork()
    if pid == 0:
        _become_server(order)
    _announce(started=pid)


def _become_server(order: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["folder"])
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for here, there in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(here, there)
        os.closerange(3, 1 << 10)
        _keep_trainers_ready()
        _keep_teachers_ready()
        sys.argv[1:] = order["arguments"]
        code = sys.modules["__main__"].main(order["arguments"])
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# ---- in a server ----------------------------------------------------------------------------------------------------

_MOST_BYTES = 1 << 20
"""Of a trainer's arguments."""


class _Child:
    """A forked process, as `multiprocessing.Process` would show it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._one_at_a_time = threading.Lock()
        self._ended = False

    def kill(self) -> None:
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)

    def is_alive(self) -> bool:
        with self._one_at_a_time:
            if not self._ended:
                self._ended = os.waitpid(self.pid, os.WNOHANG)[0] != 0
            return not self._ended

    def join(self, timeout: float | None = None) -> None:
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)


_READY = 2
"""So many of each kind: one that dies is followed by another in no time. Each that waits costs every server a fork."""


def _keep_trainers_ready() -> None:
    """Fork trainers now, while there is one thread, no file and no learner; the first launches take them."""
    from sharp_server.training import process
    from sharp_server.training.worker import run_trainer

    spawn = process.spawn_trainer
    ready = [_fork_ahead(lambda handle, arguments: run_trainer(Connection(handle), *arguments)) for _ in range(_READY)]

    def take_ready_one(pipe: Connection, arguments: process.Arguments) -> Process:
        return ready.pop(0)(pipe.fileno(), arguments) if ready else spawn(pipe, arguments)

    process.spawn_trainer = take_ready_one


def _keep_teachers_ready() -> None:
    """The same for teachers."""
    from sharp_server.teaching import process
    from sharp_server.teaching.worker import run_teacher

    spawn = process.spawn_teacher
    ready = [
        _fork_ahead(lambda handle, arguments: run_teacher(socket.socket(fileno=handle), *arguments))
        for _ in range(_READY)
    ]

    def take_ready_one(pipe: socket.socket, arguments: process.Arguments) -> Process:
        return ready.pop(0)(pipe.fileno(), arguments) if ready else spawn(pipe, arguments)

    process.spawn_teacher = take_ready_one


_waiting: list[socket.socket] = []
"""Our ends of the sockets on which processes wait: whoever is forked after them must not hold them open."""


def _fork_ahead(run: Callable[[int, Any], None]) -> Callable[[int, Any], _Child]:
    """A process that waits for a pipe and arguments; gives what hands them over."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _wait_and_run(theirs, run)
    theirs.close()
    _waiting.append(ours)

    def hand_over(handle: int, arguments: Any) -> _Child:
        with ours:
            socket.send_fds(ours, [pickle.dumps(arguments)], [handle])
        return _Child(pid)

    return hand_over


def _wait_and_run(orders: socket.socket, run: Callable[[int, Any], None]) -> NoReturn:
    for other in _waiting:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with orders:
        arguments, pipes, _, _ = socket.recv_fds(orders, _MOST_BYTES, 1)
    if not arguments:  # the server ended before it wanted one
        os._exit(0)
    try:
        run(pipes[0], pickle.loads(arguments))
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _tell_who_ended() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _announce(ended=pid, code=os.waitstatus_to_exitcode(status))


def _announce(**event: int) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve_orders()
