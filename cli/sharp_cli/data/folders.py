"""A folder of images, whose folders are classes: which files count, and which level of folders names the class."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import typer

from sharp_cli.data.findings import BadItem, Findings, some
from sharp_cli.data.images import IMAGE_SUFFIXES, ImageFacts, look_at
from sharp_cli.data.labelled import LabelledData

INNERMOST = -1
"""The class level that stands for the folder a file lies in, however deep."""


def is_answered() -> bool:
    """Whether somebody is there to answer questions."""
    return sys.stdin.isatty()


def find_images(folder: Path, findings: Findings) -> list[Path]:
    """All images in a folder, however deep, in order; other files are passed over, hidden ones without a word."""
    found: list[Path] = []
    other: list[Path] = []
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        (found if path.suffix.lower() in IMAGE_SUFFIXES else other).append(path)
    if other:
        kinds = Counter(path.suffix.lower() or "no ending" for path in other)
        words = some([f"{count:,} × {kind}" for kind, count in kinds.most_common()])
        findings.passed_over.append(f"{words} in {folder} (taken: {', '.join(IMAGE_SUFFIXES)})")
    return found


def load_folder(folder: Path, class_level: int | None, skip_bad: bool) -> LabelledData:
    """Images and the classes that their folders name."""
    findings = Findings()
    files = find_images(folder, findings)
    depth = {file: len(file.relative_to(folder).parts) - 1 for file in files}
    level = _class_level(folder, files, depth, class_level)
    labels: dict[Path, str] = {}
    outside: list[str] = []
    for file in files:
        if depth[file] < max(level, 1):
            outside.append(file.name)
        else:
            labels[file] = file.parent.name if level == INNERMOST else file.relative_to(folder).parts[level - 1]
    if outside:
        findings.passed_over.append(f"{len(outside):,} images in {folder} that lie in no folder of a class")
    if not labels:
        suffixes = ", ".join(IMAGE_SUFFIXES)
        raise typer.BadParameter(f"{folder} has no folders with {suffixes} files in them", param_hint="DATA")
    good: list[Path] = []
    facts: list[ImageFacts] = []
    for file, fact in zip(labels, look_at(list(labels)), strict=True):
        if isinstance(fact, BadItem):
            findings.bad.append(fact)
        else:
            good.append(file)
            facts.append(fact)
    findings.refuse_unless(skip_bad)
    return LabelledData(good, [labels[file] for file in good], folder.resolve().name, tuple(facts), findings)


def _class_level(folder: Path, files: list[Path], depth: dict[Path, int], chosen: int | None) -> int:
    """Which level of folders is the class; asks, or refuses with the choices, where there are several."""
    deepest = max(depth.values(), default=0)
    if chosen is not None:
        if chosen != INNERMOST and not 1 <= chosen <= max(deepest, 1):
            problem = f"{folder} has {deepest} levels of folders, not {chosen}"
            raise typer.BadParameter(problem, param_hint="--class-level")
        return chosen
    if deepest <= 1:
        return 1
    choices = []
    for level in range(1, deepest + 1):
        names = Counter(file.relative_to(folder).parts[level - 1] for file in files if depth[file] >= level)
        examples = ", ".join(list(dict.fromkeys(names))[:3]) + (", …" if len(names) > 3 else "")
        choices.append(f"{level}: {len(names):,} classes ({examples})")
    question = f"The images of {folder} lie in nested folders. Which level is the class?"
    if is_answered():
        typer.echo(question + "\n  " + "\n  ".join(choices), err=True)
        level = typer.prompt("level", type=int, default=deepest, err=True)
        return _class_level(folder, files, depth, level)
    raise typer.BadParameter(f"{question} --class-level {'; '.join(choices)}; -1: the innermost", param_hint="DATA")
