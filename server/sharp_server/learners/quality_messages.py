"""How good versions are, as messages of sharp.v1."""

from __future__ import annotations

from collections.abc import Iterable

from sharp.v1 import learner_pb2
from sharp.v1 import quality_pb2 as pb
from sharp_engine import ClassQuality
from sharp_server.learners.messages import label_message, timestamp
from sharp_server.prediction.quality import MeasuredVersion, QualityReport

_LISTED = 20
"""Classes, worst first, where not all are asked for."""


def class_quality_message(entry: ClassQuality) -> pb.ClassQuality:
    """One class."""
    return pb.ClassQuality(label=label_message(entry.label), examples=entry.examples, right=entry.right)


def quality_message(measured: MeasuredVersion, every_class: bool = False) -> pb.Quality:
    """One version."""
    quality = measured.quality
    return pb.Quality(
        model_version=measured.version,
        create_time=timestamp(measured.created),
        examples=quality.examples,
        right=measured.right,
        classes=map(class_quality_message, quality.classes if every_class else quality.classes[:_LISTED]),
        confusions=[
            pb.Confusion(label=label_message(p.truth), answered=label_message(p.answered), examples=p.count)
            for p in quality.confusions
        ],
    )


def quality_report_message(report: QualityReport) -> pb.QualityReport:
    """A version beside the one before it."""
    return pb.QualityReport(
        quality=quality_message(report.now) if report.now is not None else None,
        before=quality_message(report.before) if report.before is not None else None,
        fallen=[
            pb.ClassFall(before=class_quality_message(fall.before), now=class_quality_message(fall.now))
            for fall in report.fallen[:_LISTED]
        ],
    )


def add_quality(classes: Iterable[learner_pb2.ClassSummary], report: QualityReport) -> None:
    """Put the figures of each class beside it."""
    by_label = [
        {entry.label: entry for entry in measured.quality.classes} if measured is not None else {}
        for measured in (report.now, report.before)
    ]
    for summary in classes:
        label = summary.label.text if summary.label.HasField("text") else summary.label.integer
        for field, entries in zip((summary.quality, summary.quality_before), by_label, strict=True):
            if label in entries:
                field.CopyFrom(class_quality_message(entries[label]))
