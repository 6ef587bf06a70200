"""`sharp teach` and `sharp correct`: examples that are known the moment the command returns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from sharp_cli import connection
from sharp_cli.connection import LearnerOption
from sharp_cli.output import console, count, table, write_json
from sharp_client import LabelKindMismatchError, Learner, NothingLearnedError, Prediction, TeachResult

ARRAYS = (".npy", ".npz")
"""Endings of files of vectors or images as numbers."""


def teach(
    ctx: typer.Context,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="The class that the examples are of.")],
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES…", help="Image files, or .npy and .npz (x) files of examples.", exists=True),
    ],
    learner: LearnerOption = None,
    resize: Annotated[bool, typer.Option(help="Let the server resize images of another size.")] = False,
) -> None:
    """Teach a few examples of one class at once: the next prediction knows them."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        taught = [_teach(chosen, x, label, resize) for x in _examples(files)]
    if options.json:
        write_json({"learner": chosen.name, "label": label, "lessons": [_plain(lesson) for lesson in taught]})
        return
    examples, wrong = sum(lesson.examples for lesson in taught), sum(lesson.corrections for lesson in taught)
    words = f"{chosen.name} knows {count(examples, 'more example')} of {label!r}"
    new = " (a new class)" if any(lesson.new_classes for lesson in taught) else ""
    console().print(f"{words}{new}; {_answered(wrong, examples)}", soft_wrap=True)


def correct(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An image, or one example as .npy.", exists=True)],
    label: Annotated[str, typer.Argument(metavar="LABEL", help="The class that it is of.")],
    learner: LearnerOption = None,
    resize: Annotated[bool, typer.Option(help="Let the server resize an image of another size.")] = False,
) -> None:
    """Predict an example, teach its right label, predict it again, and show both answers."""
    options = connection.of(ctx)
    (x,) = _examples([file])
    if len(x) != 1:
        raise typer.BadParameter(f"{file.name} has {len(x)} examples: one is corrected at a time", param_hint="FILE")
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        try:
            before: dict[str, Any] | None = _row(chosen.predict(x, resize=resize, novelty=True))
        except NothingLearnedError:
            before = None
        taught = _teach(chosen, x, label, resize)
        after = _row(chosen.predict(x, resize=resize, novelty=True, min_examples=taught.examples_known))
    if options.json:
        plain = {"learner": chosen.name, "file": str(file), "label": label, **_plain(taught)}
        write_json({**plain, "before": before, "after": after})
        return
    heads = ("", "label", "votes", "novelty")
    rows = [("before", *_cells(before)), ("after", *_cells(after))]
    console().print(table(*heads, rows=rows, numbers=heads[2:]))


def _examples(files: list[Path]) -> list[Any]:
    """Lessons: all images together, and each array."""
    images = [file for file in files if file.suffix not in ARRAYS]
    return ([images] if images else []) + [_array(file) for file in files if file.suffix in ARRAYS]


def _array(file: Path) -> Any:
    loaded = np.load(file, allow_pickle=False)
    if isinstance(loaded, np.lib.npyio.NpzFile):
        with loaded:
            if "x" not in loaded:
                raise typer.BadParameter(f"{file} has {', '.join(loaded.files)}, but no x", param_hint="FILES")
            loaded = loaded["x"]
    return loaded[None] if loaded.ndim in (1, 3) and file.suffix == ".npy" else loaded


def _teach(chosen: Learner, x: Any, label: str, resize: bool) -> TeachResult:
    """Teach a class by the name that was typed: of a learner of integers it is a number."""
    try:
        return chosen.teach(x, label, resize=resize)
    except LabelKindMismatchError:
        try:
            number = int(label)
        except ValueError:
            raise typer.BadParameter(
                f"the classes of {chosen.name} are integers, and {label!r} is none", param_hint="LABEL"
            ) from None
        return chosen.teach(x, number, resize=resize)


def _answered(wrong: int, examples: int) -> str:
    if not wrong:
        return "answered right before, too"
    return "answered wrong before" if wrong == examples else f"{wrong} of them answered wrong before"


def _plain(taught: TeachResult) -> dict[str, Any]:
    return {
        "examples": taught.examples,
        "new_classes": list(taught.new_classes),
        "corrections": taught.corrections,
        "model_version": taught.model_version,
        "examples_beyond_version": taught.examples_beyond_version,
        "examples_known": taught.examples_known,
    }


def _row(answer: Prediction) -> dict[str, Any]:
    assert answer.novelties is not None
    return {
        "label": answer.labels[0].item(),
        "vote_share": float(answer.vote_shares[0]),
        "novelty": float(answer.novelties[0]),
        "model_version": answer.model_version,
        "examples_beyond_version": answer.examples_beyond_version,
    }


def _cells(row: dict[str, Any] | None) -> tuple[str, str, str]:
    if row is None:
        return "nothing known", "", ""
    return str(row["label"]), f"{row['vote_share']:.0%}", f"{row['novelty']:.2f}"
