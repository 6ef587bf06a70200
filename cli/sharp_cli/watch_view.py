"""What `sharp watch` draws: units by rank, capacity left, memories, backlog, throughput, what happened."""

from __future__ import annotations

import functools
from collections import deque

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from sharp_cli.output import count, size, span
from sharp_cli.plain import time_text
from sharp_client import EpisodeEvent, LayerStatistics, LearnerStatus, LearnerUpdate, Progress

WIDTH = 100
"""Characters of the widest picture."""

NARROW = 80
"""Below so many characters, what can be worked out from the rest is left out."""

BESIDE_BAR = 52
"""Characters of a line that a layer's bar does not get."""

BESIDE_NARROW_BAR = 28
"""The same in a narrow terminal."""

FRAME_LINES = 3
"""Lines of a terminal that the picture's frame and the cursor take."""

METER = 16
"""Characters of a meter of bytes."""

NARROW_METER = 6
"""The same in a narrow terminal."""

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

    def render(self, width: int, height: int | None = None) -> RenderableType:
        """Draw it, as wide and as high as the terminal at most.

        Where lines are few, old events go first, then the legend, then layers: never the state, what waits, or what
        happened last.
        """
        narrow, width = width < NARROW, min(width, WIDTH)
        status = self._status
        if status is None:
            return Text("waiting for the server …", style="dim")
        head: list[RenderableType] = [_head(status, narrow)]
        if status.progress is not None:
            head.append(_progress(status.training_episode, status.progress, narrow))
        facts = _facts(status, narrow)
        events = list(self._events)
        room = 1000 if height is None else height - FRAME_LINES - len(head) - facts.row_count - 1
        kept = min(len(events), 2)
        layers, lines = _layers(status, narrow, width, room - 1 - (kept + 1 if kept else 0))
        parts: list[RenderableType] = [*head, *([Rule(style="dim"), layers] if lines else []), Rule(style="dim"), facts]
        left = room - (lines + 1 if lines else 0) - 1
        if events and left > 0:
            parts += [Rule(style="dim"), *events[-left:]]
        return Panel(Group(*parts), title=f"[bold]{self._name}[/]", title_align="left", border_style="dim", width=width)


