"""A handle on one learner: the client's methods without the name."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ._answers import (
    DeletedLearner,
    DeletedSnapshot,
    DiscardedEpisode,
    ForgottenClass,
    ImportedSnapshot,
    LearnerConfig,
    LearnerInfo,
    LearnerStatus,
    LearnerUpdate,
    ParkedEpisode,
    RestoredSnapshot,
    RetriedEpisode,
    Snapshot,
    TeachResult,
)
from ._async_learn_stream import AsyncLearnStream
from ._async_runtime import Batches
from ._batching import Backpressure, Boundaries, check_learner_name
from ._configs import LabelKind
from ._errors import SharpError
from ._failures import local_error
from ._labels import Label, to_labels
from ._reasons import LabelCountMismatchError
from ._results import Evaluation, Prediction, evaluate

if TYPE_CHECKING:
    from ._async_client import AsyncClient


class AsyncLearner:
    """One learner of a server. `AsyncLearner` is the same for asyncio."""

    def __init__(self, client: AsyncClient, name: str | None) -> None:
        self._client, self.name = client, "" if name is None else check_learner_name(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} at {self._client.address}>"

    def learn(
        self,
        *,
        stream_id: str | None = None,
        boundaries: Boundaries = "explicit",
        backpressure: Backpressure = "block",
        create: bool | LearnerConfig = True,
        from_start: bool = False,
    ) -> AsyncLearnStream:
        """Open a stream to teach the learner, which is created if it is missing; see `Client.learn`."""
        return self._client.learn(
            self.name,
            stream_id=stream_id,
            boundaries=boundaries,
            backpressure=backpressure,
            create=create,
            from_start=from_start,
        )

    async def teach(
        self,
        x: Any,
        y: Any,
        *,
        request_id: str | None = None,
        create: bool = True,
        resize: bool = False,
        timeout: float | None = None,
    ) -> TeachResult:
        """Teach a few labelled examples at once: they are durable, and predictions know them, when this returns.

        `x` is a batch as for `predict`, `y` the labels, one per example, or one label for all of them. The learner is
        created if it is missing, unless `create` is off. A correction is an example that was answered wrong, taught
        with the right label. All examples are taken or none. The call is repeated after failures and still learned
        once; give a `request_id` of your own to make that so across processes. Needs stable features: vectors and
        images with a backbone can be taught from the first example on, other images after a first episode.
        """
        return await self._client.teach(
            self.name, x, y, request_id=request_id, create=create, resize=resize, timeout=timeout
        )

    async def predict(
        self,
        x: Any,
        *,
        top_k: int = 0,
        nearest_memories: int = 0,
        novelty: bool = False,
        min_model_version: int = 0,
        min_examples: int = 0,
        resize: bool = False,
        timeout: float | None = None,
    ) -> Prediction:
        """Predict the class of each example.

        `x` is a batch: an array (numpy, torch, anything with `__array__`) of vectors `(n, features)` or images
        `(n, channels, height, width)` or `(n, height, width)`, uint8 or floating; or image files: a list of paths, PIL
        images or bytes, or a single one, which `resize` lets the server resize. Large arrays are sent in parts.
        `min_model_version` waits until that version serves: give `report.model_version` to read your own writes.
        `min_examples` waits until so many examples are known: give `taught.examples_known` where another client taught.
        """
        return await self._client.predict(
            self.name,
            x,
            top_k=top_k,
            nearest_memories=nearest_memories,
            novelty=novelty,
            min_model_version=min_model_version,
            min_examples=min_examples,
            resize=resize,
            timeout=timeout,
        )

    def predict_stream(
        self,
        batches: Batches,
        *,
        top_k: int = 0,
        nearest_memories: int = 0,
        novelty: bool = False,
        resize: bool = False,
        return_failures: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[Prediction | SharpError]:
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

    async def evaluate(
        self, x: Any, y: Any, *, min_model_version: int = 0, resize: bool = False, timeout: float | None = None
    ) -> Evaluation:
        """Predict labelled examples and compare: accuracy, in all and per class, and the confusion matrix."""
        truth = to_labels(y)
        prediction = await self.predict(x, min_model_version=min_model_version, resize=resize, timeout=timeout)
        if len(prediction) != len(truth):
            raise local_error(
                LabelCountMismatchError,
                f"there are {len(prediction)} examples and {len(truth)} labels",
                examples=len(prediction),
                labels=len(truth),
            )
        return evaluate(truth, prediction)

    async def create(
        self,
        *,
        preset: str = "",
        overrides: Mapping[str, Any] | None = None,
        input_shape: Sequence[int] = (),
        label_kind: LabelKind | None = None,
        seed: int = 0,
    ) -> LearnerInfo:
        """Create the learner; see `Client.create_learner`."""
        return await self._client.create_learner(
            self.name, preset=preset, overrides=overrides, input_shape=input_shape, label_kind=label_kind, seed=seed
        )

    async def get(self) -> LearnerInfo:
        """Get everything about the learner."""
        return await self._client.get_learner(self.name)

    async def status(self) -> LearnerStatus:
        """Get what the learner is doing."""
        info = await self._client.get_learner(self.name)
        return info.status

    def watch(self, *, min_interval: float = 0.0) -> AsyncIterator[LearnerUpdate]:
        """Yield the status at once and after every change; see `Client.watch_learner`."""
        return self._client.watch_learner(self.name, min_interval=min_interval)

    async def delete(self) -> DeletedLearner:
        """Delete the learner with all its data."""
        return await self._client.delete_learner(self.name)

    async def forget(self, label: Label, *, older_snapshots: Literal["list", "delete"] = "list") -> ForgottenClass:
        """Make the learner forget a class."""
        return await self._client.forget_class(self.name, label, older_snapshots=older_snapshots)

    async def snapshot(self, note: str = "") -> Snapshot:
        """Save the version that serves, and keep it until it is deleted."""
        return await self._client.create_snapshot(self.name, note=note)

    async def snapshots(self) -> list[Snapshot]:
        """List the snapshots, newest first."""
        return await self._client.list_snapshots(self.name)

    async def restore(self, snapshot_id: str, *, with_forgotten: bool = False) -> RestoredSnapshot:
        """Return the learner to a snapshot; see `Client.restore_snapshot`."""
        return await self._client.restore_snapshot(self.name, snapshot_id, with_forgotten=with_forgotten)

    async def delete_snapshot(self, snapshot_id: str) -> DeletedSnapshot:
        """Delete a snapshot."""
        return await self._client.delete_snapshot(self.name, snapshot_id)

    async def export_to(
        self, path: str | os.PathLike[str], *, snapshot_id: str = "", overwrite: bool = False
    ) -> Snapshot:
        """Write a snapshot (the newest by default) to a file; see `Client.export_snapshot`."""
        return await self._client.export_snapshot(self.name, path, snapshot_id=snapshot_id, overwrite=overwrite)

    async def import_from(
        self, path: str | os.PathLike[str], *, restore: bool = False, note: str = ""
    ) -> ImportedSnapshot:
        """Import the snapshot in a file; with `restore`, return the learner to it."""
        return await self._client.import_snapshot(self.name, path, restore=restore, note=note)

    async def parked(self) -> list[ParkedEpisode]:
        """List the episodes that could not be learned."""
        return await self._client.list_parked_episodes(self.name)

    async def retry(self, episode: int) -> RetriedEpisode:
        """Put a parked episode back in the queue."""
        return await self._client.retry_parked_episode(self.name, episode)

    async def discard(self, episode: int) -> DiscardedEpisode:
        """Give up a parked episode."""
        return await self._client.discard_parked_episode(self.name, episode)
