"""The methods of Admin that rename and merge classes, go back a version, and say how good versions are."""
# ruff: noqa: N802, D102

from __future__ import annotations

from sharp.v1 import class_admin_pb2, label_pb2, quality_pb2, snapshot_pb2

from .._labels import Label, decode_label, decode_labels, encode_labels
from .._reasons import (
    ClassExistsError,
    ClassNotFoundError,
    FieldInvalidError,
    LabelKindMismatchError,
    NothingToUndoError,
    VersionNotFoundError,
)
from ._learner import FakeLearner, KnownClass
from ._refusals import refuse


class VersionMethods:
    """What an operator can do to classes and versions."""

    def find(self, name: str) -> FakeLearner:
        """Find a learner by name."""
        raise NotImplementedError

    def do_RenameClass(self, request: class_admin_pb2.RenameClassRequest) -> class_admin_pb2.RenameClassResponse:
        learner = self.find(request.learner)
        old, new = _label(learner, request.label, "label"), _label(learner, request.new_label, "new_label")
        _require(learner, old)
        if learner.knows(new):
            raise refuse(ClassExistsError, f"there is a class {new!r} already: merging makes one of two", label=new)
        holding = _holding(learner, old)
        waiting = learner.relabel_waiting(old, new)
        if old in learner.classes:
            learner.classes = {new if label == old else label: known for label, known in learner.classes.items()}
            learner.new_version("renamed")
        return class_admin_pb2.RenameClassResponse(
            model_version=learner.model_version, journal_examples=waiting, snapshots_holding=holding
        )

    def do_MergeClasses(self, request: class_admin_pb2.MergeClassesRequest) -> class_admin_pb2.MergeClassesResponse:
        learner = self.find(request.learner)
        source, target = _label(learner, request.source, "source"), _label(learner, request.target, "target")
        _require(learner, source)
        _require(learner, target)
        if source == target:
            raise refuse(FieldInvalidError, "a class can't be merged with itself", field="target")
        holding = _holding(learner, source)
        waiting = learner.relabel_waiting(source, target)
        if source in learner.classes:
            learner.classes[target] = _joined(learner.classes.pop(source), learner.classes.get(target))
            learner.new_version("merged")
        known = learner.classes.get(target)
        return class_admin_pb2.MergeClassesResponse(
            model_version=learner.model_version,
            examples=known.count if known is not None else 0,
            journal_examples=waiting,
            snapshots_holding=holding,
        )

    def do_UndoVersion(self, request: class_admin_pb2.UndoVersionRequest) -> class_admin_pb2.UndoVersionResponse:
        learner = self.find(request.learner)
        serving = learner.model_version
        if request.model_version not in (0, serving):
            message = f"version {request.model_version} does not serve"
            raise refuse(VersionNotFoundError, message, version=request.model_version, serving=serving)
        here = serving
        while learner.holds.get(here):
            here = learner.holds[here]
        kept = [(one, data) for one, data in learner.snapshots.values() if one.model_version == here - 1]
        kept = [pair for pair in kept if pair[0].origin != snapshot_pb2.SNAPSHOT_ORIGIN_IMPORTED]
        if here <= 1 or not kept:
            raise refuse(NothingToUndoError, "there is no version before", version=serving, learner=learner.name)
        snapshot, data = kept[-1]
        cause, learned = learner.causes.get(serving, ""), learner.episodes_learned
        again: list[Label] = []
        if not request.preview:
            learner.restore(data, "undone", holds=snapshot.model_version)
            again = [label for label in decode_labels(snapshot.classes) if label in learner.forgotten]
        return class_admin_pb2.UndoVersionResponse(
            model_version=learner.model_version,
            undone_model_version=serving,
            restored_model_version=snapshot.model_version,
            restored_create_time=snapshot.create_time,
            cause=class_admin_pb2.VersionCause.Value(f"VERSION_CAUSE_{cause.upper() or 'UNSPECIFIED'}"),
            episodes_undone=max(0, learned - snapshot.episodes_learned),
            classes_forgotten=encode_labels(again) if again else None,
        )

    def do_ListQuality(self, request: quality_pb2.ListQualityRequest) -> quality_pb2.ListQualityResponse:
        return quality_pb2.ListQualityResponse(qualities=self.find(request.learner).qualities[::-1])


def _label(learner: FakeLearner, label: label_pb2.Label, field: str) -> Label:
    which = label.WhichOneof("kind")
    if which is None:
        raise refuse(FieldInvalidError, "the label is missing", field=field)
    kind = label_pb2.LABEL_KIND_TEXT if which == "text" else label_pb2.LABEL_KIND_INTEGER
    if learner.label_kind not in (label_pb2.LABEL_KIND_UNSPECIFIED, kind):
        raise refuse(LabelKindMismatchError, "the other kind of labels", expected=learner.label_kind, found=kind)
    return decode_label(label)


def _require(learner: FakeLearner, label: Label) -> None:
    if not learner.knows(label):
        raise refuse(ClassNotFoundError, f"{learner.name} does not know {label!r}", label=label)


def _holding(learner: FakeLearner, label: Label) -> list[snapshot_pb2.Snapshot]:
    """Snapshots that hold a name, newest first."""
    return [one for one, _ in learner.snapshots.values() if label in decode_labels(one.classes)][::-1]


def _joined(source: KnownClass, target: KnownClass | None) -> KnownClass:
    if target is None:
        return source
    count = source.count + target.count
    pairs = zip(source.mean, target.mean, strict=True)
    mean = [(a * source.count + b * target.count) / count for a, b in pairs]
    return KnownClass(mean, count, max(source.episode, target.episode))
