"""Opening a data folder in this very process, as a starting server does, hundreds of times."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from reliability.simulation.teacher import InProcessTeacher
from sharp_server.config.model import DataConfig, ServerConfig, TrainerConfig
from sharp_server.context import Makers, ServerContext
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.sqlite import schema
from sharp_server.teaching.teaching import Teaching

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
    corruption_events: list[str] = field(default_factory=list)
    counted: float = 0.0


def opened(folder: Path, questions: np.ndarray[Any, Any]) -> Opened:
    """Start up on a folder and end again.

    Batches that wait are not counted meanwhile: how far that got by the time of a question would be chance.
    """
    with patch.object(Teaching, "_wake"), patch("sharp_server.teaching.teaching._SECONDS_TO_COUNT", 0.0):
        return asyncio.run(_opened(folder, questions))


async def _opened(path: Path, questions: np.ndarray[Any, Any]) -> Opened:
    config = ServerConfig(data=DataConfig(folder=str(path)), trainer=TrainerConfig(retry_seconds=NEVER))
    folder = DataFolder(path)
    folder.acquire()
    context = ServerContext(config, folder, make=Makers(teacher=InProcessTeacher))
    found = Opened()
    try:
        await context.load()
        for served in context.registry:
            found.versions[served.name] = served.model.version
            predictor = served.model.predictor
            if predictor is None:
                found.answers[served.name] = None
            else:
                answer = predictor.predict(torch.from_numpy(questions), 1, 0, False)
                found.answers[served.name] = list(answer.labels), answer.distance.tobytes()
        found.corruption_events = [event.detail for event in await context.storage.corruption_events()]
        found.counted = context.metrics.corruption_events._value.get()
        found.durable = _streams(folder.journal)
    finally:
        await context.close()
        folder.release()
    return found


def _streams(journal: Path) -> dict[str, int]:
    connection = schema.connect(journal, readonly=True)
    try:
        return dict(connection.execute("SELECT name, durable FROM streams").fetchall())
    finally:
        connection.close()


def copied(source: Path, target: Path) -> Path:
    """A copy of a data folder to be damaged."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
