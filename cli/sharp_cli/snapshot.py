"""`sharp snapshot …`: create, list, restore, export, import and delete snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from sharp_cli import connection
from sharp_cli.connection import LearnerOption
from sharp_cli.output import console, count, size, table, write_json
from sharp_cli.plain import time_text, to_plain
from sharp_client import (
    Snapshot,
    SnapshotFormatUnsupportedError,
    SnapshotIncompatibleError,
    SnapshotMalformedError,
)

app = typer.Typer(no_args_is_help=True, help="Create, list, restore, export, import and delete snapshots.")

SnapshotArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the snapshot, see `sharp snapshot list`.")]


def _line(snapshot: Snapshot) -> str:
    return f"snapshot {snapshot.id}: version {snapshot.model_version}, {size(snapshot.size_bytes)}"


@app.command()
def create(
    ctx: typer.Context,
    learner: LearnerOption = None,
    note: Annotated[str, typer.Option(help="Your own words.")] = "",
) -> None:
    """Save the version that serves, and keep it until it is deleted."""
    options = connection.of(ctx)
    with options.connect() as client:
        snapshot = connection.choose_learner(client, learner).snapshot(note)
    if options.json:
        write_json(to_plain(snapshot))
    else:
        console().print(f"created {_line(snapshot)}")


@app.command("list")
def list_snapshots(ctx: typer.Context, learner: LearnerOption = None) -> None:
    """List the snapshots of a learner, newest first."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        snapshots = chosen.snapshots()
    if options.json:
        write_json({"learner": chosen.name, "snapshots": to_plain(snapshots)})
        return
    if not snapshots:
        console().print(f"{chosen.name} has no snapshot yet: learning creates them, and `sharp snapshot create`")
        return
    heads = ("id", "version", "episodes", "classes", "origin", "created", "size", "note")
    rows = [
        [
            snapshot.id,
            snapshot.model_version,
            snapshot.episodes_learned,
            len(snapshot.classes),
            "damaged" if snapshot.damaged else snapshot.origin,
            time_text(snapshot.create_time)[:16].replace("T", " "),
            size(snapshot.size_bytes),
            snapshot.note,
        ]
        for snapshot in snapshots
    ]
    console().print(table(*heads, rows=rows, numbers=("version", "episodes", "classes", "size")))


@app.command()
def restore(
    ctx: typer.Context,
    snapshot_id: SnapshotArgument,
    learner: LearnerOption = None,
    include_forgotten: Annotated[
        bool, typer.Option("--include-forgotten", help="Bring back classes that were forgotten since, too.")
    ] = False,
) -> None:
    """Return a learner to a snapshot. What was learned since is undone."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        answer = chosen.restore(snapshot_id, with_forgotten=include_forgotten)
    if options.json:
        write_json({"learner": chosen.name, "snapshot_id": snapshot_id, **to_plain(answer)})
        return
    out = console()
    out.print(
        f"[bold]{chosen.name}[/] is back at {escape(snapshot_id)}: version {answer.model_version} serves instead of "
        f"{answer.previous_model_version}, {count(answer.episodes_undone, 'episode')} undone"
    )
    for label in answer.classes_forgotten:
        out.print(f"  {escape(str(label))} was forgotten since and stays so (--include-forgotten brings it back)")


@app.command("export")
def export_snapshot(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file to write.", dir_okay=False)],
    learner: LearnerOption = None,
    snapshot_id: Annotated[str, typer.Option("--id", help="Id of the snapshot. If missing: the newest.")] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there already.")] = False,
) -> None:
    """Write a snapshot to a file: whole and with the right checksum, or not at all."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        try:
            snapshot = chosen.export_to(file, snapshot_id=snapshot_id, overwrite=overwrite)
        except FileExistsError:
            raise ValueError(f"{file} is there already: --overwrite replaces it") from None
    if options.json:
        write_json({"file": str(file), **to_plain(snapshot)})
    else:
        console().print(f"wrote {escape(str(file))}, {_line(snapshot)}\n[dim]sha256 {snapshot.sha256}[/]")


@app.command("import")
def import_snapshot(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file of a snapshot.", dir_okay=False)],
    learner: Annotated[
        str, typer.Option("--learner", "-l", envvar="SHARP_LEARNER", help="Its name; created if there is none.")
    ],
    restore: Annotated[bool, typer.Option(help="Return the learner to the snapshot.")] = False,
    note: Annotated[str, typer.Option(help="Your own words.")] = "",
) -> None:
    """Give a learner the snapshot in a file."""
    options = connection.of(ctx)
    with options.connect() as client:
        try:
            answer = client.learner(learner).import_from(file, restore=restore, note=note)
        except (SnapshotMalformedError, SnapshotFormatUnsupportedError, SnapshotIncompatibleError) as error:
            named = "" if error.message.startswith(str(file)) else f"{file}: "
            raise ValueError(f"{named}{error.message}") from error
    if options.json:
        write_json(to_plain(answer))
        return
    created = f"created [bold]{learner}[/] from it, " if answer.created else ""
    serves = f"version {answer.model_version} serves" if answer.model_version else "stored"
    console().print(f"imported {_line(answer.snapshot)}: {created}{serves}")


@app.command()
def delete(ctx: typer.Context, snapshot_id: SnapshotArgument, learner: LearnerOption = None) -> None:
    """Delete a snapshot."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        answer = chosen.delete_snapshot(snapshot_id)
    if options.json:
        write_json({"learner": chosen.name, "snapshot_id": snapshot_id, **to_plain(answer)})
    else:
        console().print(f"deleted {snapshot_id}, {size(answer.size_bytes)} freed")
