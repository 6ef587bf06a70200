"""A handle on one learner."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from sharp.v1 import learner_admin_pb2, learner_pb2, parked_pb2, snapshot_pb2

from ._batching import Backpressure, Boundaries, check_learner_name
from ._errors import SharpError
from ._failures import local_error
from ._labels import Label, to_labels
from ._learn_stream import LearnStream
from ._reasons import LabelCountMismatchError
from ._requests import LabelKind
from ._results import Evaluation, Prediction, evaluate

if TYPE_CHECKING:
    from ._client import Client


class Learner:
    """One learner of a server: the client's methods without the name."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, check_learner_name(name)

    def __repr__(self) -> str:
        return f"<Learner {self.name!r} at {self._client.address}>"

    def learn(
        self,
        *,
        stream_id: str | None = None,
        boundaries: Boundaries = "explicit",
        backpressure: Backpressure = "block",
        create: bool = True,
        from_start: bool = False,
    ) -> LearnStream:
        """Open a stream to teach the learner, which is made if it is missing; see `Client.learn`."""
        return self._client.learn(
            self.name,
            stream_id=stream_id,
            boundaries=boundaries,
            backpressure=backpressure,
            create=create,
            from_start=from_start,
        )

    def predict(
        self,
        x: Any,
        *,
        top_k: int = 0,
        nearest_memories: int = 0,
        novelty: bool = False,
        min_model_version: int = 0,
        resize: bool = False,
        timeout: float | None = None,
    ) -> Prediction:
        """Predict the class of each example.

        `x` is a batch: an array (numpy, torch, anything with `__array__`) of vectors `(n, features)` or images
        `(n, channels, height, width)` or `(n, height, width)`, uint8 or floating; or image files: a list of paths, PIL
        images or bytes, or a single one, which `resize` lets the server resize. Large arrays go in several messages.
        `min_model_version` waits until that version serves: give `report.model_version` to read your own writes.
        """
        return self._client.predict(
            self.name,
            x,
            top_k=top_k,
            nearest_memories=nearest_memories,
            novelty=novelty,
            min_model_version=min_model_version,
            resize=resize,
            timeout=timeout,
        )

    def predict_stream(
        self,
        batches: Iterable[Any],
        *,
        top_k: int = 0,
        nearest_memories: int = 0,
        novelty: bool = False,
        resize: bool = False,
        return_failures: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Prediction | SharpError]:
        """Predict batch after batch over one call; see `Client.predict_stream`."""
        return self._client.predict_stream(
            self.name,
            batches,
            top_k=top_k,
            nearest_memories=nearest_memories,
            novelty=novelty,
            resize=resize,
            return_failures=return_failures,
            timeout=timeout,
        )

    def evaluate(
        self, x: Any, y: Any, *, min_model_version: int = 0, resize: bool = False, timeout: float | None = None
    ) -> Evaluation:
        """Predict labelled examples and compare: accuracy, in all and per class, and the confusion matrix."""
        truth = to_labels(y)
        prediction = self.predict(x, min_model_version=min_model_version, resize=resize, timeout=timeout)
        if len(prediction) != len(truth):
            raise local_error(
                LabelCountMismatchError,
                f"there are {len(prediction)} examples and {len(truth)} labels",
                examples=len(prediction),
                labels=len(truth),
            )
        return evaluate(truth, prediction)

    def create(
        self,
        *,
        preset: str = "",
        overrides: Mapping[str, Any] | None = None,
        input_shape: Sequence[int] = (),
        label_kind: LabelKind | None = None,
        seed: int = 0,
    ) -> learner_pb2.Learner:
        """Make the learner; see `Client.create_learner`."""
        return self._client.create_learner(
            self.name, preset=preset, overrides=overrides, input_shape=input_shape, label_kind=label_kind, seed=seed
        )

    def get(self) -> learner_pb2.Learner:
        """Tell everything about the learner."""
        return self._client.get_learner(self.name)

    def status(self) -> learner_pb2.LearnerStatus:
        """Tell what the learner is doing."""
        return (self._client.get_learner(self.name)).status

    def watch(self, *, min_interval: float = 0.0) -> Iterator[learner_admin_pb2.WatchLearnerResponse]:
        """Yield the status at once and after every change; see `Client.watch_learner`."""
        return self._client.watch_learner(self.name, min_interval=min_interval)

    def delete(self) -> learner_admin_pb2.DeleteLearnerResponse:
        """Delete the learner with all it has."""
        return self._client.delete_learner(self.name)

    def forget(
        self, label: Label, *, older_snapshots: Literal["list", "delete"] = "list"
    ) -> learner_admin_pb2.ForgetClassResponse:
        """Make the learner forget a class."""
        return self._client.forget_class(self.name, label, older_snapshots=older_snapshots)

    def snapshot(self, note: str = "") -> snapshot_pb2.Snapshot:
        """Save the version that serves, and keep it until it is deleted."""
        return self._client.create_snapshot(self.name, note=note)

    def snapshots(self) -> list[snapshot_pb2.Snapshot]:
        """List the snapshots, newest first."""
        return self._client.list_snapshots(self.name)

    def restore(self, snapshot_id: str, *, with_forgotten: bool = False) -> snapshot_pb2.RestoreSnapshotResponse:
        """Make the learner what it was when a snapshot was taken; see `Client.restore_snapshot`."""
        return self._client.restore_snapshot(self.name, snapshot_id, with_forgotten=with_forgotten)

    def delete_snapshot(self, snapshot_id: str) -> snapshot_pb2.DeleteSnapshotResponse:
        """Delete a snapshot."""
        return self._client.delete_snapshot(self.name, snapshot_id)

    def export_to(self, path: str | os.PathLike[str], *, snapshot_id: str = "") -> snapshot_pb2.Snapshot:
        """Write a snapshot, the newest if none is named, to a file."""
        return self._client.export_snapshot(self.name, path, snapshot_id=snapshot_id)

    def import_from(
        self, path: str | os.PathLike[str], *, restore: bool = False, note: str = ""
    ) -> snapshot_pb2.ImportSnapshotResponse:
        """Take in the snapshot in a file; with `restore`, become what it holds."""
        return self._client.import_snapshot(self.name, path, restore=restore, note=note)

    def parked(self) -> list[parked_pb2.ParkedEpisode]:
        """List the episodes that could not be learned."""
        return self._client.list_parked_episodes(self.name)

    def retry(self, episode: int) -> parked_pb2.RetryParkedEpisodeResponse:
        """Put a parked episode back in the queue."""
        return self._client.retry_parked_episode(self.name, episode)

    def discard(self, episode: int) -> parked_pb2.DiscardParkedEpisodeResponse:
        """Give up a parked episode."""
        return self._client.discard_parked_episode(self.name, episode)
