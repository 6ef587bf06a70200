"""What `sharp learn` shows while it works: what is sent, what is durable, and how far the trainer is."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sharp_cli.output import span
from sharp_client import EpisodeReport, LearnStream

WIDTH = 32
"""Characters of a bar."""

ROWS = 8
"""Episodes shown at most: the unfinished ones, and the latest of the others."""

_STYLES = {"learned": "green", "parked": "red", "discarded": "red", "empty": "dim", "training": "yellow"}


class LearnView:
    """Draws a learn stream at one moment; rich asks for it a few times per second."""

    def __init__(self, stream: LearnStream, learner: str, examples: int, episodes: int | None) -> None:
        self._stream, self._learner = stream, learner
        self._examples, self._episodes = examples, episodes

    def render(self) -> RenderableType:
        """Draw it."""
        stream, reports = self._stream, self._stream.episodes
        learned = sum(report.closed.examples for report in reports if report.state == "learned" and report.closed)
        counts = _bars()
        counts.add_row("sent", *self._bar(stream.examples_sent, "blue"))
        counts.add_row("durable", *self._bar(stream.examples_acknowledged, "cyan"))
        counts.add_row("learned", *self._bar(learned, "green"))
        title = Text.assemble(("learner ", "dim"), (self._learner, "bold"), ("  stream ", "dim"), stream.stream_id)
        if stream.resumptions:
            title.append(f"  resumed {stream.resumptions} ×", style="yellow")
        return Group(title, counts, self._episode_rows(reports))

    def _bar(self, count: int, style: str) -> tuple[RenderableType, str]:
        bar = ProgressBar(total=max(1, self._examples), completed=count, width=WIDTH, complete_style=style)
        return bar, f"{count:,} of {self._examples:,}"

    def _episode_rows(self, reports: list[EpisodeReport]) -> RenderableType:
        rows = _bars()
        busy = [report for report in reports if not report.finished]
        # The trainer works on the first of them; later ones wait.
        start = max(0, min(len(reports) - len(busy), len(reports) - ROWS) if len(busy) < ROWS else len(reports) - ROWS)
        for number, report in list(enumerate(reports, 1))[start:]:
            of = f" ({number}/{self._episodes})" if self._episodes and self._episodes > 1 else ""
            style = _STYLES.get(report.state, "dim")
            bar = ProgressBar(total=1.0, completed=report.fraction, width=WIDTH, complete_style=style)
            rows.add_row(f"episode {report.episode or '…'}{of}", bar, Text(describe(report), style=style))
        return rows


def describe(report: EpisodeReport) -> str:
    """Describe the state of an episode in a few words."""
    words = [report.state]
    progress = report.progress
    if report.state == "training" and progress is not None:
        if progress.phase:
            words.append(f"phase {progress.phase} of {progress.phases}")
        if progress.loss is not None:
            words.append(f"loss {progress.loss:.3f}")
        if progress.examples_per_second:
            words.append(f"{progress.examples_per_second:,.0f} /s")
        if progress.time_left is not None:
            words.append(f"{span(progress.time_left)} left")
    elif report.state == "learned":
        words.append(f"version {report.model_version}")
        statistics = report.statistics
        if statistics is not None:
            if statistics.phase_losses:
                words.append(f"loss {statistics.phase_losses[-1]:.3f}")
            words.append(f"{statistics.examples:,} examples in {statistics.training_time:.1f} s")
    elif report.state == "parked" and report.parked is not None:
        words.append(report.parked.detail)
    return " · ".join(words)


def _bars() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12)
    table.add_column(width=WIDTH)
    table.add_column()
    return table
