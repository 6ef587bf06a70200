"""What `sharp watch` draws: units by rank, capacity left, memories, backlog, throughput, what happened."""

from __future__ import annotations

from collections import deque

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from sharp_cli import quality
from sharp_cli.output import count, size, span
from sharp_cli.plain import time_text
from sharp_client import EpisodeEvent, LayerStatistics, LearnerStatus, LearnerUpdate, Progress

WIDTH = 100
"""Characters of the widest picture."""

BESIDE_BAR = 52
"""Characters of a line that a layer's bar does not get."""

METER = 16
"""Characters of a meter of bytes."""

FALLEN = 3
"""How many of the classes that got worse are named."""

EVENTS = 6
"""How many of the latest events are shown."""

RANK_COLOURS = ("bright_yellow", "cyan", "dodger_blue2", "blue", "purple", "magenta", "deep_pink4", "grey50")
"""Colours of the ranks 1, 2, 3, …; all older ones have the last."""

_STATES = {"idle": "green", "training": "yellow", "waiting": "yellow", "changing": "magenta"}


class WatchView:
    """Draws the latest status of a learner."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._status: LearnerStatus | None = None
        self._events: deque[Text] = deque(maxlen=EVENTS)

    def update(self, update: LearnerUpdate) -> None:
        """Remember the latest status and events."""
        self._status = update.status
        for event in update.events:
            text = describe_event(event)
            if text is not None:
                self._events.append(text)

    def render(self, width: int) -> RenderableType:
        """Draw it, as wide as the terminal at most."""
        width = min(width, WIDTH)
        status = self._status
        if status is None:
            return Text("waiting for the server …", style="dim")
        parts: list[RenderableType] = [_head(status)]
        if status.progress is not None:
            parts.append(_progress(status.training_episode, status.progress))
        parts += [Rule(style="dim"), _layers(status, max(10, width - BESIDE_BAR)), Rule(style="dim"), _facts(status)]
        if self._events:
            parts += [Rule(style="dim"), *self._events]
        return Panel(Group(*parts), title=f"[bold]{self._name}[/]", title_align="left", border_style="dim", width=width)


def _head(status: LearnerStatus) -> Text:
    return Text.assemble(
        (f"{status.state:<10}", _STATES.get(status.state, "")),
        ("version ", "dim"),
        (f"{status.model_version}   ", "bold"),
        ("episodes learned ", "dim"),
        (f"{status.episodes_learned}   ", "bold"),
        ("classes ", "dim"),
        (f"{status.memories.classes}   ", "bold"),
        (time_text(status.time)[11:19], "dim"),
    )


def _progress(episode: int, progress: Progress) -> Table:
    words = []
    if progress.phase:
        words += [f"phase {progress.phase} of {progress.phases}", f"epoch {progress.epoch} of {progress.epochs}"]
    if progress.loss is not None:
        words.append(f"loss {progress.loss:.3f}")
    if progress.time_left is not None:
        words.append(f"{span(progress.time_left)} left")
    row = Table.grid(padding=(0, 2))
    row.add_row(
        Text(f"episode {episode}", style="yellow"),
        ProgressBar(total=1.0, completed=progress.fraction, width=30, complete_style="yellow"),
        Text(" · ".join(words)),
    )
    return row


def _layers(status: LearnerStatus, width: int) -> RenderableType:
    if not status.layers:
        return Text("no layers yet: the first batch settles the architecture", style="dim")
    rows = Table.grid(padding=(0, 2))
    rows.add_column(max_width=16, overflow="ellipsis", no_wrap=True)
    for justify in ("left", "right", "right", "right"):
        rows.add_column(justify=justify, no_wrap=True)
    rows.add_row(*(Text(word, style="dim") for word in ("layer", "units by rank", "idle", "units", "density")))
    for layer in status.layers:
        share = layer.idle / max(1, layer.units)
        style = "red" if share < 0.05 else "yellow" if share < 0.2 else "green"
        idle = Text("pretrained", style="dim") if layer.pretrained else Text(f"{share:.0%}", style=style)
        rows.add_row(layer.name, rank_bar(layer, width), idle, f"{layer.units}", f"{layer.density:.2f}")
    legend = Text("■ training  ", style=RANK_COLOURS[0])
    legend.append("■ 1 episode ago  ", style=RANK_COLOURS[1]).append("■ 2  ", style=RANK_COLOURS[2])
    legend.append("■ 3  ", style=RANK_COLOURS[3]).append("■ older  ", style=RANK_COLOURS[-1]).append("░ idle", "dim")
    return Group(rows, legend)


def rank_bar(layer: LayerStatistics, width: int) -> Text:
    """Draw the units of a layer by rank, the youngest first, the idle ones last."""
    if layer.pretrained:
        return Text("▒" * width, style="dim")
    ranks = sorted((count.rank, count.units) for count in layer.ranks)
    parts = [(rank, units) for rank, units in ranks if rank > 0] + [(0, units) for rank, units in ranks if rank == 0]
    total = max(1, sum(units for _, units in parts))
    bar, done, drawn = Text(), 0, 0
    for rank, units in parts:
        done += units
        # Each boundary is rounded by itself, so that the whole is always as wide as the bar.
        end = round(width * done / total)
        if rank == 0:
            bar.append("░" * (end - drawn), style="dim")
        else:
            bar.append("█" * (end - drawn), style=RANK_COLOURS[min(rank, len(RANK_COLOURS)) - 1])
        drawn = end
    return bar


def _facts(status: LearnerStatus) -> Table:
    memories, backlog, rates = status.memories, status.backlog, status.throughput
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", min_width=10)
    rows.add_column(width=METER)
    rows.add_column()
    rows.add_row(
        "short-term",
        _meter(memories.stm_bytes, memories.stm_bytes_limit),
        f"{size(memories.stm_bytes)} of {size(memories.stm_bytes_limit)}, {memories.stm_entries:,} examples",
    )
    rows.add_row("long-term", "", f"{size(memories.ltm_bytes)}, {memories.ltm_entries:,} memories")
    rows.add_row(
        "backlog",
        _meter(backlog.bytes, backlog.bytes_limit),
        f"{size(backlog.bytes)} of {size(backlog.bytes_limit)}, {count(backlog.episodes_waiting, 'episode')} waiting, "
        f"{backlog.episodes_parked} parked",
    )
    if words := quality.summary(status.quality):
        rows.add_row("quality", "", words)
        for fallen in status.quality.fallen[:FALLEN] if status.quality is not None else ():
            rows.add_row("", "", Text(quality.fall(fallen), style="yellow"))
    rows.add_row("behind", "", f"{backlog.lag_examples:,} examples, {span(backlog.lag)}")
    rows.add_row(
        "examples/s",
        "",
        f"ingested {rates.examples_ingested_per_second:,.0f} · trained {rates.examples_trained_per_second:,.0f} · "
        f"predicted {rates.examples_predicted_per_second:,.0f}",
    )
    if status.damaged_snapshots:
        damaged = count(status.damaged_snapshots, "snapshot")
        rows.add_row("damaged", "", Text(f"{damaged}, see `sharp status`", style="red"))
    return rows


def _meter(used: int, limit: int) -> ProgressBar:
    style = "red" if limit and used / limit > 0.9 else "cyan"
    return ProgressBar(total=max(1, limit), completed=used, width=METER, complete_style=style, finished_style=style)


def describe_event(event: EpisodeEvent) -> Text | None:
    """Describe what happened to an episode in a line. None: progress, or something newer than this."""
    if event.closed is not None:
        words, style = f"closed by {event.closed.closed_by}, {event.closed.examples:,} examples", ""
    elif event.started is not None:
        words, style = f"started, attempt {event.started.attempt} of {event.started.attempts}", "yellow"
    elif event.learned is not None:
        statistics = event.learned.statistics
        new = ", ".join(map(str, statistics.new_classes)) if statistics is not None else ""
        words, style = f"learned, version {event.learned.model_version}{f', new: {new}' if new else ''}", "green"
    elif event.parked is not None:
        words, style = f"parked: {event.parked.detail}", "red"
    elif event.discarded is not None:
        words, style = f"discarded: {event.discarded.reason.replace('_', ' ')}", "red"
    else:
        return None
    at = time_text(event.time)[11:19]
    return Text.assemble((f"{at}  ", "dim"), (f"episode {event.episode} {words}", style))
