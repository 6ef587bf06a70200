"""How the trainer's process reads raw examples: over a session of its own, which ends with the reading.

It is handed over by pickle. It must never write.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import psycopg

from sharp_server.storage.postgres import connections, lessons, partitions
from sharp_server.storage.postgres.connections import Session
from sharp_server.storage.records import BatchSlice, Beyond


@dataclass(frozen=True)
class PostgresExamples:
    """Reads raw examples from the database."""

    dsn: str = field(repr=False)

    def read(self, episode: int) -> list[BatchSlice]:
        """The examples of a closed episode."""
        with connections.session_here(self.dsn) as session, session.cursor(binary=True) as cursor:
            partition = _partition(session, "SELECT partition FROM episodes WHERE id = %s", episode)
            if partition is None:
                return []
            try:
                cursor.execute(
                    f"SELECT p.dtype, p.kept, e.y, e.x FROM batch_slices p JOIN {partitions.table(partition)} e "
                    "ON e.item = p.id WHERE p.episode = %s ORDER BY p.sequence, p.first",
                    (episode,),
                )
            except psycopg.errors.UndefinedTable:  # dropped a moment ago
                return []
            return [BatchSlice(*row) for row in cursor]

    def lessons(self, learner: int, before: int) -> list[Beyond]:
        """The lessons before a place."""
        with connections.session_here(self.dsn) as session, session.cursor(binary=True) as cursor:
            while True:
                partition = _partition(session, "SELECT partition FROM learners WHERE id = %s", learner)
                if partition is None:
                    return []
                try:
                    cursor.execute(lessons.lessons_query(partition, "place < %s"), (learner, before))
                except psycopg.errors.UndefinedTable:  # written anew a moment ago
                    continue
                return [lessons.lesson_of(row) for row in cursor]


def _partition(session: Session, query: str, value: int) -> int | None:
    row = session.execute(query, (value,)).fetchone()
    return int(row[0]) if row is not None and row[0] is not None else None
