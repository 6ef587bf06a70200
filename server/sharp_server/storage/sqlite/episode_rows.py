"""Episodes as they are read from the journal."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from sharp_server.storage.records import EpisodeRow
from sharp_server.storage.sqlite import schema

_EPISODE_COLUMNS = """
    SELECT e.id, e.learner, e.number, e.stream, s.name, s.boundaries, e.state, e.position, e.closed_by,
           e.first_sequence, e.last_sequence, e.last_batch_examples, e.examples, e.bytes, e.classes,
           e.closed, e.attempts, e.starts, coalesce(e.reason, ''), coalesce(e.detail, ''), coalesce(e.finished_at, 0),
           coalesce(e.version, 0),
           coalesce(e.episodes_learned, 0), coalesce(e.statistics, x''), e.place, coalesce(e.phase_sha256, x'')
    FROM episodes e JOIN streams s ON s.id = e.stream """


def episodes_where(connection: sqlite3.Connection, condition: str, *values: object) -> list[EpisodeRow]:
    """Episodes by a condition of ours (never a client's text) and its values."""
    rows = connection.execute(_EPISODE_COLUMNS + "WHERE " + condition, values)
    return [_episode(row) for row in rows]


def _episode(row: tuple[Any, ...]) -> EpisodeRow:
    values = (*row[:14], tuple(json.loads(row[14])), *row[15:])
    return EpisodeRow(*values)


def unlearned_episodes(connection: sqlite3.Connection, learner: int) -> list[EpisodeRow]:
    """Episodes that wait or are parked."""
    return episodes_where(connection, "e.learner = ? AND e.state IN ('waiting', 'parked')", learner)


def episodes_of_stream(
    connection: sqlite3.Connection, stream: int, after_sequence: int, limit: int
) -> list[EpisodeRow]:
    """The newest episodes of a stream that end after a sequence number, in order."""
    condition = "e.stream = ? AND e.last_sequence > ? ORDER BY e.number DESC LIMIT ?"
    found = episodes_where(connection, condition, stream, min(after_sequence, schema.LARGEST), limit)
    return found[::-1]
