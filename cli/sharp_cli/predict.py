"""`sharp predict` and `sharp evaluate`."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from sharp_cli import connection, data
from sharp_cli.connection import LearnerOption
from sharp_cli.data_options import ClassLevelOption, LabelColumnOption, SkipBadOption
from sharp_cli.output import console, shorten, table, write_json
from sharp_cli.plain import to_plain
from sharp_cli.questions import Answered, ask, read_questions
from sharp_client import Evaluation, Limits

LARGEST_MATRIX = 12
"""Classes up to which a confusion matrix fits a terminal."""

GAP = 2
"""Characters between two columns."""

SHORTEST_NAME = 16
"""Characters of a file's name that are shown, however little room there is."""

MESSAGE_BYTES = Limits().message_bytes
"""Of one message; one that holds a larger file must be larger."""

MESSAGE_ROOM = 1 << 16
"""Bytes of a message beside a file."""


def predict(
    ctx: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES…", help="Image files, folders of them, .npy, .npz (x), .csv and .parquet files."),
    ],
    learner: LearnerOption = None,
    top: Annotated[int, typer.Option(min=0, help="How many of the best classes to show.")] = 1,
    novelty: Annotated[bool, typer.Option(help="Show how unlike everything known each one is.")] = False,
    resize: Annotated[
        bool, typer.Option("--resize", help="Resize images of another size, also if the learner does not by itself.")
    ] = False,
    min_version: Annotated[int, typer.Option(min=0, help="Wait until this version serves.")] = 0,
    label_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="A column of labels, to be left out of the features.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Answer in CSV, a line per example.")] = False,
) -> None:
    """Ask what is in image files, folders and tables. What can't be answered is listed, and ends with exit code 1."""
    options = connection.of(ctx)
    findings = data.Findings()
    questions = read_questions(files, label_column, findings)
    largest = max((file.stat().st_size for one in questions for file in one.x if isinstance(file, Path)), default=0)
    asked: dict[str, Any] = {"top_k": top, "novelty": novelty, "min_model_version": min_version, "resize": resize}
    answers: list[Answered] = []
    with options.connect(limits=Limits(message_bytes=max(MESSAGE_BYTES, largest + MESSAGE_ROOM))) as client:
        chosen = client.learner(learner)
        for question in questions:
            for found in ask(chosen, question, **asked):
                if isinstance(found, Answered):
                    answers.append(found)
                else:
                    findings.bad.append(found)
    rows = [_row(answer) for answer in answers]
    if options.json:
        name = next((answer.prediction.learner for answer in answers), "") or learner or ""
        write_json({"learner": name, "predictions": rows, "failures": to_plain(findings.bad)})
    elif as_csv:
        _write_csv(rows, findings.bad, novelty)
    elif rows:
        _show(rows, top, novelty)
    if not options.json:
        _say(findings, as_csv)
    if findings.bad:
        raise typer.Exit(1)


def _row(answer: Answered) -> dict[str, Any]:
    found, index = answer.prediction, answer.index
    row: dict[str, Any] = {
        "file": answer.place,
        "label": found.labels[index].item(),
        "vote_share": float(found.vote_shares[index]),
        "distance": float(found.distances[index]),
        "model_version": found.model_version,
    }
    if found.novelties is not None:
        row["novelty"] = float(found.novelties[index])
    if found.top_classes:
        row["top"] = [vars(one) for one in found.top_classes[index]]
    return row


def _show(rows: list[dict[str, Any]], top: int, novelty: bool) -> None:
    heads = ["file", "label", "votes", "distance"] + (["novelty"] if novelty else []) + (["best"] if top > 1 else [])
    cells = [
        [row["file"], row["label"], f"{row['vote_share']:.0%}", f"{row['distance']:.3f}"]
        + ([f"{row['novelty']:.2f}"] if novelty else [])
        + (["  ".join(f"{one['label']} {one['vote_share']:.0%}" for one in row["top"])] if top > 1 else [])
        for row in rows
    ]
    out = console()
    # The answer matters more than the folders before a file's own name.
    others = [max(len(str(row[column])) for row in [heads, *cells]) + GAP for column in range(1, len(heads))]
    room = max(SHORTEST_NAME, out.width - sum(others) - GAP)
    cells = [[shorten(row[0], room), *row[1:]] for row in cells]
    out.print(table(*heads, rows=cells, numbers=("votes", "distance", "novelty")))


def _write_csv(rows: list[dict[str, Any]], bad: list[data.BadItem], novelty: bool) -> None:
    heads = ["file", "label", "vote_share", "distance", *(["novelty"] if novelty else []), "model_version", "error"]
    writer = csv.DictWriter(sys.stdout, heads, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    writer.writerows({"file": item.place, "error": item.problem} for item in bad)


def _say(findings: data.Findings, listed: bool) -> None:
    """What was passed over, and what could not be answered, unless it is listed already."""
    for line in findings.passed_over:
        typer.echo(f"passed over: {line}", err=True)
    for item in findings.bad if not listed else ():
        typer.echo(f"sharp: {item}", err=True)


def evaluate(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="DATA", help=data.HELP, show_default=False)],
    learner: LearnerOption = None,
    part: Annotated[
        data.Part, typer.Option(help="All, or every fifth example of each class (test), or the others (train).")
    ] = data.Part.ALL,
    resize: Annotated[
        bool, typer.Option("--resize", help="Resize images of another size, also if the learner does not by itself.")
    ] = False,
    min_version: Annotated[int, typer.Option(min=0, help="Wait until this version serves.")] = 0,
    class_level: ClassLevelOption = None,
    label_column: LabelColumnOption = None,
    skip_bad: SkipBadOption = False,
) -> None:
    """Predict labelled data and show how much of it is right."""
    options = connection.of(ctx)
    labelled = data.load(source, data.ReadOptions(class_level, label_column, skip_bad)).part(part)
    with options.connect() as client:
        chosen = client.learner(learner)
        result = chosen.evaluate(labelled.x, labelled.y, resize=resize, min_model_version=min_version)
    name = chosen.name or result.prediction.learner
    if not options.json:
        _say(labelled.findings, False)
    if options.json:
        write_json(
            {
                "learner": name,
                "examples": result.examples,
                "accuracy": result.accuracy,
                "per_class": [{"label": label, "accuracy": share} for label, share in result.per_class.items()],
                "classes": list(result.classes),
                "confusion": result.confusion,
                "model_version": result.model_version,
            }
        )
        return
    out = console()
    out.print(
        f"[bold]{result.accuracy:.2%}[/] of {result.examples:,} examples are right "
        f"([dim]learner {name}, version {result.model_version}[/])\n"
    )
    out.print(_by_class(result))


def _by_class(result: Evaluation) -> Any:
    matrix = len(result.classes) <= LARGEST_MATRIX
    heads = ["class", "accuracy", "examples"] + ([str(label) for label in result.classes] if matrix else [])
    made = table(*heads, rows=[], numbers=heads[1:])
    for column in made.columns[3:]:
        column.header_style = "dim"
    for index, label in enumerate(result.classes):
        total = int(result.confusion[index].sum())
        share = result.per_class.get(label)
        cells = [str(label), "" if share is None else f"{share:.1%}", f"{total:,}"]
        row: list[Any] = [Text(cell) for cell in cells]
        if matrix:
            for other in range(len(result.classes)):
                count = int(result.confusion[index, other])
                style = "green" if index == other else "red" if count else "dim"
                row.append(Text(str(count) if count else "·", style=style))
        made.add_row(*row)
    return made
