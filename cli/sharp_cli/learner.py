"""`sharp learners …` and `sharp forget`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from sharp.v1 import learner_pb2
from sharp_cli import connection
from sharp_cli.output import console, count, size, span, table, write_json
from sharp_cli.plain import enum_name, to_plain
from sharp_cli.predict import LearnerOption
from sharp_client import Label, Learner, decode_label

app = typer.Typer(no_args_is_help=True, help="Create, list, show and delete learners.")


def rows(learners: list[learner_pb2.Learner]) -> list[list[str]]:
    """Make a row of a table for each learner."""
    return [
        [
            learner.name,
            enum_name(learner.status, "state"),
            str(learner.status.model_version),
            str(learner.status.episodes_learned),
            str(learner.status.memories.classes),
            "×".join(map(str, learner.input_shape)) or "–",
            f"{learner.status.backlog.lag_examples:,}",
            str(learner.status.backlog.episodes_parked),
        ]
        for learner in learners
    ]


HEADS = ("learner", "state", "version", "episodes", "classes", "input", "behind", "parked")
"""The columns of such a table."""


@app.command("list")
def list_learners(ctx: typer.Context) -> None:
    """List all learners."""
    options = connection.of(ctx)
    with options.connect() as client:
        learners = client.list_learners()
    if options.json:
        write_json({"learners": [to_plain(learner) for learner in learners]})
    elif learners:
        console().print(table(*HEADS, rows=rows(learners), numbers=HEADS[2:5] + HEADS[6:]))
    else:
        console().print("no learners yet: teach one with `sharp learn`")


@app.command()
def show(ctx: typer.Context, name: Annotated[str, typer.Argument(help="Its name.")]) -> None:
    """Tell everything about one learner."""
    options = connection.of(ctx)
    with options.connect() as client:
        learner = client.get_learner(name)
    if options.json:
        write_json(to_plain(learner))
        return
    out, status, backlog = console(), learner.status, learner.status.backlog
    out.print(f"[bold]{learner.name}[/]  {enum_name(status, 'state')}  [dim]{learner.uid}[/]")
    facts = [
        ("architecture", learner.architecture or "settled by the first batch"),
        ("input", "×".join(map(str, learner.input_shape)) or "settled by the first batch"),
        ("version", f"{status.model_version}, {count(status.episodes_learned, 'episode')} learned"),
        ("memories", f"{size(status.memories.stm_bytes)} short-term, {size(status.memories.ltm_bytes)} long-term"),
        ("backlog", f"{count(backlog.examples, 'example')}, {count(backlog.episodes_parked, 'episode')} parked"),
        ("behind", f"{count(backlog.lag_examples, 'example')}, {span(backlog.lag.seconds)}"),
        ("created", learner.create_time.ToJsonString()),
    ]
    out.print(table("", "", rows=facts))
    if learner.classes:
        classes = [
            [decode_label(known.label), known.ltm_entries, known.stm_entries, known.last_episode]
            for known in learner.classes
        ]
        heads = ("class", "memories", "replayed", "last episode")
        out.print(table(*heads, rows=classes, numbers=heads[1:]))
    if learner.settings:
        out.print(table("setting", "value", rows=sorted(learner.settings.items())))


@app.command()
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Its name.")],
    preset: Annotated[str, typer.Option(help="A named set of settings, e.g. mnist.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A single setting; may be repeated.")
    ] = None,
    input_shape: Annotated[str, typer.Option(help="Shape of one example, e.g. 64 or 1x28x28.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
) -> None:
    """Make a learner that knows nothing yet; what is left out is settled by its first batch."""
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
        made = client.create_learner(name, preset=preset, overrides=overrides, input_shape=shape, seed=seed)
    if options.json:
        write_json(to_plain(made))
    else:
        console().print(f"made [bold]{made.name}[/]")


@app.command()
def delete(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Its name.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Delete a learner with all it has. There is no way back but an exported snapshot."""
    options = connection.of(ctx)
    if not yes and not options.json:
        typer.confirm(f"Delete {name} with its memories, examples and snapshots?", abort=True, err=True)
    with options.connect() as client:
        deleted = client.delete_learner(name)
    if options.json:
        write_json({"learner": name, **to_plain(deleted)})
    else:
        console().print(
            f"deleted [bold]{name}[/]: {count(deleted.snapshots, 'snapshot')}, "
            f"{count(deleted.unlearned_examples, 'example')} not learned yet"
        )


def forget(
    ctx: typer.Context,
    label: Annotated[str, typer.Argument(metavar="CLASS", help="The class.")],
    learner: LearnerOption = None,
    delete_snapshots: Annotated[
        bool, typer.Option(help="Delete older snapshots that hold the class, instead of naming them.")
    ] = False,
) -> None:
    """Make a learner forget a class: gone from memories, journal and predictions when this returns."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        named = _as_label(chosen, label)
        answer = chosen.forget(named, older_snapshots="delete" if delete_snapshots else "list")
    if options.json:
        write_json({"learner": chosen.name, "label": named, **to_plain(answer)})
        return
    out = console()
    out.print(
        f"[bold]{chosen.name}[/] has forgotten {escape(label)}: {answer.ltm_entries} memories, "
        f"{answer.stm_entries} replayed and {answer.journal_examples} waiting examples; "
        f"version {answer.model_version} serves"
    )
    for word, snapshots in (("still holds it", answer.snapshots_holding), ("deleted", answer.snapshots_deleted)):
        for snapshot in snapshots:
            out.print(f"  snapshot {snapshot.id} (version {snapshot.model_version}) {word}")


def _as_label(learner: Learner, text: str) -> Label:
    """Take the class as the learner names its classes."""
    kind = learner.get().label_kind
    if kind == 2:
        try:
            return int(text)
        except ValueError:
            raise typer.BadParameter(f"{learner.name} knows its classes by numbers", param_hint="CLASS") from None
    return text
