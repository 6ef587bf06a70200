"""The training process, from its first moment: signals, priority, memory, then the loop of `episode_run`.

Must stay light: torch is imported only after the process gives way to others and dies with its parent. It ends by
itself when the front is gone.
"""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import signal
from multiprocessing.connection import Connection
from pathlib import Path

from sharp_server.config.model import LogConfig, TrainerConfig
from sharp_server.runtime import logs
from sharp_server.runtime.child_process import die_with_parent, name_process
from sharp_server.storage.interface import ExampleSource


def run_trainer(
    pipe: Connection, data: Path, examples: ExampleSource, config: TrainerConfig, log_config: LogConfig
) -> None:
    """The main function of the training process."""
    die_with_parent()
    name_process("sharp-trainer")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the front says when to stop, through the pipe
    os.nice(config.niceness)
    logs.set_up(log_config)
    import torch

    torch.set_num_threads(config.threads)
    if config.memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (config.memory_bytes, config.memory_bytes))
    lock = os.open(data / "trainer.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # a trainer of a server that was just killed may still be ending
    from sharp_server.training.episode_run import Trainer

    Trainer(pipe, examples, config, log_config).serve()
    # As in the front: taking torch apart takes long and helps nobody.
    logging.shutdown()
    os._exit(0)