def _line(*parts: tuple[str, str]) -> Text:
    """One line, whatever the width."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _head(status: LearnerStatus, narrow: bool) -> Text:
    gap = " " if narrow else "   "
    return _line(
        (f"{status.state:<10}", _STATES.get(status.state, "")),
        ("version ", "dim"),
        (f"{status.model_version}{gap}", "bold"),
        ("episodes " if narrow else "episodes learned ", "dim"),
        (f"{status.episodes_learned}{gap}", "bold"),
        ("classes ", "dim"),
        (f"{status.memories.classes}{gap}", "bold"),
        (time_text(status.time)[11:19], "dim"),
    )


def _progress(episode: int, progress: Progress, narrow: bool) -> Table:
    words = []
    if progress.phase:
        words.append(f"phase {progress.phase} of {progress.phases}")
    if progress.phase and not narrow:
        words.append(f"epoch {progress.epoch} of {progress.epochs}")
    if progress.loss is not None and not narrow:
        words.append(f"loss {progress.loss:.3f}")
    if progress.time_left is not None:
        words.append(f"{span(progress.time_left)} left")
    row = Table.grid(padding=(0, 2))
    row.add_row(
        Text(f"episode {episode}", style="yellow"),
        ProgressBar(total=1.0, completed=progress.fraction, width=12 if narrow else 30, complete_style="yellow"),
        _line((" · ".join(words), "")),
    )
    return row


def _layers(status: LearnerStatus, narrow: bool, width: int, room: int) -> tuple[RenderableType, int]:
    """The layers in so many lines at most, and how many it takes."""
    if room < 2:
        return Text(), 0
    if not status.layers:
        return _line(("no layers yet: the first batch settles the architecture", "dim")), 1
    bar_width = max(8, width - (BESIDE_NARROW_BAR if narrow else BESIDE_BAR))
    heads = ("layer", "units by rank", "idle") + (() if narrow else ("units", "density"))
    rows = Table.grid(padding=(0, 2))
    rows.add_column(max_width=10 if narrow else 16, overflow="ellipsis", no_wrap=True)
    for head in heads[1:]:
        rows.add_column(justify="left" if head == heads[1] else "right", no_wrap=True)
    rows.add_row(*(Text(word, style="dim") for word in heads))
    # The last ones decide whether there is room for more classes; the first ones change the least.
    shown = status.layers if len(status.layers) < room else status.layers[len(status.layers) - room + 2 :]
    if len(shown) < len(status.layers):
        rows.add_row(Text(f"… {len(status.layers) - len(shown)} more", style="dim"))
    for layer in shown:
        share = layer.idle / max(1, layer.units)
        style = "red" if share < 0.05 else "yellow" if share < 0.2 else "green"
        idle = Text("pretrained", style="dim") if layer.pretrained else Text(f"{share:.0%}", style=style)
        more = () if narrow else (f"{layer.units}", f"{layer.density:.2f}")
        rows.add_row(layer.name, rank_bar(layer, bar_width), idle, *more)
    if rows.row_count >= room:
        return rows, rows.row_count
    return Group(rows, _legend(narrow)), rows.row_count + 1


def _legend(narrow: bool) -> Text:
    return _line(
        ("■ training  ", RANK_COLOURS[0]),
        ("■ 1 ago  " if narrow else "■ 1 episode ago  ", RANK_COLOURS[1]),
        ("■ 2  ", RANK_COLOURS[2]),
        ("■ 3  ", RANK_COLOURS[3]),
        ("■ older  ", RANK_COLOURS[-1]),
        ("░ idle", "dim"),
    )


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


def _facts(status: LearnerStatus, narrow: bool) -> Table:
    """A line for each fact."""
    memories, backlog, rates = status.memories, status.backlog, status.throughput
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", min_width=10, no_wrap=True)
    rows.add_column(width=NARROW_METER if narrow else METER)
    rows.add_column(no_wrap=True, overflow="ellipsis")
    meter = functools.partial(_meter, width=NARROW_METER if narrow else METER)
    rows.add_row(
        "short-term",
        meter(memories.stm_bytes, memories.stm_bytes_limit),
        f"{size(memories.stm_bytes)} of {size(memories.stm_bytes_limit)}"
        + ("" if narrow else f", {memories.stm_entries:,} examples"),
    )
    rows.add_row("long-term", "", f"{size(memories.ltm_bytes)}, {memories.ltm_entries:,} memories")
    rows.add_row(
        "backlog",
        meter(backlog.bytes, backlog.bytes_limit),
        f"{size(backlog.bytes)}{'' if narrow else f' of {size(backlog.bytes_limit)}'}, "
        f"{backlog.episodes_waiting} waiting, {backlog.episodes_parked} parked",
    )
    rows.add_row("behind", "", f"{backlog.lag_examples:,} examples, {span(backlog.lag)}")
    if status.examples_beyond_version or backlog.uncounted_examples:
        known = (
            f"{status.examples_beyond_version:,} examples beyond the version, {backlog.uncounted_examples:,} not yet"
        )
        rows.add_row("known", "", known)
    if backlog.open_examples:
        rows.add_row("open", "", f"{count(backlog.open_examples, 'example')} in no episode yet")
    rows.add_row(
        "examples/s",
        "",
        f"{'in' if narrow else 'ingested'} {rates.examples_ingested_per_second:,.0f} · "
        f"trained {rates.examples_trained_per_second:,.0f} · predicted {rates.examples_predicted_per_second:,.0f}",
    )
    if status.damaged_snapshots:
        damaged = count(status.damaged_snapshots, "snapshot")
        rows.add_row("damaged", "", Text(f"{damaged}, see `sharp status`", style="red"))
    return rows


def _meter(used: int, limit: int, width: int) -> ProgressBar:
    style = "red" if limit and used / limit > 0.9 else "cyan"
    return ProgressBar(total=max(1, limit), completed=used, width=width, complete_style=style, finished_style=style)


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
    return _line((f"{at}  ", "dim"), (f"episode {event.episode} {words}", style))
