"""`sharp learner …`: create, list, show, watch and delete learners."""

from __future__ import annotations

from typing import Annotated

import typer

from sharp_cli import classes, connection, watch
from sharp_cli.confirmation import YesOption, confirm
from sharp_cli.output import console, count, size, span, table, write_json
from sharp_cli.plain import time_text, to_plain
from sharp_client import LearnerInfo

app = typer.Typer(no_args_is_help=True, help="Create, list, show, watch and delete learners.")
app.command("watch")(watch.watch)


def rows(learners: list[LearnerInfo]) -> list[list[str]]:
    """Make a row of a table of learners for each one."""
    return [
        [
            learner.name,
            learner.status.state,
            str(learner.status.model_version),
            str(learner.status.episodes_learned),
            str(learner.status.memories.classes),
            "×".join(map(str, learner.input_shape)) or "–",
            f"{learner.status.backlog.lag_examples:,}",
            str(learner.status.backlog.episodes_parked),
            f"{learner.status.backlog.open_examples:,}",
        ]
        for learner in learners
    ]


HEADS = ("learner", "state", "version", "episodes", "classes", "input", "behind", "parked", "open")
"""The columns of a table of learners."""


@app.command("list")
def list_learners(ctx: typer.Context) -> None:
    """List all learners."""
    options = connection.of(ctx)
    with options.connect() as client:
        learners = client.list_learners()
    if options.json:
        write_json({"learners": to_plain(learners)})
    elif learners:
        console().print(table(*HEADS, rows=rows(learners), numbers=HEADS[2:5] + HEADS[6:]))
    else:
        console().print("no learners yet: teach one with `sharp learn`")


@app.command()
def show(ctx: typer.Context, name: Annotated[str, typer.Argument(help="Its name.")]) -> None:
    """Show everything about one learner."""
    options = connection.of(ctx)
    with options.connect() as client:
        learner = client.get_learner(name)
    if options.json:
        write_json(to_plain(learner))
        return
    out, status, backlog = console(), learner.status, learner.status.backlog
    out.print(f"[bold]{learner.name}[/]  {status.state}  [dim]{learner.uid}[/]")
    facts = [
        ("architecture", learner.architecture or "decided by the first batch"),
        ("input", "×".join(map(str, learner.input_shape)) or "decided by the first batch"),
        ("version", f"{status.model_version}, {count(status.episodes_learned, 'episode')} learned"),
        ("memories", f"{size(status.memories.stm_bytes)} short-term, {size(status.memories.ltm_bytes)} long-term"),
        (
            "beyond it",
            f"{count(status.examples_beyond_version, 'example')} known, {backlog.uncounted_examples:,} not yet",
        ),
        ("backlog", f"{count(backlog.examples, 'example')}, {count(backlog.episodes_parked, 'episode')} parked"),
        ("open", f"{count(backlog.open_examples, 'example')} in no episode yet"),
        ("behind", f"{count(backlog.lag_examples, 'example')}, {span(backlog.lag)}"),
        ("created", time_text(learner.create_time)),
    ]
    out.print(table("", "", rows=facts))
    if learner.classes:
        out.print(table(*classes.HEADS, rows=classes.rows(learner.classes), numbers=classes.HEADS[1:]))
    if learner.settings:
        out.print(table("setting", "value", rows=sorted(learner.settings.items())))


@app.command()
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Its name.")],
    preset: Annotated[str, typer.Option(help="A named set of settings, e.g. mnist.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting; may be repeated.")
    ] = None,
    input_shape: Annotated[str, typer.Option(help="Shape of one example, e.g. 64 or 1x28x28.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
) -> None:
    """Create a learner that knows nothing yet; its first batch decides what is left out."""
    options = connection.of(ctx)
    overrides = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{setting!r} is not of the form KEY=VALUE", param_hint="--set")
        overrides[key] = value
    try:
        shape = [int(side) for side in input_shape.replace("×", "x").split("x")] if input_shape else []
    except ValueError:
        raise typer.BadParameter(f"{input_shape!r} is no shape such as 1x28x28", param_hint="--input-shape") from None
    with options.connect() as client:
        created = client.create_learner(name, preset=preset, overrides=overrides, input_shape=shape, seed=seed)
    if options.json:
        write_json(to_plain(created))
    else:
        console().print(f"created [bold]{created.name}[/]")


@app.command()
def delete(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Its name.")],
    yes: YesOption = False,
) -> None:
    """Delete a learner with all its data. Only an exported snapshot can bring it back."""
    options = connection.of(ctx)
    confirm(f"Delete {name} with its memories, examples and snapshots?", yes or options.json)
    with options.connect() as client:
        deleted = client.delete_learner(name)
    if options.json:
        write_json({"learner": name, **to_plain(deleted)})
    else:
        console().print(
            f"deleted [bold]{name}[/]: {count(deleted.snapshots, 'snapshot')}, "
            f"{count(deleted.unlearned_examples, 'example')} not learned yet"
        )
