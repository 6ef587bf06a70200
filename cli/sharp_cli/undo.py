"""`sharp undo`: back to the version before, by one word."""

from __future__ import annotations

import typer
from rich.markup import escape

from sharp_cli import connection
from sharp_cli.confirmation import YesOption, confirm
from sharp_cli.connection import LearnerOption
from sharp_cli.output import console, count, write_json
from sharp_cli.plain import time_text, to_plain
from sharp_client import UndoneVersion

_CAUSES = {
    "learned": "learned an episode",
    "forgotten": "forgot a class",
    "restored": "restored a snapshot",
    "damaged": "took the place of a damaged one",
    "renamed": "renamed a class",
    "merged": "merged two classes",
    "undone": "undid another",
    "taught": "took lessons in",
}


def undo(
    ctx: typer.Context,
    learner: LearnerOption = None,
    yes: YesOption = False,
) -> None:
    """Go back to the version before. Undo again to go one further; `sharp snapshot restore` goes anywhere."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        plan = chosen.undo(preview=True)
        confirm(f"{_says(plan)}\nUndo version {plan.undone_model_version} of {chosen.name}?", yes or options.json)
        done = chosen.undo(model_version=plan.undone_model_version)
    if options.json:
        write_json({"learner": chosen.name, **to_plain(done)})
        return
    out = console()
    out.print(
        f"[bold]{chosen.name}[/] is back at version {done.restored_model_version}, which serves as version "
        f"{done.model_version}; {_episodes(done)}"
    )
    for label in done.classes_forgotten:
        out.print(
            f"  {escape(str(label))} stays forgotten; `sharp snapshot restore ID --include-forgotten` brings it back"
        )


def _says(plan: UndoneVersion) -> str:
    made = _CAUSES.get(plan.cause, "came in some other way")
    when = time_text(plan.restored_create_time)[:16].replace("T", " ")
    return (
        f"Version {plan.undone_model_version} {made}. Version {plan.restored_model_version} of {when} comes back; "
        f"{_episodes(plan)}."
    )


def _episodes(answer: UndoneVersion) -> str:
    """What it does to episodes."""
    undone = "no episode is undone"
    if answer.episodes_undone:
        undone = f"{count(answer.episodes_undone, 'learned episode')} undone, whose examples are gone"
    if not answer.episodes_waiting:
        return undone
    return f"{undone}; {count(answer.episodes_waiting, 'waiting episode')} will be learned on top"
