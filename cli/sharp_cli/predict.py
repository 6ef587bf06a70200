"""`sharp predict` and `sharp evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

from sharp_cli import connection, data, quality
from sharp_cli.connection import LearnerOption
from sharp_cli.output import console, table, write_json
from sharp_cli.plain import to_plain
from sharp_client import Evaluation, Prediction

LARGEST_MATRIX = 12
"""Classes up to which a confusion matrix fits a terminal."""


def predict(
    ctx: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES…", help="Image files, or .npy and .npz (x) files of examples.")
    ],
    learner: LearnerOption = None,
    top: Annotated[int, typer.Option(min=0, help="How many of the best classes to show.")] = 1,
    novelty: Annotated[bool, typer.Option(help="Show how unlike everything known each one is.")] = False,
    resize: Annotated[bool, typer.Option(help="Let the server resize images of another size.")] = False,
    min_version: Annotated[int, typer.Option(min=0, help="Wait until this version serves.")] = 0,
) -> None:
    """Ask what is in image files, or in arrays of examples."""
    options = connection.of(ctx)
    arrays = [file for file in files if file.suffix in (".npy", ".npz")]
    images = [file for file in files if file not in arrays]
    rows: list[dict[str, Any]] = []
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        asked: dict[str, Any] = {"top_k": top, "novelty": novelty, "min_model_version": min_version}
        if images:
            rows += _rows([str(file) for file in images], chosen.predict(images, resize=resize, **asked))
        for file in arrays:
            x = _read(file)
            rows += _rows([f"{file}[{index}]" for index in range(len(x))], chosen.predict(x, **asked))
    if options.json:
        write_json({"learner": chosen.name, "predictions": rows})
        return
    heads = ["file", "label", "votes", "distance"] + (["novelty"] if novelty else []) + (["best"] if top > 1 else [])
    cells = [
        [row["file"], row["label"], f"{row['vote_share']:.0%}", f"{row['distance']:.3f}"]
        + ([f"{row['novelty']:.2f}"] if novelty else [])
        + (["  ".join(f"{one['label']} {one['vote_share']:.0%}" for one in row["top"])] if top > 1 else [])
        for row in rows
    ]
    console().print(table(*heads, rows=cells, numbers=("votes", "distance", "novelty")))


def _read(file: Path) -> Any:
    loaded = np.load(file, allow_pickle=False)
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        return loaded
    with loaded:
        if "x" not in loaded:
            raise typer.BadParameter(f"{file} has {', '.join(loaded.files)}, but no x", param_hint="FILES")
        return loaded["x"]


def _rows(names: list[str], answer: Prediction) -> list[dict[str, Any]]:
    rows = []
    for index, name in enumerate(names):
        row: dict[str, Any] = {
            "file": name,
            "label": answer.labels[index].item(),
            "vote_share": float(answer.vote_shares[index]),
            "distance": float(answer.distances[index]),
            "model_version": answer.model_version,
        }
        if answer.novelties is not None:
            row["novelty"] = float(answer.novelties[index])
        if answer.top_classes:
            row["top"] = [vars(one) for one in answer.top_classes[index]]
        rows.append(row)
    return rows


def evaluate(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="DATA", help=data.HELP, show_default=False)],
    learner: LearnerOption = None,
    part: Annotated[
        data.Part, typer.Option(help="All, or every fifth example of each class (test), or the others (train).")
    ] = data.Part.ALL,
    resize: Annotated[bool, typer.Option(help="Let the server resize images of another size.")] = False,
    min_version: Annotated[int, typer.Option(min=0, help="Wait until this version serves.")] = 0,
) -> None:
    """Predict labelled data and show how much of it is right."""
    options = connection.of(ctx)
    labelled = data.load(source).part(part)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        result = chosen.evaluate(labelled.x, labelled.y, resize=resize, min_model_version=min_version)
    if options.json:
        write_json(
            {
                "learner": chosen.name,
                "examples": result.examples,
                "accuracy": result.accuracy,
                "per_class": [
                    {"label": label, "accuracy": share}
                    for label, share in sorted(result.per_class.items(), key=lambda pair: pair[1])
                ],
                "classes": list(result.classes),
                "confusion": result.confusion,
                "confused": to_plain(quality.confused_pairs(result)[: quality.PAIRS]),
                "model_version": result.model_version,
            }
        )
        return
    out = console()
    out.print(
        f"[bold]{result.accuracy:.2%}[/] of {result.examples:,} examples are right "
        f"([dim]learner {chosen.name}, version {result.model_version}[/])\n"
    )
    out.print(_by_class(result))
    pairs = quality.confused_pairs(result)
    out.print()
    out.print(quality.pairs(pairs) if pairs else "no two classes are confused")


def _by_class(result: Evaluation) -> Any:
    matrix = len(result.classes) <= LARGEST_MATRIX
    heads = ["class", "accuracy", "examples"] + ([str(label) for label in result.classes] if matrix else [])
    made = table(*heads, rows=[], numbers=heads[1:])
    for column in made.columns[3:]:
        column.header_style = "dim"
    worst_first = sorted(range(len(result.classes)), key=lambda row: result.per_class.get(result.classes[row], 2.0))
    for index in worst_first:
        label = result.classes[index]
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
