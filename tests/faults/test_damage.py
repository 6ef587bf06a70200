"""Damage on disk: the newest valid version serves, what was dropped is said, and no answer comes from damaged weights.

A real server made the folder and was killed over it. Most damage is then opened in this process, hundreds of times.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sharp_server.storage.repair import wal
from sharp_server.storage.sqlite import schema
from tests.faults.opening import Opened, copied, opened
from tests.server.running import Server, answered, blobs

QUESTIONS, _ = blobs("abcd", each=2)
Change = Callable[[bytearray], None]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a killed server: two versions of one learner, one of another, batches not yet learned."""
    server = Server(tmp_path_factory.mktemp("killed")).start()
    server.create("two")
    server.teach("two", blobs("ab"), blobs("cd"))
    server.create("one")
    server.teach("one", blobs("xy"))
    with server.stream("two", "open") as stream:
        for i in range(6):
            stream.send(*blobs("ef", each=20, seed=i))
        stream.wait_ack()
    server.kill()
    return server.folder / "data"


@pytest.fixture(scope="module")
def truth(killed: Path, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """What is there without damage."""
    found = opened(copied(killed, tmp_path_factory.mktemp("truth") / "data"), QUESTIONS)
    assert found.versions == {"two": 2, "one": 1} and found.durable["open"] == 6
    assert not found.corruption_events
    return found


def flips(size: int, count: int, seed: int) -> Iterator[tuple[str, Change]]:
    """Single bits turned over, at the very beginning and end and at random places."""
    rng = random.Random(seed)
    places = {0, 7, 8, 16, 24, 31, size - 1, *(rng.randrange(size) for _ in range(count))}
    for place in sorted(places):
        bit = 1 << rng.randrange(8)

        def flip(content: bytearray, place: int = place, bit: int = bit) -> None:
            content[place] ^= bit

        yield f"bit at {place}", flip


def cuts(size: int, count: int, seed: int) -> Iterator[tuple[str, Change]]:
    """Files that end too early."""
    rng = random.Random(seed)
    for place in sorted({0, 1, 31, 32, size - 1, *(rng.randrange(size) for _ in range(count))}):

        def cut(content: bytearray, place: int = place) -> None:
            del content[place:]

        yield f"cut at {place}", cut


def damaged(path: Path, change: Change) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def newest(data: Path) -> Path:
    """The newest snapshot of the learner with two versions."""
    return max((path for path in (data / "snapshots").rglob("*.safetensors")), key=lambda path: path.name[:8])


def test_a_newest_snapshot_damaged_anywhere_gives_way_to_the_one_before(
    killed: Path, truth: Opened, tmp_path: Path
) -> None:
    size = newest(killed).stat().st_size
    before = None
    for what, change in [*flips(size, 40, 1), *cuts(size, 20, 2)]:
        data = copied(killed, tmp_path / "data")
        damaged(newest(data), change)
        found = opened(data, QUESTIONS)
        assert found.versions == {"two": 3, "one": 1}, what
        before = before or found.answers["two"]
        assert before is not None and before != truth.answers["two"]
        assert found.answers == {"two": before, "one": truth.answers["one"]}, what
        assert len(found.corruption_events) == found.counted == 1, what
        assert "version 2 is damaged" in found.corruption_events[0], what
        assert found.durable == truth.durable, what


def test_a_damaged_log_loses_no_version_and_what_it_lost_is_told(killed: Path, truth: Opened, tmp_path: Path) -> None:
    size = (killed / "journal.db-wal").stat().st_size
    assert size > 6 * schema.PAGE_BYTES
    for what, change in [*flips(size, 50, 3), *cuts(size, 20, 4)]:
        data = copied(killed, tmp_path / "data")
        damaged(data / "journal.db-wal", change)
        found = opened(data, QUESTIONS)
        assert (found.versions, found.answers) == (truth.versions, truth.answers), what
        lost = found.durable != truth.durable
        assert lost == bool(found.corruption_events) == bool(found.counted), what
        assert lost and "dropped" in found.corruption_events[0] and found.durable.get("open", 0) < 6, what


def test_a_damaged_journal_is_begun_anew_and_no_version_is_lost(killed: Path, truth: Opened, tmp_path: Path) -> None:
    size = (killed / "journal.db").stat().st_size
    for what, change in [*flips(size, 25, 5), *cuts(size, 8, 6)]:
        data = copied(killed, tmp_path / "data")
        damaged(data / "journal.db", change)
        found = opened(data, QUESTIONS)
        for name, answers in found.answers.items():
            assert answers is None or answers == truth.answers[name], what
        whole = found.answers == truth.answers and found.durable == truth.durable
        assert whole or (found.corruption_events and found.counted), what
        if what.startswith("bit"):
            assert found.answers == truth.answers, what


def test_a_log_whose_damaged_pages_are_in_the_main_file_already_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    connection = schema.connect(path)
    schema.create(connection)
    put = "INSERT INTO examples VALUES (?, x'00', ?)"
    connection.executemany(put, [(n, bytes([n]) * 50_000) for n in range(1, 9)])
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    promised = wal.expected(path)
    assert promised.frames == promised.applied > 8
    moved = copied(tmp_path, tmp_path / "copy")
    damaged(moved / "journal.db-wal", lambda content: content.__setitem__(40_000, content[40_000] ^ 1))
    assert wal.set_aside_if_stale(moved / "journal.db", "damaged-") == promised
    again = schema.connect(moved / "journal.db")
    assert schema.is_sound(again)
    assert again.execute("SELECT count(*) FROM examples").fetchone() == (8,)
    assert promised.lost(0) == 0
    again.close()
    connection.close()


def test_a_sound_log_promises_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    connection = schema.connect(path)
    schema.create(connection)
    promised = wal.expected(path)
    moved = copied(tmp_path, tmp_path / "copy") / "journal.db"
    assert wal.set_aside_if_stale(moved, "damaged-") is None
    again = schema.connect(moved)
    witness = wal.Witness(again, moved)
    assert promised.frames > 0 and promised.lost(witness.recovered()) == 0
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert wal.expected(path) == wal.Expected()
    again.close()
    witness.close()
    connection.close()


def test_a_folder_on_a_disk_without_room_serves_all_the_same(killed: Path, truth: Opened, tmp_path: Path) -> None:
    data = copied(killed, tmp_path / "data")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limits[1]))
    try:
        found = opened(data, QUESTIONS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (found.versions, found.answers, found.durable) == (truth.versions, truth.answers, truth.durable)
    assert opened(data, QUESTIONS).durable == truth.durable


def test_a_real_server_on_damaged_files_serves_the_newest_sound_version_and_says_what_it_lost(
    killed: Path, tmp_path: Path, serve: Callable[..., Server]
) -> None:
    copied(killed, tmp_path / "one" / "data")
    damaged(newest(tmp_path / "one" / "data"), lambda content: content.__setitem__(-9, content[-9] ^ 8))
    damaged(tmp_path / "one" / "data" / "journal.db-wal", lambda content: content.__setitem__(99, content[99] ^ 8))
    server = serve("one")
    x, y = blobs("ab")
    answer: Any = server.predict("two", x[:6])
    assert (answer.model_version, answer.episodes_learned, answered(answer)) == (3, 1, y[:6])
    details = " | ".join(damage.detail for damage in server.status().corruption_events)
    assert "version 2 is damaged" in details and "dropped" in details
    log = server.log.read_text()
    assert "version 2 is damaged" in log and "Traceback" not in log
    assert server.learner("two").status.damaged_snapshots == 1
    with server.stream("two", "open") as stream:  # the producer hears what is left, and sends the rest again
        assert stream.opened.last_durable_sequence < 6
