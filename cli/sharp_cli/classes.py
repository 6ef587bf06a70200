"""`sharp class …`: the classes that a learner knows."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from sharp_cli import connection
from sharp_cli.confirmation import YesOption, confirm
from sharp_cli.connection import LearnerOption
from sharp_cli.output import console, table, write_json
from sharp_cli.plain import to_plain
from sharp_client import ClassSummary, Label, Learner

app = typer.Typer(no_args_is_help=True, help="List the classes that a learner knows, and forget one.")

HEADS = ("class", "memories", "replayed", "last episode")
"""The columns of a table of classes."""


def rows(classes: tuple[ClassSummary, ...]) -> list[list[Label]]:
    """Make a row of such a table for each class."""
    return [[known.label, known.ltm_entries, known.stm_entries, known.last_episode] for known in classes]


@app.command("list")
def list_classes(ctx: typer.Context, learner: LearnerOption = None) -> None:
    """List the classes of a learner, in the order in which it met them."""
    options = connection.of(ctx)
    with options.connect() as client:
        info = connection.choose_learner(client, learner).get()
    if options.json:
        write_json({"learner": info.name, "classes": to_plain(info.classes)})
    elif info.classes:
        console().print(table(*HEADS, rows=rows(info.classes), numbers=HEADS[1:]))
    else:
        console().print(f"{info.name} knows no class yet")


@app.command()
def forget(
    ctx: typer.Context,
    label: Annotated[str, typer.Argument(metavar="CLASS", help="The class.")],
    learner: LearnerOption = None,
    delete_snapshots: Annotated[
        bool, typer.Option(help="Delete older snapshots that hold the class, instead of listing them.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Make a learner forget a class: gone from memories, journal and predictions when this returns."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        named = _as_label(chosen, label)
        gone = " and every older snapshot that holds it" if delete_snapshots else ""
        confirm(f"Make {chosen.name} forget {label}: its memories, its examples{gone}?", yes or options.json)
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
    for state, snapshots in (("still holds it", answer.snapshots_holding), ("deleted", answer.snapshots_deleted)):
        for snapshot in snapshots:
            out.print(f"  snapshot {snapshot.id} (version {snapshot.model_version}) {state}")


def _as_label(learner: Learner, text: str) -> Label:
    """Read a class in the learner's kind of labels."""
    if learner.get().label_kind != "integer":
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"the classes of {learner.name} are integers", param_hint="CLASS") from None
