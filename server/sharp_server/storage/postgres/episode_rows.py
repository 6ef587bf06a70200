"""Episodes as they are read from the journal."""

from __future__ import annotations

import json
from typing import Any

from sharp_server.storage.postgres import schema
from sharp_server.storage.postgres.transaction import Transaction
from sharp_server.storage.records import EpisodeRow

_EPISODE_COLUMNS = """
    SELECT e.id, e.learner, e.number, e.stream, s.name, s.boundaries, e.state, e.position, e.closed_by,
           e.first_sequence, e.last_sequence, e.last_batch_examples, e.examples, e.bytes, e.classes,
           e.closed, e.attempts, e.starts, coalesce(e.reason, ''), coalesce(e.detail, ''), coalesce(e.finished_at, 0),
           coalesce(e.version, 0),
           coalesce(e.episodes_learned, 0), coalesce(e.statistics, ''), e.place, coalesce(e.phase_sha256, '')
    FROM episodes e JOIN streams s ON s.id = e.stream """


async def episodes_where(transaction: Transaction, condition: str, *values: object) -> list[EpisodeRow]:
    """Episodes by a condition of ours (never a client's text) and its values."""
    rows = await transaction.rows(_EPISODE_COLUMNS + "WHERE " + condition, *values)
    return [_episode(row) for row in rows]


def _episode(row: tuple[Any, ...]) -> EpisodeRow:
    values = (*row[:14], tuple(json.loads(row[14])), *row[15:])
    return EpisodeRow(*values)


async def unlearned_episodes(transaction: Transaction, learner: int) -> list[EpisodeRow]:
    """Episodes that wait or are parked."""
    return await episodes_where(transaction, "e.learner = %s AND e.state IN ('waiting', 'parked')", learner)


async def episodes_of_stream(
    transaction: Transaction, stream: int, after_sequence: int, limit: int
) -> list[EpisodeRow]:
    """The newest episodes of a stream that end after a sequence number, in order."""
    condition = "e.stream = %s AND e.last_sequence > %s ORDER BY e.number DESC LIMIT %s"
    found = await episodes_where(transaction, condition, stream, min(after_sequence, schema.LARGEST), limit)
    return found[::-1]
