"""What every implementation of `interface.Storage` promises, whatever it is made of."""

from __future__ import annotations

import asyncio
import json
import pickle
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharp_server.errors import RpcError
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import (
    Arrival,
    BeyondKey,
    CorruptionEvent,
    EpisodeRow,
    FoundLearner,
    FoundSnapshot,
    Manifest,
    NewLearner,
    NewLesson,
    NewSnapshot,
    NewVersion,
    Relabelling,
)
from tests.server.storage.implementations import IMPLEMENTATIONS, Implementation

PLANTED = b"planted-pattern-0123456789"
Work = Callable[[Storage], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Run:
    """Opens what lies in a folder, works with it, and closes it; again and again, if one likes."""

    implementation: Implementation
    folder: Path

    def __call__(self, work: Work) -> None:
        async def main() -> None:
            storage = self.implementation.make(self.folder)
            await storage.open()
            try:
                await asyncio.wait_for(work(storage), 60)
            finally:
                await storage.close()

        asyncio.run(main())

    def bytes_on_disk(self) -> bytes:
        """Everything that the implementation's tables hold on disk, used or not."""
        return self.implementation.bytes_on_disk(self.folder)


@pytest.fixture(params=IMPLEMENTATIONS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return Run(IMPLEMENTATIONS[request.param], tmp_path)


def arrival(learner: int, stream: int, sequence: int, y: list[int], **options: Any) -> Arrival:
    x = b"".join(PLANTED + bytes([label]) for label in y)
    classes = tuple((i, json.dumps(f"class {i}")) for i in sorted(set(y)))
    ordinals = np.array(y, np.int32).tobytes()
    return Arrival(learner, stream, sequence, len(y), "u1", x, ordinals, classes, ("[27]", "text"), **options)


def new_learner(name: str) -> NewLearner:
    return NewLearner(name, f"uid of {name}", b"config", "{}", None, None)


async def learner_and_stream(storage: Storage, name: str = "a") -> tuple[int, int]:
    row = await storage.create_learner(new_learner(name), 10)
    return row.id, (await storage.open_stream(row.id, "s", "EXPLICIT")).id


async def episode_of(storage: Storage, learner: int, stream: int, sequence: int, y: list[int]) -> EpisodeRow:
    await storage.append(arrival(learner, stream, sequence, y))
    (episode,) = await storage.close_episode(learner, stream, sequence + 1)
    return episode


def version(learner: int, number: int, keep: int = 5, episode: int | None = None, cause: str = "learned") -> NewVersion:
    snapshot = NewSnapshot(learner, f"{number:08d}a-x", number, number, '["class 0"]', "automatic", 7, b"\1" * 32)
    return NewVersion(snapshot, cause, keep, episode)


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_what_was_appended_is_there_after_it_was_closed_and_opened_again(run: Run) -> None:
    async def write(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.append(arrival(learner, stream, 1, [0, 1]))

    async def read(storage: Storage) -> None:
        (row,) = await storage.learners()
        assert (row.name, row.input_shape, row.label_kind, row.next_class) == ("a", "[27]", "text", 2)
        stream = await storage.open_stream(row.id, "s", "EXPLICIT")
        assert (stream.durable, stream.open_examples) == (1, 2)
        assert await storage.classes(row.id) == [(0, '"class 0"'), (1, '"class 1"')]
        assert await storage.unlearned_totals(row.id) == (2 * (len(PLANTED) + 1 + 4), 2)

    run(write)
    run(read)


def test_appends_are_kept_in_the_order_of_their_calls_and_one_that_is_refused_takes_nothing_with_it(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.room()
        futures = [storage.append(arrival(learner, stream, number, [0, 1])) for number in (1, 2, 4, 3)]
        done = await asyncio.gather(*futures, return_exceptions=True)
        assert [isinstance(result, RpcError) for result in done] == [False, False, True, False]
        assert [piece.count for piece in await storage.open_slices(stream)] == [2, 2, 2]
        row = await storage.open_stream(learner, "s", "EXPLICIT")
        assert (row.durable, row.open_examples) == (3, 6)

    run(work)


def test_a_batch_is_kept_once_however_often_it_is_sent(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.append(arrival(learner, stream, 1, [0]))
        with pytest.raises(RpcError, match="left out"):
            await storage.append(arrival(learner, stream, 1, [0]))
        (closed,) = await storage.close_episode(learner, stream, 2)
        assert closed.examples == 1

    run(work)


def test_a_mark_without_examples_closes_nothing_and_counts(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        assert await storage.close_episode(learner, stream, 1) == []
        assert (await storage.open_stream(learner, "s", "EXPLICIT")).durable == 1

    run(work)


@pytest.mark.parametrize("seed", range(4))
def test_marks_that_closed_nothing_are_found_among_any_batches_cuts_and_marks(run: Run, seed: int) -> None:
    rng = random.Random(seed)

    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        empty, waiting = [], 0
        for sequence in range(1, 61):
            if rng.random() < 0.6:
                closed = await storage.close_episode(learner, stream, sequence)
                assert (not closed) == (waiting == 0)
                empty += [] if closed else [sequence]
                waiting = 0
            else:
                waiting += 4
                cuts = []
                while waiting and rng.random() < 0.5:
                    length = rng.randint(1, waiting)
                    cuts.append((length, "cut"))
                    waiting -= length
                await storage.append(arrival(learner, stream, sequence, [0, 1, 0, 1], cuts=tuple(cuts)))
        assert len(empty) > 5
        for after in range(62):
            assert await storage.empty_marks(stream, after, 1000) == [mark for mark in empty if mark > after]
        assert await storage.empty_marks(stream, 0, 3) == empty[-3:]

    run(work)


def test_a_stream_keeps_its_boundaries(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, _ = await learner_and_stream(storage)
        with pytest.raises(RpcError) as caught:
            await storage.open_stream(learner, "s", "AUTOMATIC")
        assert caught.value.reason == "BOUNDARIES_MISMATCH"

    run(work)


def test_a_cut_inside_a_batch_splits_it_and_the_episodes_add_up(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.append(arrival(learner, stream, 1, [0, 0, 1]))
        cuts = ((5, "cut"), (3, "cut"))
        closed = await storage.append(arrival(learner, stream, 2, [1, 1, 2, 2, 2, 2], cuts=cuts))
        assert [(e.number, e.examples, e.first_sequence, e.last_sequence, e.last_batch_examples) for e in closed] == [
            (1, 5, 1, 2, 2),
            (2, 3, 2, 2, 3),
        ]
        assert closed[0].classes == ('"class 0"', '"class 1"')
        (rest,) = await storage.close_episode(learner, stream, 3)
        assert (rest.number, rest.examples, rest.last_sequence) == (3, 1, 3)
        assert [e.number for e in await storage.episodes_of_stream(stream, 0, 10)] == [1, 2, 3]
        assert [e.number for e in await storage.episodes_of_stream(stream, 2, 10)] == [3]
        assert [e.number for e in await storage.episodes_of_stream(stream, 0, 2)] == [2, 3]
        assert await storage.episodes_of_stream(stream, 1 << 64, 10) == []

    run(work)


def test_raw_examples_are_read_by_another_process_in_the_order_in_which_they_came(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.append(arrival(learner, stream, 1, [2, 0]))
        episode = await episode_of(storage, learner, stream, 2, [1])
        source = pickle.loads(pickle.dumps(storage.example_source()))
        slices = await asyncio.to_thread(source.read, episode.id)
        assert [np.frombuffer(piece.y, np.int32).tolist() for piece in slices] == [[2, 0], [1]]
        assert b"".join(piece.x for piece in slices) == b"".join(PLANTED + bytes([i]) for i in (2, 0, 1))

    run(work)


# ---- episodes --------------------------------------------------------------------------------------------------------


def test_an_episode_is_tried_failed_excused_and_advanced(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        episode = (await episode_of(storage, learner, stream, 1, [0, 0])).id
        assert [await storage.begin(episode), await storage.begin(episode)] == [1, 2]
        await storage.excuse(episode)
        assert await storage.begin(episode) == 1
        assert [await storage.fail(episode), await storage.fail(episode)] == [1, 2]
        await storage.begin(episode)
        await storage.advance(episode)
        (row,) = await storage.unlearned_episodes(learner)
        assert (row.attempts, row.starts, row.state) == (0, 0, "waiting")

    run(work)


def test_the_object_of_the_newest_finished_phase_is_kept_with_its_episode(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        episode = await episode_of(storage, learner, stream, 1, [0, 0])
        assert episode.phase_sha256 == b""

        async def phase() -> bytes:
            return (await storage.unlearned_episodes(learner))[0].phase_sha256

        await storage.advance(episode.id, b"1" * 32)
        await storage.advance(episode.id, b"2" * 32)
        assert await phase() == b"2" * 32
        await storage.advance(episode.id)
        await storage.begin(episode.id)
        await storage.excuse(episode.id)
        await storage.fail(episode.id)
        assert await phase() == b"2" * 32
        await storage.fail(episode.id, start_over=True)
        assert await phase() == b""

    run(work)


@pytest.mark.parametrize("change", ["version", "learned", "forgotten", "relabelled", "parked"])
def test_no_episode_goes_on_from_a_phase_once_what_it_is_learned_from_has_changed(run: Run, change: str) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        one = await episode_of(storage, learner, stream, 1, [0, 1])
        two = await episode_of(storage, learner, stream, 3, [0, 1])
        await storage.advance(two.id, b"2" * 32)
        if change == "version":
            await storage.publish(version(learner, 1))
        elif change == "learned":
            await storage.learned(one.id, version(learner, 1), b"")
            await storage.advance(one.id, b"1" * 32)  # it comes too late
        elif change == "forgotten":
            await storage.forget(learner, json.dumps("class 0"))
        elif change == "relabelled":
            await storage.relabel(Relabelling(learner, json.dumps("class 0"), json.dumps("class 1"), True))
        else:
            await storage.park(two.id, "ENGINE_ERROR", "why")
            await storage.retry(learner, two.number)
        episodes = await storage.episodes_of_stream(stream, 0, 10)
        assert [episode.phase_sha256 for episode in episodes] == [b"", b""]

    run(work)


def test_a_parked_episode_can_be_tried_again_or_given_up_and_no_other_can(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        one = await episode_of(storage, learner, stream, 1, [0, 0])
        two = await episode_of(storage, learner, stream, 3, [1, 1])
        refusals = {one.number: "EPISODE_NOT_PARKED", 9: "EPISODE_NOT_FOUND", 1 << 64: "EPISODE_NOT_FOUND"}
        for number, reason in refusals.items():
            with pytest.raises(RpcError) as caught:
                await storage.retry(learner, number)
            assert caught.value.reason == reason
        parked = await storage.park(one.id, "ENGINE_ERROR", "why")
        assert (parked.state, parked.reason, parked.detail) == ("parked", "ENGINE_ERROR", "why")
        assert parked.finished_at > 0
        again = await storage.retry(learner, one.number)
        assert (again.state, again.reason, again.finished_at) == ("waiting", "", 0) and again.position > two.position
        await storage.park(two.id, "ENGINE_ERROR", "why")
        assert (await storage.discard(learner, two.number)).examples == 2
        assert [e.number for e in await storage.unlearned_episodes(learner)] == [one.number]
        assert storage.example_source().read(two.id) == []

    run(work)


def test_learning_an_episode_records_a_version_and_deletes_its_examples(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        episode = await episode_of(storage, learner, stream, 1, [0, 1] * 500)
        assert PLANTED in run.bytes_on_disk()
        done = await storage.learned(episode.id, version(learner, 1, episode=episode.number), b"statistics")
        assert (done.replaced, done.forgotten) == ((), None)
        assert await storage.erase()
        assert PLANTED not in run.bytes_on_disk()
        (row,) = await storage.learners()
        (snapshot,) = await storage.snapshots(learner)
        assert (row.version, row.head) == (1, snapshot.id)
        assert await storage.unlearned_totals(learner) == (0, 0) and not await storage.unlearned_episodes(learner)
        (learned,) = await storage.episodes_of_stream(stream, 0, 10)
        assert (learned.state, learned.version, learned.statistics) == ("learned", 1, b"statistics")
        assert await storage.episodes_learned(learner) == 1
        with pytest.raises(RpcError):  # once is enough
            await storage.learned(episode.id, version(learner, 2), b"")
        assert [s.version for s in await storage.snapshots(learner)] == [1]

    run(work)


# ---- forgetting ------------------------------------------------------------------------------------------------------


def test_a_forgotten_class_is_gone_from_every_file_and_the_others_stay(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await episode_of(storage, learner, stream, 1, [0, 1, 0, 2])
        await episode_of(storage, learner, stream, 3, [1, 1])
        await storage.append(arrival(learner, stream, 5, [1, 2]))
        done = await storage.forget(learner, '"class 1"')
        await storage.erase()
        assert (done.examples, done.open_examples) == (4, 1)
        assert [episode.number for episode in done.discarded] == [2]
        content = run.bytes_on_disk()
        assert PLANTED + b"\x01" not in content
        assert content.count(PLANTED + b"\x00") == 2 and content.count(PLANTED + b"\x02") == 2
        (closed,) = await storage.close_episode(learner, stream, 6)
        assert (closed.examples, closed.classes) == (1, ('"class 2"',))
        assert await storage.classes(learner) == [(0, '"class 0"'), (2, '"class 2"')]

    run(work)


def test_a_class_that_comes_under_another_number_is_written_under_the_one_it_has(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.append(arrival(learner, stream, 1, [0, 1]))
        other = replace(arrival(learner, stream, 2, [1, 7]), new_classes=((7, '"class 0"'), (1, '"class 1"')))
        await storage.append(other)
        assert await storage.classes(learner) == [(0, '"class 0"'), (1, '"class 1"')]
        slices = await storage.open_slices(stream)
        assert [np.frombuffer(piece.y, np.int32).tolist() for piece in slices] == [[0, 1], [1, 0]]
        y = np.array([8], np.int32).tobytes()
        lesson = NewLesson(learner, "id", b"content", 0, 1, "u1", b"x", y, ((8, '"class 1"'),), None)
        assert (await storage.keep_lesson(lesson)).new_classes == ()
        (kept,) = [item for item in await storage.beyond(learner, BeyondKey(), 1 << 20) if item.lesson]
        assert np.frombuffer(kept.slices[0].y, np.int32).tolist() == [1]

    run(work)


def test_a_version_is_published_together_with_what_is_forgotten_and_what_comes_back(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.append(arrival(learner, stream, 1, [0, 1]))
        await storage.publish(version(learner, 1, cause="restored"))
        (before,) = await storage.snapshots(learner)
        done = await storage.publish(version(learner, 2, cause="forgotten"), forget='"class 1"')
        assert done.forgotten is not None and done.forgotten.examples == 1
        assert await storage.forgotten(learner) == {'"class 1"': before.id}
        await storage.publish(version(learner, 3, cause="restored"), remember=['"class 1"'])
        assert await storage.forgotten(learner) == {}
        assert await storage.episodes_learned(learner) == 0

    run(work)


# ---- versions and snapshots ------------------------------------------------------------------------------------------


def test_only_the_newest_automatic_snapshots_are_kept_and_those_on_request_all_up_to_a_limit(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, _ = await learner_and_stream(storage)
        kept = NewSnapshot(learner, "kept", 1, 1, "[]", "requested", 7, b"\2" * 32, "a note")
        assert (await storage.add_snapshot(kept, 1)).note == "a note"
        with pytest.raises(RpcError) as caught:
            await storage.add_snapshot(NewSnapshot(learner, "more", 1, 1, "[]", "requested", 7, b"\2" * 32), 1)
        assert caught.value.reason == "TOO_MANY_SNAPSHOTS"
        gone = [(await storage.publish(version(learner, number, keep=2))).replaced for number in (1, 2, 3)]
        assert gone == [(), (), ("00000001a-x",)]
        assert [s.name for s in await storage.snapshots(learner)] == ["00000003a-x", "00000002a-x", "kept"]
        assert (await storage.snapshot(learner, "kept")).size == 7
        await storage.delete_snapshots(learner, ["kept"])
        with pytest.raises(RpcError):
            await storage.snapshot(learner, "kept")

    run(work)


def test_damage_is_written_down(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, _ = await learner_and_stream(storage)
        await storage.publish(version(learner, 1))
        (snapshot,) = await storage.snapshots(learner)
        await storage.mark_damaged(snapshot)
        await storage.mark_damaged(await storage.snapshot(learner, snapshot.name))  # counts once
        assert (await storage.learners())[0].damaged == 1
        await storage.add_corruption_event(CorruptionEvent("a", snapshot.name, 1, 0, "what"))
        (event,) = await storage.corruption_events()
        assert (event.learner, event.snapshot, event.lost_version, event.detail) == ("a", snapshot.name, 1, "what")
        assert event.time > 0

    run(work)


# ---- learners --------------------------------------------------------------------------------------------------------


def test_names_are_unique_learners_are_bounded_and_a_deleted_one_leaves_nothing(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.append(arrival(learner, stream, 1, [0]))
        for name, limit, reason in (("a", 9, "LEARNER_EXISTS"), ("b", 1, "TOO_MANY_LEARNERS")):
            with pytest.raises(RpcError) as caught:
                await storage.create_learner(new_learner(name), limit)
            assert caught.value.reason == reason
        other, _ = await learner_and_stream(storage, "b")
        await storage.delete_learner(learner)
        assert await storage.erase()
        assert [row.id for row in await storage.learners()] == [other]
        assert PLANTED not in run.bytes_on_disk()
        with pytest.raises(RpcError) as caught:
            await storage.append(arrival(learner, stream, 2, [0]))
        assert caught.value.reason == "LEARNER_NOT_FOUND"

    run(work)


def test_what_a_snapshot_brings_is_fixed(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, _ = await learner_and_stream(storage)
        await storage.add_classes(learner, [(0, '"x"'), (1, '"y"')], 2)
        await storage.fix_inputs(learner, "[3]", "text")
        await storage.fix_inputs(learner, "[3]", None)
        (row,) = await storage.learners()
        assert (row.input_shape, row.label_kind, row.next_class) == ("[3]", "text", 2)

    run(work)


def test_learners_found_by_their_files_are_entered_with_their_versions_and_what_was_forgotten(run: Run) -> None:
    async def work(storage: Storage) -> None:
        old = FoundSnapshot("00000001a-x", "automatic", 1, 1.0, 7, b"\1" * 32, 1, ("a", "b"), True)
        new = FoundSnapshot("00000002a-x", "automatic", 2, 2.0, 7, b"\2" * 32, 2, ("a",), True)
        manifest = Manifest("pets", b"config".hex(), "{}", 5.0, {'"b"': ["00000001a-x"]})
        await storage.enter([FoundLearner("uid", manifest, (old, new), "[3]", "text", ("a",))])
        (row,) = await storage.learners()
        snapshots = await storage.snapshots(row.id)
        assert [s.name for s in snapshots] == [new.name, old.name]
        assert (row.name, row.uid, row.config, row.version, row.head) == ("pets", "uid", b"config", 2, snapshots[0].id)
        assert await storage.classes(row.id) == [(0, '"a"')]
        assert await storage.forgotten(row.id) == {'"b"': snapshots[1].id}

    run(work)


# ---- lessons ---------------------------------------------------------------------------------------------------------


def lesson(learner: int, request_id: str, y: list[int], counted: int = 0, content: bytes = b"c") -> NewLesson:
    x = b"".join(PLANTED + bytes([label]) for label in y)
    classes = tuple((i, json.dumps(f"class {i}")) for i in sorted(set(y)))
    ordinals = np.array(y, np.int32).tobytes()
    return NewLesson(learner, request_id, content, counted, len(y), "u1", x, ordinals, classes, ("[27]", "text"))


async def known(storage: Storage, learner: int) -> list[tuple[int, bool, list[int]]]:
    """(place, whether it is a lesson, ordinals) of everything beyond the version, in order."""
    found, key = [], BeyondKey()
    while items := await storage.beyond(learner, key, 1):
        for item in items:
            found.append((item.place, item.lesson, [o for s in item.slices for o in np.frombuffer(s.y, np.int32)]))
        key = items[-1].key
    return found


def test_a_lesson_is_kept_once_and_its_id_with_other_content_is_refused(run: Run) -> None:
    async def write(storage: Storage) -> None:
        learner = (await storage.create_learner(new_learner("a"), 10)).id
        first = await storage.keep_lesson(lesson(learner, "one", [0, 1]))
        again = await storage.keep_lesson(lesson(learner, "one", [0, 1]))
        assert (first.repetition, first.new_classes) == (False, ('"class 0"', '"class 1"'))
        assert (again.repetition, again.place, again.new_classes) == (True, first.place, first.new_classes)
        with pytest.raises(RpcError, match="other content"):
            await storage.keep_lesson(lesson(learner, "one", [0, 1], content=b"d"))
        later = await storage.keep_lesson(lesson(learner, "two", [1, 2]))
        assert (later.new_classes, later.place) == (('"class 2"',), first.place + 1)

    async def read(storage: Storage) -> None:
        (row,) = await storage.learners()
        assert (row.examples, row.input_shape, row.next_class) == (4, "[27]", 3)
        assert [entry[1:] for entry in await known(storage, row.id)] == [(True, [0, 1]), (True, [1, 2])]

    run(write)
    run(read)


def test_arrivals_become_known_by_place_and_lessons_after_what_was_counted(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.append(arrival(learner, stream, 1, [0]))  # place 1
        await storage.append(arrival(learner, stream, 2, [1]))  # place 2
        await storage.keep_lesson(lesson(learner, "early", [2], counted=1))
        await storage.append(arrival(learner, stream, 3, [3]))
        await storage.keep_lesson(lesson(learner, "late", [4], counted=4))
        order = [ordinals for _, _, ordinals in await known(storage, learner)]
        assert order == [[0], [2], [1], [3], [4]]
        assert await storage.last_lesson(learner) == BeyondKey(4, 5)
        (episode,) = await storage.close_episode(learner, stream, 4)
        assert episode.place == 6
        await storage.park(episode.id, "OUT_OF_MEMORY", "")
        assert [o for _, _, o in await known(storage, learner)] == [[2], [4]]  # parked examples count no more
        await storage.retry(learner, 1)
        assert [o for _, _, o in await known(storage, learner)] == [[2], [4], [0], [1], [3]]  # lessons first

    run(work)


def test_a_batch_that_a_cut_divides_is_known_whole(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.append(arrival(learner, stream, 1, [0, 1, 0, 1, 2], cuts=((4, "cut"),)))
        assert [o for _, _, o in await known(storage, learner)] == [[0, 1, 0, 1, 2]]

    run(work)


def test_a_version_takes_in_the_lessons_before_its_episode_and_leaves_none_of_their_bytes(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.keep_lesson(lesson(learner, "before", [0, 1]))
        episode = await episode_of(storage, learner, stream, 1, [0, 1])
        await storage.keep_lesson(lesson(learner, "after", [2], counted=2))
        source = pickle.loads(pickle.dumps(storage.example_source()))
        assert [item.place for item in source.lessons(learner, episode.place)] == [1]
        await storage.learned(episode.id, replace(version(learner, 1), lessons=episode.place), b"")
        assert [o for _, _, o in await known(storage, learner)] == [[2]]
        assert (await storage.keep_lesson(lesson(learner, "before", [0, 1]))).repetition
        await storage.publish(replace(version(learner, 2, cause="taught"), lessons=4))
        assert await known(storage, learner) == [] and await storage.last_lesson(learner) is None
        assert await storage.erase()

    run(work)
    assert PLANTED not in run.bytes_on_disk()


def test_a_lesson_that_could_not_be_taught_is_taken_back(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner = (await storage.create_learner(new_learner("a"), 10)).id
        place = (await storage.keep_lesson(lesson(learner, "one", [0]))).place
        await storage.drop_lesson(learner, place)
        assert await known(storage, learner) == []
        assert not (await storage.keep_lesson(lesson(learner, "one", [0], content=b"other"))).repetition

    run(work)


def test_a_forgotten_class_leaves_the_lessons_too(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner = (await storage.create_learner(new_learner("a"), 10)).id
        await storage.keep_lesson(lesson(learner, "both", [0, 1, 0]))
        await storage.keep_lesson(lesson(learner, "only", [0]))
        gone = await storage.forget(learner, '"class 0"')
        assert gone.examples == 3
        assert [o for _, _, o in await known(storage, learner)] == [[1]]
        assert await storage.erase()

    run(work)
    content = run.bytes_on_disk()
    assert PLANTED + b"\0" not in content and PLANTED + b"\1" in content


# ---- quality, names and the step back -------------------------------------------------------------------------------


def test_the_quality_of_the_newest_versions_is_kept_with_them(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, _ = await learner_and_stream(storage)
        for number in range(1, 6):
            quality = None if number == 3 else json.dumps({"of": number})
            new = replace(version(learner, number), quality=quality, keep_qualities=4)
            await storage.publish(new)

    async def again(storage: Storage) -> None:
        (learner,) = await storage.learners()
        rows = await storage.qualities(learner.id)
        assert [(row.version, json.loads(row.quality)["of"]) for row in rows] == [(5, 5), (4, 4), (2, 2)]
        assert all(row.created > 0 for row in rows)
        await storage.delete_learner(learner.id)
        assert await storage.qualities(learner.id) == []

    run(work)
    run(again)


def test_a_version_says_what_made_it_and_what_an_undone_one_holds(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, _ = await learner_and_stream(storage)
        await storage.publish(version(learner, 1))
        await storage.publish(replace(version(learner, 2, cause="undone"), holds=1))
        first, second = await storage.version(learner, 1), await storage.version(learner, 2)
        assert first is not None and second is not None and await storage.version(learner, 3) is None
        assert [(row.version, row.cause, row.holds) for row in (first, second)] == [
            (1, "learned", None),
            (2, "undone", 1),
        ]

    run(work)


def names_of(slices: list[Any], pairs: list[tuple[int, str]]) -> list[str]:
    named = dict(pairs)
    return [json.loads(named[o]) for part in slices for o in np.frombuffer(part.y, np.int32).tolist()]


@pytest.mark.parametrize("with_version", [False, True], ids=["alone", "with a version"])
@pytest.mark.parametrize("merge", [False, True], ids=["renamed", "merged"])
def test_examples_that_wait_follow_a_class_to_its_new_name(merge: bool, with_version: bool, run: Run) -> None:
    new = json.dumps("class 2" if merge else "another")

    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        closed = await episode_of(storage, learner, stream, 1, [0, 1, 1, 2])
        await storage.append(arrival(learner, stream, 3, [1, 0]))
        change = Relabelling(learner, json.dumps("class 1"), new, merge)
        if with_version:
            assert (await storage.publish(version(learner, 1), relabel=change)).relabelled == 3
        else:
            assert await storage.relabel(change) == 3
        for reason, wrong in (
            ("CLASS_NOT_FOUND", change),
            ("CLASS_EXISTS", Relabelling(learner, json.dumps("class 0"), new, False)),
            ("CLASS_NOT_FOUND", Relabelling(learner, json.dumps("class 0"), json.dumps("nobody"), True)),
        ):
            with pytest.raises(RpcError) as refusal:
                await storage.relabel(wrong)
            assert refusal.value.reason == reason
        assert closed.number == 1

    async def again(storage: Storage) -> None:
        (learner,) = await storage.learners()
        pairs, name = await storage.classes(learner.id), json.loads(new)
        (episode,) = await storage.unlearned_episodes(learner.id)
        assert names_of(storage.example_source().read(episode.id), pairs) == ["class 0", name, name, "class 2"]
        stream = await storage.open_stream(learner.id, "s", "EXPLICIT")
        assert names_of(await storage.open_slices(stream.id), pairs) == [name, "class 0"]
        assert sorted(map(json.loads, episode.classes)) == sorted({"class 0", name, "class 2"})
        assert episode.examples == 4

    run(work)
    run(again)


@pytest.mark.parametrize("merge", [False, True], ids=["renamed", "merged"])
def test_lessons_that_wait_follow_a_class_to_its_new_name(merge: bool, run: Run) -> None:
    name = "class 2" if merge else "another"

    async def work(storage: Storage) -> None:
        learner = (await storage.create_learner(new_learner("a"), 10)).id
        await storage.keep_lesson(lesson(learner, "one", [0, 1, 1]))
        await storage.keep_lesson(lesson(learner, "two", [2, 1]))
        assert await storage.relabel(Relabelling(learner, json.dumps("class 1"), json.dumps(name), merge)) == 3

    async def again(storage: Storage) -> None:
        (learner,) = await storage.learners()
        named = dict(await storage.classes(learner.id))
        found = [[json.loads(named[o]) for o in ordinals] for _, _, ordinals in await known(storage, learner.id)]
        assert found == [["class 0", name, name], ["class 2", name]]

    run(work)
    run(again)


def test_forgetting_a_class_forgets_its_older_names_in_the_snapshots_that_hold_them(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.append(arrival(learner, stream, 1, [0, 1, 2]))
        await storage.publish(version(learner, 1))
        a, b, c, d = (json.dumps(name) for name in ("class 0", "class 1", "class 2", "d"))
        await storage.publish(version(learner, 2), relabel=Relabelling(learner, a, d, False))  # a is d now
        await storage.publish(version(learner, 3), relabel=Relabelling(learner, d, b, True))  # and part of b
        await storage.append(replace(arrival(learner, stream, 2, [7]), new_classes=((7, d),)))  # a new d
        assert set(await storage.older_names(learner, b)) == {a, d}
        assert await storage.older_names(learner, d) == await storage.older_names(learner, c) == {}
        ids = {row.version: row.id for row in await storage.snapshots(learner)}
        await storage.forget(learner, b)
        assert await storage.forgotten(learner) == {b: ids[3], d: ids[2], a: ids[1]}

    run(work)


def test_a_forgotten_class_is_named_by_the_quality_of_no_version(run: Run) -> None:
    async def work(storage: Storage) -> None:
        learner, stream = await learner_and_stream(storage)
        await storage.append(arrival(learner, stream, 1, [0, 1]))
        classes = [["class 0", 10, 9], ["class 1", 10, 10]]
        confusions = [["class 0", "class 1", 1], ["class 1", "class 0", 2]]
        quality = json.dumps({"classes": classes, "confusions": confusions})
        await storage.publish(replace(version(learner, 1), quality=quality))
        await storage.publish(version(learner, 2), forget=json.dumps("class 0"))
        (row,) = await storage.qualities(learner)
        assert json.loads(row.quality) == {"classes": [["class 1", 10, 10]], "confusions": []}

    run(work)
