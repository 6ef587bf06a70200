"""The fuzzer by coverage: its targets take valid input and refuse what is not; and what it found stays fixed."""

from __future__ import annotations

import os
import sqlite3
import struct
from pathlib import Path

import pytest

from reliability.fuzz.coverage.targets import TARGETS
from sharp_server.storage.repair import wal
from sharp_server.storage.sqlite import schema


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_takes_its_seeds_whole_cut_and_changed(name: str) -> None:
    seeds = TARGETS[name].seeds()
    assert len(seeds) >= 2
    for seed in seeds:
        TARGETS[name].call(seed)
        TARGETS[name].call(seed[: len(seed) // 2])
        for at in range(0, len(seed), max(1, len(seed) // 8)):
            TARGETS[name].call(seed[:at] + bytes([seed[at] ^ 0x41]) + seed[at + 1 :])


def test_a_journal_that_does_not_open_leaves_no_connection_behind(tmp_path: Path) -> None:
    """It would be closed some time later, when a new journal has the name, and delete that one's log."""
    path = tmp_path / "journal.db"
    connection = schema.connect(path)
    schema.create(connection)
    connection.close()
    content = bytearray(path.read_bytes())
    content[100:160] = b"\xff" * 60  # the head of the table of tables
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(sqlite3.DatabaseError) as failure:
        schema.connect(path)
    held = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert str(path) not in held, failure


@pytest.mark.parametrize("page", [513, 516, 600, 65535])
def test_a_log_that_claims_pages_of_an_impossible_size_is_no_log(page: int, tmp_path: Path) -> None:
    head = struct.pack(">IIII", 0x377F0682, 3007000, page, 0) + b"saltsalt"
    head += struct.pack(">II", *wal._checksum(head, False, (0, 0)))
    index = bytearray(136)
    index[12], index[16:20], index[32:40] = 1, struct.pack("=I", 3), b"saltsalt"
    index[48:96], index[96:100] = index[:48], struct.pack("=I", 2)
    (tmp_path / "journal.db-wal").write_bytes(head + bytes(4 * page))
    (tmp_path / "journal.db-shm").write_bytes(index)
    assert wal.set_aside_if_stale(tmp_path / "journal.db", "damaged-") is None
    assert wal.expected(tmp_path / "journal.db").frames == 3  # by the other witness
