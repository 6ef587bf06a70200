"""Shows how far the trainer is: a bar if rich is installed, log lines otherwise."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Any, Self

from ._episode import EpisodeState

logger = logging.getLogger("sharp_client")

LOG_EVERY = 5.0
"""Seconds between two log lines."""


def describe(report: EpisodeState) -> str:
    """Describe the state of an episode in a few words."""
    words = [f"episode {report.episode}" if report.episode else "episode", report.state]
    if report.state == "waiting" and report.closed is not None and report.closed.episodes_ahead:
        words.append(f"{report.closed.episodes_ahead} ahead")
    progress = report.progress
    if report.state == "training" and progress is not None:
        if progress.phase:
            words.append(f"phase {progress.phase}/{progress.phases}")
        if progress.loss is not None:
            words.append(f"loss {progress.loss:.3f}")
        if progress.time_left is not None:
            words.append(f"{progress.time_left:.0f} s left")
    if report.state == "learned":
        words.append(f"version {report.model_version}")
    return " · ".join(words)


class ProgressDisplay:
    """Shows episodes while they are waited for. Does nothing if not enabled."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._bar: Any = None
        self._tasks: dict[int, Any] = {}
        self._logged: dict[int, tuple[float, str]] = {}

    def __enter__(self) -> Self:
        if self._enabled:
            try:
                from rich.console import Console
                from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
            except ImportError:
                return self
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, report: EpisodeState) -> None:
        """Show the state of an episode, if it is time to."""
        if not self._enabled:
            return
        key, text = id(report), describe(report)
        if self._bar is not None:
            if key not in self._tasks:
                self._tasks[key] = self._bar.add_task(text, total=1.0)
            self._bar.update(self._tasks[key], description=text, completed=report.fraction)
            return
        last, state = self._logged.get(key, (0.0, ""))
        if state != report.state or time.monotonic() - last >= LOG_EVERY:
            self._logged[key] = (time.monotonic(), report.state)
            logger.info("%s (%d %%)", text, round(100 * report.fraction))
