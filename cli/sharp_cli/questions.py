"""What `sharp predict` asks, and what comes back: one answer or one problem for every file and every row.

One that can't be answered never takes the answers of the others with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharp_cli.data import IMAGE_SUFFIXES, TABLE_SUFFIXES, BadItem, Findings, look_at, read_table
from sharp_cli.data.folders import find_images
from sharp_client import InvalidArgumentError, Learner, MessageTooLargeError, Prediction

TOGETHER = 64
"""Images that are asked about together."""


@dataclass(frozen=True)
class Question:
    """Examples that are asked about together, and the place of each."""

    x: Any
    """A list of image files, or an array."""
    places: Sequence[str]

    def halves(self) -> tuple[Question, Question]:
        """Two smaller ones."""
        middle = len(self.places) // 2
        return Question(self.x[:middle], self.places[:middle]), Question(self.x[middle:], self.places[middle:])


@dataclass(frozen=True)
class Answered:
    """The answer about one example."""

    place: str
    index: int
    prediction: Prediction


def read_questions(paths: Sequence[Path], label_column: str | None, findings: Findings) -> list[Question]:
    """Everything in files, folders and tables that can be asked about; what can't is in the findings."""
    images: list[Path] = []
    questions: list[Question] = []
    for path in paths:
        if path.is_dir():
            found = find_images(path, findings)
            if not found:
                findings.bad.append(BadItem(str(path), f"is a folder without {', '.join(IMAGE_SUFFIXES)} files"))
            images += found
        elif path.suffix.lower() in TABLE_SUFFIXES and path.exists():
            table = read_table(path, label_column, labelled=False)
            findings.bad += table.findings.bad
            findings.passed_over += table.findings.passed_over
            if len(table.places):
                questions.append(Question(table.x, table.places))
        else:
            images.append(path)
    facts = look_at(images)
    findings.bad += [fact for fact in facts if isinstance(fact, BadItem)]
    good = [image for image, fact in zip(images, facts, strict=True) if not isinstance(fact, BadItem)]
    parts = [good[start : start + TOGETHER] for start in range(0, len(good), TOGETHER)]
    return [Question(part, [str(file) for file in part]) for part in parts] + questions


def ask(learner: Learner, question: Question, **options: Any) -> Iterator[Answered | BadItem]:
    """Ask about examples together; if some of them are refused, find out which."""
    try:
        prediction = learner.predict(question.x, **options)
    except (InvalidArgumentError, MessageTooLargeError) as error:
        if len(question.places) == 1 or _concerns_all(error):
            places = question.places if isinstance(question.x, list) else [_file_of(question.places[0])]
            yield from (BadItem(place, error.message.removeprefix("image 0 ")) for place in places)
            return
        for half in question.halves():
            yield from ask(learner, half, **options)
        return
    for index, place in enumerate(question.places):
        yield Answered(place, index, prediction)


def _concerns_all(error: InvalidArgumentError | MessageTooLargeError) -> bool:
    """Whether it is about the shape or kind of all of them, not about one example."""
    return error.reason in ("SHAPE_MISMATCH", "DTYPE_UNSUPPORTED") and "example" not in error.metadata


def _file_of(place: str) -> str:
    """The file of a row.

    >>> _file_of("flowers.csv, line 3"), _file_of("x.npy[0]")
    ('flowers.csv', 'x.npy')
    """
    return place.partition(", ")[0].partition("[")[0]
