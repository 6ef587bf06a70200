"""`sharp status`: the server at one moment."""

from __future__ import annotations

import time
from typing import Any

import typer
from rich.text import Text

from sharp_cli import connection, learner, quality
from sharp_cli.output import console, count, size, span, table, write_json
from sharp_cli.plain import to_plain
from sharp_client import ServerStatus

_STYLES = {"serving": "green", "starting": "yellow", "stopping": "yellow"}


def status(ctx: typer.Context) -> None:
    """Show the server: state, trainer, disk, damage, learners."""
    options = connection.of(ctx)
    with options.connect() as client:
        server = client.get_server_status()
        found = client.list_learners() if server.state == "serving" else []
    if options.json:
        write_json({**to_plain(server), "learners": to_plain(found)})
        return
    out = console()
    out.print(_head(options.address, server))
    out.print(table("", "", rows=_facts(server)))
    if found:
        out.print(table(*learner.HEADS, rows=learner.rows(found), numbers=learner.NUMBERS))
    else:
        out.print("no learners yet: teach one with `sharp learn`")
    for one in found:
        for fallen in one.status.quality.fallen if one.status.quality is not None else ():
            out.print(Text(f"{one.name}: {quality.fall(fallen)}", style="yellow"), soft_wrap=True)
    for damage in server.corruption_events:
        serving = f", version {damage.serving_model_version} serves instead" if damage.serving_model_version else ""
        words = f"damage: {damage.learner or 'server'}: {damage.detail}{serving}"
        out.print(Text(words, style="red"), soft_wrap=True)


def _head(address: str, server: ServerStatus) -> Text:
    up = 0.0 if server.start_time is None else time.time() - server.start_time.timestamp()
    state = server.state
    return Text.assemble(
        (f"{address}  ", "bold"), (state, _STYLES.get(state, "")), f"  version {server.version}, up {span(up)}"
    )


def _facts(server: ServerStatus) -> list[tuple[str, Any]]:
    trainer = server.trainer
    if not trainer.running:
        doing = "is starting"
    elif trainer.learner:
        doing = f"learns episode {trainer.episode} of {trainer.learner}"
    else:
        doing = "has nothing to learn"
    words = [doing, count(trainer.threads, "thread")]
    if trainer.memory_bytes:
        words.append(size(trainer.memory_bytes))
    if trainer.restarts:
        words.append(f"restarted {trainer.restarts} ×")
    teacher = server.teacher
    teaching = ["is ready" if teacher.running else "is starting"]
    if teacher.memory_bytes:
        teaching.append(size(teacher.memory_bytes))
    if teacher.restarts:
        teaching.append(f"restarted {teacher.restarts} ×")
    return [
        ("trainer", ", ".join(words)),
        ("teacher", ", ".join(teaching)),
        ("device", server.device),
        ("disk", f"{size(server.data_bytes)} used, {size(server.free_bytes)} free"),
        *([("objects", server.object_store_failure)] if server.object_store_failure else []),
    ]
