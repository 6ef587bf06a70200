"""`sharp learn`: teach a learner from data on this machine."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.markup import escape

from sharp_cli import connection, data, quality
from sharp_cli.learn_view import LearnView, describe
from sharp_cli.output import console, side_console, write_json
from sharp_cli.plain import to_plain
from sharp_client import EpisodeNotLearnedError, EpisodeReport, LearnStream, check_batch

REFRESH = 0.1
"""Seconds between two looks at the episodes."""


class Boundaries(StrEnum):
    """Where episodes end."""

    EXPLICIT = "explicit"
    AUTOMATIC = "automatic"


def learn(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="DATA", help=data.HELP, show_default=False)],
    learner: Annotated[
        str | None,
        typer.Option("--learner", "-l", envvar="SHARP_LEARNER", help="Its name. If missing: the name of the data."),
    ] = None,
    classes_per_episode: Annotated[
        int, typer.Option(min=0, help="How many classes each episode brings. 0: all in one episode.")
    ] = 0,
    boundaries: Annotated[Boundaries, typer.Option(help="Who says where episodes end: we or the server.")] = (
        Boundaries.EXPLICIT
    ),
    batch_size: Annotated[int, typer.Option(min=1, help="Examples of one message.")] = 256,
    part: Annotated[
        data.Part, typer.Option(help="All, or every fifth example of each class (test), or the others (train).")
    ] = data.Part.ALL,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order within an episode.")] = 0,
    stream_id: Annotated[
        str | None, typer.Option(help="Id of the stream; the same id again continues after what is durable.")
    ] = None,
    resize: Annotated[bool, typer.Option(help="Let the server resize images of another size.")] = False,
    create: Annotated[bool, typer.Option(help="Create the learner if it is missing.")] = True,
    wait: Annotated[bool, typer.Option(help="Wait until everything is learned, not just durable.")] = True,
) -> None:
    """Teach a learner, an episode at a time, and watch it learn."""
    options = connection.of(ctx)
    labelled = data.load(source).part(part)
    check_batch(labelled.x, labelled.y)  # before a learner is created for it
    episodes = labelled.episodes(classes_per_episode, seed)
    name = learner or "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in labelled.name)
    automatic = boundaries is Boundaries.AUTOMATIC
    with options.connect() as client, ExitStack() as display:
        stream = client.learn(
            name, stream_id=stream_id, boundaries=boundaries.value, create=create, from_start=stream_id is not None
        )
        if not options.json:
            view = LearnView(stream, name, len(labelled), None if automatic else len(episodes))
            display.enter_context(
                Live(get_renderable=view.render, console=side_console(), refresh_per_second=8, transient=True)
            )
        follower = _Follower(stream, options.json)
        try:
            for number, episode in enumerate(episodes, 1):
                for batch in episode.batches(batch_size):
                    stream.send(batch.x, batch.y, resize=resize)
                    follower.report()
                if not automatic or number == len(episodes):
                    stream.end_episode()
            stream.flush()
            stream.close(follow=wait)
            if wait:
                follower.finish()
        except KeyboardInterrupt:
            display.close()
            _interrupted(stream, len(labelled))
            raise typer.Exit(130) from None
        display.close()
        reports = stream.episodes
        _report(options.json, name, stream, reports)
        failed = [report for report in reports if report.state in ("parked", "discarded")]
    if failed:
        raise typer.Exit(1)


def _interrupted(stream: LearnStream, examples: int) -> None:
    durable = stream.examples_acknowledged
    rest = "" if durable >= examples else f"; the rest: the same command with --stream-id {stream.stream_id}"
    typer.echo(f"sharp: {durable:,} of {examples:,} examples are durable and will be learned{rest}", err=True)


class _Follower:
    """Looks at the episodes and, for programs, writes a line about each that is finished."""

    def __init__(self, stream: LearnStream, write: bool) -> None:
        self._stream, self._write = stream, write
        self._reported: set[int] = set()

    def report(self) -> None:
        """Write about the episodes that were finished since the last time."""
        for report in self._stream.episodes:
            if report.finished and id(report) not in self._reported:
                self._reported.add(id(report))
                if self._write:
                    write_json({"event": "episode", **_plain(report)})

    def finish(self) -> None:
        """Wait until all are finished. Raises what broke the stream."""
        while True:
            self.report()
            try:
                self._stream.wait(REFRESH)
            except TimeoutError:
                continue
            except EpisodeNotLearnedError:
                pass  # is in the report
            self.report()
            return


def _plain(report: EpisodeReport) -> dict[str, Any]:
    plain: dict[str, Any] = {"episode": report.episode, "state": report.state}
    if report.closed is not None:
        closed = report.closed
        plain |= {"examples": closed.examples, "classes": closed.classes, "closed_by": closed.closed_by}
    if report.learned is not None:
        plain |= to_plain(report.learned)
    if report.parked is not None:
        plain |= {"reason": report.parked.reason, "detail": report.parked.detail}
    return plain


def _report(as_json: bool, name: str, stream: LearnStream, reports: list[EpisodeReport]) -> None:
    version = max((report.model_version for report in reports), default=0)
    if as_json:
        counts = {"examples_sent": stream.examples_sent, "examples_durable": stream.examples_acknowledged}
        summary = {"event": "done", "learner": name, "stream_id": stream.stream_id, **counts}
        write_json(summary | {"episodes": len(reports), "model_version": version})
        return
    out = console()
    for number, report in enumerate(reports, 1):
        mark = {"learned": "[green]✓[/]", "parked": "[red]✗[/]", "discarded": "[red]✗[/]"}.get(report.state, "·")
        out.print(f"{mark} episode {number}: {escape(describe(report))}")
    for words in quality.fallen_in(reports):
        side_console().print(f"[yellow]warning:[/] {escape(words)}", soft_wrap=True)
    state = f"version {version} serves" if version else "learning continues"
    out.print(f"[bold]{name}[/]: {stream.examples_acknowledged:,} examples are durable, {state}")
