"""Opening a data folder in this very process, as a starting server does, hundreds of times."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sharp_server.config.model import DataConfig, ServerConfig, TrainerConfig
from sharp_server.context import ServerContext
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.sqlite import learners as ledger_learners

NEVER = 1e6
"""Seconds: no trainer is started while a folder is only looked at."""


@dataclass
class Opened:
    """What a server on this folder would serve and tell."""

    versions: dict[str, int] = field(default_factory=dict)
    answers: dict[str, tuple[list[Any], bytes] | None] = field(default_factory=dict)
    """By learner: labels and distances for the same questions; None: nothing serves."""
    durable: dict[str, int] = field(default_factory=dict)
    """Acknowledged numbers by stream."""
    damages: list[str] = field(default_factory=list)
    counted: float = 0.0


def opened(folder: Path, questions: np.ndarray[Any, Any]) -> Opened:
    """Start up on a folder and end again."""
    return asyncio.run(_opened(folder, questions))


async def _opened(path: Path, questions: np.ndarray[Any, Any]) -> Opened:
    config = ServerConfig(data=DataConfig(folder=str(path)), trainer=TrainerConfig(retry_seconds=NEVER))
    folder = DataFolder(path)
    folder.acquire()
    front = ServerContext(config, folder)
    found = Opened()
    try:
        await front.load()
        for served in front.registry:
            found.versions[served.name] = served.model.version
            predictor = served.model.predictor
            if predictor is None:
                found.answers[served.name] = None
            else:
                told = predictor.predict(torch.from_numpy(questions), 1, 0, False)
                found.answers[served.name] = list(told.labels), told.distance.tobytes()
        found.durable = dict(await front.journal.read(_streams))
        found.damages = [detail for *_, detail in await front.journal.read(ledger_learners.damages)]
        found.counted = front.metrics.damages._value.get()
    finally:
        await front.close()
        folder.release()
    return found


def _streams(connection: Any) -> Any:
    return connection.execute("SELECT name, durable FROM streams").fetchall()


def copied(source: Path, target: Path) -> Path:
    """A copy of a data folder to be damaged."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
