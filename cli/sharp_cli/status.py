"""`sharp status`: how the server is, at one moment."""

from __future__ import annotations

import time
from typing import Any

import typer
from rich.text import Text

from sharp.v1 import admin_pb2
from sharp_cli import connection, learners
from sharp_cli.output import console, count, size, span, table, write_json
from sharp_cli.plain import enum_name, to_plain

_STYLES = {"serving": "green", "starting": "yellow", "stopping": "yellow"}


def status(ctx: typer.Context) -> None:
    """Tell how the server is: state, trainer, disk, damages, learners."""
    options = connection.of(ctx)
    with options.connect() as client:
        server = client.get_server_status()
        found = client.list_learners() if enum_name(server, "state") == "serving" else []
    if options.json:
        write_json({**to_plain(server), "learners": [to_plain(learner) for learner in found]})
        return
    out = console()
    out.print(_head(options.address, server))
    out.print(table("", "", rows=_facts(server)))
    if found:
        out.print(table(*learners.HEADS, rows=learners.rows(found), numbers=learners.HEADS[2:5] + learners.HEADS[6:]))
    else:
        out.print("no learners yet: teach one with `sharp learn`")
    for damage in server.damages:
        serving = f", version {damage.serving_model_version} serves instead" if damage.serving_model_version else ""
        words = f"damage: {damage.learner or 'server'}: {damage.detail}{serving}"
        out.print(Text(words, style="red"), soft_wrap=True)


def _head(address: str, server: admin_pb2.GetServerStatusResponse) -> Text:
    state = enum_name(server, "state")
    up = time.time() - server.start_time.ToNanoseconds() / 1e9
    return Text.assemble(
        (f"{address}  ", "bold"), (state, _STYLES.get(state, "")), f"  version {server.version}, up {span(up)}"
    )


def _facts(server: admin_pb2.GetServerStatusResponse) -> list[tuple[str, Any]]:
    trainer = server.trainer
    if not trainer.running:
        doing = "is being started"
    elif trainer.learner:
        doing = f"learns episode {trainer.episode} of {trainer.learner}"
    else:
        doing = "waits for something to learn"
    words = [doing, count(trainer.threads, "thread")]
    if trainer.memory_bytes:
        words.append(size(trainer.memory_bytes))
    if trainer.restarts:
        words.append(f"restarted {trainer.restarts} ×")
    return [
        ("trainer", ", ".join(words)),
        ("device", server.device),
        ("disk", f"{size(server.data_bytes)} used, {size(server.free_bytes)} free"),
    ]
