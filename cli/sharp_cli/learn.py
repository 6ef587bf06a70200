"""`sharp learn`: teach a learner from data on this machine."""

from __future__ import annotations

import re
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.markup import escape

from sharp_cli import connection, data, quality
from sharp_cli.data_options import ClassLevelOption, LabelColumnOption, SkipBadOption
from sharp_cli.learn_view import LearnView, describe
from sharp_cli.new_learner import ImageOptions, open_stream
from sharp_cli.output import console, count, side_console, write_json
from sharp_cli.plain import to_plain
from sharp_client import EpisodeNotLearnedError, EpisodeReport, LearnStream, ShapeMismatchError, SharpError, check_batch

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
    resize: Annotated[
        str | None,
        typer.Option(
            metavar="H[xW]",
            help="Images of any size: the learner resizes them, these and those it is asked about later.",
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(metavar="MODEL[:LAYER]", help="For photographs: a torchvision model in front, e.g. resnet18."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Its weights: a file here or in the server's folder, or a torchvision name."),
    ] = None,
    class_level: ClassLevelOption = None,
    label_column: LabelColumnOption = None,
    skip_bad: SkipBadOption = False,
    create: Annotated[bool, typer.Option(help="Create the learner if it is missing.")] = True,
    wait: Annotated[bool, typer.Option(help="Wait until everything is learned, not just durable.")] = True,
) -> None:
    """Teach a learner, an episode at a time, and watch it learn."""
    options = connection.of(ctx)
    asked = ImageOptions.read(resize, backbone, weights)
    labelled = data.load(source, data.ReadOptions(class_level, label_column, skip_bad)).part(part)
    config = asked.config(labelled)
    check_batch(labelled.x, labelled.y)  # before a learner is created for it
    _say_passed_over(options.json, labelled.findings)
    episodes = labelled.episodes(classes_per_episode, seed)
    name = learner or "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in labelled.name)
    automatic = boundaries is Boundaries.AUTOMATIC
    stream_options = {"stream_id": stream_id, "boundaries": boundaries.value, "from_start": stream_id is not None}
    with options.connect() as client, ExitStack() as display:
        if asked.weights_here is not None:
            config = asked.with_weights_on_server(client).config(labelled)
        stream = open_stream(client, name, labelled, config, create, **stream_options)
        if not options.json:
            view = LearnView(stream, name, len(labelled), None if automatic else len(episodes))
            display.enter_context(
                Live(get_renderable=view.render, console=side_console(), refresh_per_second=8, transient=True)
            )
        follower = _Follower(stream, options.json)
        try:
            for number, episode in enumerate(episodes, 1):
                for batch in episode.batches(batch_size):
                    stream.send(batch.x, batch.y)
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
        except SharpError as error:
            raise _with_file(error, stream, [file for episode in episodes for file in episode.x]) from error
        display.close()
        reports = stream.episodes
        _report(options.json, name, stream, reports, labelled.findings)
        failed = [report for report in reports if report.state in ("parked", "discarded")]
    if failed:
        raise typer.Exit(1)


def _say_passed_over(as_json: bool, findings: data.Findings) -> None:
    for line in findings.passed_over if not as_json else ():
        typer.echo(f"passed over: {line}", err=True)


def _with_file(error: SharpError, stream: LearnStream, sent: list[Any]) -> Exception:
    """The same error, with the file that it is about: what came before it is durable, so its place is known."""
    example = error.metadata.get("example", "")
    index = stream.examples_acknowledged + int(example) if example.isdecimal() else len(sent)
    if index >= len(sent) or not isinstance(sent[index], Path):
        return error
    problem = re.sub(r"^image \d+ ", "", error.message).partition("; with resize")[0]
    if isinstance(error, ShapeMismatchError):
        problem += ": the learner takes images of one size; a new one that is made with --resize takes any"
    before = f" ({count(stream.examples_acknowledged, 'example')} before it are durable)"
    return ValueError(f"{sent[index]}: {problem}{before if stream.examples_acknowledged else ''}")


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


def _report(
    as_json: bool, name: str, stream: LearnStream, reports: list[EpisodeReport], findings: data.Findings
) -> None:
    version = max((report.model_version for report in reports), default=0)
    if as_json:
        counts = {"examples_sent": stream.examples_sent, "examples_durable": stream.examples_acknowledged}
        summary: dict[str, Any] = {"event": "done", "learner": name, "stream_id": stream.stream_id, **counts}
        summary |= {"episodes": len(reports), "model_version": version}
        if findings.bad or findings.passed_over:
            summary |= {"skipped": to_plain(findings.bad), "passed_over": findings.passed_over}
        write_json(summary)
        return
    out = console()
    for report in reports:
        mark = {"learned": "[green]✓[/]", "parked": "[red]✗[/]", "discarded": "[red]✗[/]"}.get(report.state, "·")
        out.print(f"{mark} episode {report.episode or '–'}: {escape(describe(report))}")
    for words in quality.fallen_in(reports):
        side_console().print(f"[yellow]warning:[/] {escape(words)}", soft_wrap=True)
    state = f"version {version} serves" if version else "learning continues"
    out.print(f"[bold]{name}[/]: {stream.examples_acknowledged:,} examples are durable, {state}")
    if findings.bad:
        out.print(f"skipped {count(len(findings.bad), 'item')} that can't be used:")
        for item in findings.bad:
            out.print(f"  {escape(str(item))}", soft_wrap=True)
