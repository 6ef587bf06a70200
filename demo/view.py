"""What the demo shows: live bars while something works, and a line for whatever is done.

Without a terminal there are the lines only, so that a log of CI reads well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo.record import Episode, Promise, percent
from sharp_cli.learn_view import describe
from sharp_client import EpisodeReport, LearnStream

WIDTH = 32
"""Characters of a bar."""


@dataclass
class Lesson:
    """One episode as it is being learned by both."""

    title: str
    examples: int
    stream: LearnStream
    sent_before: int
    report: EpisodeReport | None = None
    plain: float = 0.0
    """Share of the plain network's training that is done."""

    def render(self) -> RenderableType:
        """Draw it as it is at the moment."""
        sent = self.stream.examples_sent - self.sent_before
        durable = max(0, self.stream.examples_acknowledged - self.sent_before)
        report = self.report
        rows = Table.grid(padding=(0, 2))
        rows.add_row("  sent", _bar(sent / self.examples, "blue"), f"{sent} examples")
        rows.add_row("  durable", _bar(durable / self.examples, "cyan"), f"{durable} on the server's disk")
        rows.add_row("  SHARP", _bar(report.fraction if report else 0.0, "green"), describe(report) if report else "")
        rows.add_row("  plain network", _bar(self.plain, "yellow"), "fine-tuning" if self.plain < 1 else "fine-tuned")
        return Group(Text(self.title, style="bold"), rows)


def _bar(share: float, style: str) -> ProgressBar:
    return ProgressBar(total=1.0, completed=share, width=WIDTH, complete_style=style, finished_style=style)


class View:
    """A terminal, or a file that looks like none."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = time.monotonic()

    def heading(self, text: str) -> None:
        """A new part of the story, with the time since the start."""
        seconds = time.monotonic() - self._begun
        self._line(Text.assemble(("\n" + text, "bold"), (f"  {seconds:.0f} s", "dim")))

    def line(self, text: str) -> None:
        """Something to know."""
        self._line(Text("  " + text))

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Something that takes a while."""
        if self._console.is_terminal:
            with self._console.status(text):
                yield
        else:
            self.line(text + " …")
            yield

    @contextmanager
    def lesson(self, lesson: Lesson) -> Iterator[None]:
        """Bars for an episode."""
        if self._console.is_terminal:
            with Live(
                get_renderable=lesson.render, console=self._console, refresh_per_second=10, transient=True
            ) as live:
                yield
                live.refresh()
        else:
            self.line(lesson.title)
            yield

    def episode(self, number: int, episode: Episode) -> None:
        """What both know after an episode."""
        bars = Table.grid(padding=(0, 2))
        bars.add_column(width=34)
        new = " and ".join(map(str, episode.classes))
        names = Text(f"  after episode {number} (new: {new})")
        sharp = Text(f"SHARP {percent(episode.sharp)}", "bold green")
        plain = Text(f"plain network {percent(episode.plain)}", "yellow")
        bars.add_row(names, _bar(episode.sharp, "green"), sharp)
        bars.add_row("", _bar(episode.plain, "yellow"), plain)
        if self._console.is_terminal:
            self._console.print(bars)
        else:
            self._line(Text.assemble(names, ": ", sharp, ", ", plain))

    def promise(self, promise: Promise) -> None:
        """A promise, and whether it held."""
        mark = ("  ✓ ", "green") if promise.holds else ("  ✗ ", "bold red")
        self._line(Text.assemble(mark, promise.what, (f" ({promise.seen})", "dim")))

    def _line(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)
