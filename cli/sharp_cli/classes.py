"""`sharp class …`: the classes that a learner knows, and what they are called."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from sharp_cli import connection
from sharp_cli.confirmation import YesOption, confirm
from sharp_cli.connection import LearnerOption
from sharp_cli.output import console, count, table, write_json
from sharp_cli.plain import to_plain
from sharp_client import ClassQuality, ClassSummary, Label, Learner, Snapshot

app = typer.Typer(no_args_is_help=True, help="List, rename, merge and forget the classes that a learner knows.")

HEADS = ("class", "examples", "held-out right", "before", "memories", "replayed", "last episode")
"""The columns of a table of classes."""


def rows(classes: tuple[ClassSummary, ...]) -> list[list[Label]]:
    """Make a row of such a table for each class."""
    return [
        [
            known.label,
            f"{known.examples:,}" if known.examples else "–",
            _share(known.quality),
            _share(known.quality_before),
            known.ltm_entries,
            known.stm_entries,
            known.last_episode,
        ]
        for known in classes
    ]


def _share(quality: ClassQuality | None) -> str:
    return "–" if quality is None else f"{quality.accuracy:.0%} of {quality.examples:,}"


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


@app.command()
def rename(
    ctx: typer.Context,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The class as it is called now.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    learner: LearnerOption = None,
) -> None:
    """Give a class another name. Examples that wait follow; snapshots made before keep the old name."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        answer = chosen.rename_class(_as_label(chosen, old), _as_label(chosen, new))
    if options.json:
        write_json({"learner": chosen.name, "old": old, "new": new, **to_plain(answer)})
        return
    console().print(
        f"[bold]{chosen.name}[/] calls {escape(old)} {escape(new)}: version {answer.model_version} serves, "
        f"{count(answer.journal_examples, 'waiting example')} follow{'s' if answer.journal_examples == 1 else ''}"
    )
    _print_holding(answer.snapshots_holding)


@app.command()
def merge(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The class that ends.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The class that takes it in.")],
    learner: LearnerOption = None,
    yes: YesOption = False,
) -> None:
    """Make one class of two. What was learned of both counts for TARGET; SOURCE is no more."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        confirm(f"Make {source} part of {target} in {chosen.name}?", yes or options.json)
        answer = chosen.merge_classes(_as_label(chosen, source), _as_label(chosen, target))
    if options.json:
        write_json({"learner": chosen.name, "source": source, "target": target, **to_plain(answer)})
        return
    console().print(
        f"[bold]{chosen.name}[/]: {escape(source)} is part of {escape(target)}, which has "
        f"{count(answer.examples, 'learned example')} and {answer.journal_examples:,} that wait; "
        f"version {answer.model_version} serves"
    )
    _print_holding(answer.snapshots_holding)


def _print_holding(snapshots: tuple[Snapshot, ...]) -> None:
    """Say that older snapshots know the old name."""
    if snapshots:
        kept = ", ".join(snapshot.id for snapshot in snapshots)
        console().print(f"  restoring an older snapshot brings the old name back: {kept}")


def _as_label(learner: Learner, text: str) -> Label:
    """Read a class in the learner's kind of labels."""
    if learner.get().label_kind != "integer":
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"the classes of {learner.name} are integers", param_hint="CLASS") from None
