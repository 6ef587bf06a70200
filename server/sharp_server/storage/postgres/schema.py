"""The journal's tables in PostgreSQL, by migrations: each brings a database from one version to the next.

Raw examples are in none of these tables but in partitions, one table per open stream, per episode and per learner's
lessons (`partitions.py`): the columns named `partition` say which, and are empty when there are no examples (any more).
What the columns mean beyond that is said where the same tables are made for SQLite, in `sqlite/schema.py`.

A migration that was released is never changed: another one follows it.
"""

from __future__ import annotations

from sharp_server.storage.interface import UnsupportedFormatError
from sharp_server.storage.postgres.connections import AsyncSession

LARGEST = 2**63 - 1
"""Number that a column can hold; the wire has larger ones."""

_LOCK = 0x5348_4152_5000_0002

_FIRST = """
CREATE TABLE writers (              -- one row per owner: which group of its was committed last
    owner TEXT PRIMARY KEY, last_group TEXT NOT NULL DEFAULT '');
CREATE SEQUENCE partitions;
CREATE TABLE learners (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL UNIQUE, uid TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL DEFAULT '',     -- the server that may write to it; empty: nobody, or the only server
    address TEXT NOT NULL DEFAULT '',   -- where its owner is reached
    epoch BIGINT NOT NULL DEFAULT 0,    -- rises with every claim
    config BYTEA NOT NULL, settings TEXT NOT NULL, input_shape TEXT, label_kind TEXT,
    created DOUBLE PRECISION NOT NULL, version BIGINT NOT NULL DEFAULT 0, head BIGINT,
    next_episode BIGINT NOT NULL DEFAULT 1, next_position BIGINT NOT NULL DEFAULT 1,
    next_class BIGINT NOT NULL DEFAULT 0, next_place BIGINT NOT NULL DEFAULT 1,
    examples BIGINT NOT NULL DEFAULT 0, damaged BIGINT NOT NULL DEFAULT 0,
    partition BIGINT                    -- of lessons that are part of no version yet
) WITH (fillfactor = 70);
CREATE TABLE classes (
    learner BIGINT NOT NULL, ordinal BIGINT NOT NULL, label TEXT NOT NULL,
    PRIMARY KEY (learner, ordinal), UNIQUE (learner, label));
CREATE TABLE forgotten (
    learner BIGINT NOT NULL, label TEXT NOT NULL, snapshots_before BIGINT NOT NULL, PRIMARY KEY (learner, label));
CREATE TABLE renamed (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, learner BIGINT NOT NULL, old TEXT NOT NULL, new TEXT NOT NULL,
    snapshots_before BIGINT NOT NULL);
CREATE INDEX renamed_classes ON renamed (learner, id);
CREATE TABLE streams (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, learner BIGINT NOT NULL, name TEXT NOT NULL,
    boundaries TEXT NOT NULL, durable BIGINT NOT NULL DEFAULT 0, open_examples BIGINT NOT NULL DEFAULT 0,
    partition BIGINT,                   -- of its open examples
    UNIQUE (learner, name)) WITH (fillfactor = 70);
CREATE TABLE batch_slices (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, learner BIGINT NOT NULL, stream BIGINT NOT NULL, episode BIGINT,
    place BIGINT NOT NULL, sequence BIGINT NOT NULL, first BIGINT NOT NULL, count BIGINT NOT NULL, kept BIGINT NOT NULL,
    indices BYTEA, dtype TEXT NOT NULL, bytes BIGINT NOT NULL);
CREATE INDEX slices_of_episode ON batch_slices (episode, sequence, first) WHERE episode IS NOT NULL;
CREATE INDEX open_slices ON batch_slices (stream, sequence, first) WHERE episode IS NULL;
CREATE INDEX slices_by_place ON batch_slices (learner, place, first);
CREATE TABLE lessons (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, learner BIGINT NOT NULL, place BIGINT NOT NULL,
    request_id TEXT NOT NULL, content BYTEA NOT NULL, counted BIGINT NOT NULL, examples BIGINT NOT NULL,
    kept BIGINT NOT NULL, dtype TEXT NOT NULL, bytes BIGINT NOT NULL, new_classes TEXT NOT NULL,
    pending BOOLEAN NOT NULL DEFAULT TRUE,      -- part of no version yet, and its examples are in the partition
    UNIQUE (learner, place), UNIQUE (learner, request_id));
CREATE INDEX pending_lessons ON lessons (learner, counted, place) WHERE pending;
CREATE TABLE episodes (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, learner BIGINT NOT NULL, number BIGINT NOT NULL,
    stream BIGINT NOT NULL, state TEXT NOT NULL, place BIGINT NOT NULL, position BIGINT NOT NULL,
    closed_by TEXT NOT NULL, first_sequence BIGINT NOT NULL, last_sequence BIGINT NOT NULL,
    last_batch_examples BIGINT NOT NULL, examples BIGINT NOT NULL, bytes BIGINT NOT NULL, classes TEXT NOT NULL,
    closed DOUBLE PRECISION NOT NULL, attempts BIGINT NOT NULL DEFAULT 0, starts BIGINT NOT NULL DEFAULT 0,
    reason TEXT, detail TEXT, finished_at DOUBLE PRECISION, version BIGINT, episodes_learned BIGINT, statistics BYTEA,
    partition BIGINT, phase_sha256 BYTEA,
    UNIQUE (learner, number));
CREATE INDEX episodes_of_stream ON episodes (stream, number);
CREATE INDEX unlearned ON episodes (learner, position) WHERE partition IS NOT NULL;
CREATE TABLE versions (
    learner BIGINT NOT NULL, version BIGINT NOT NULL, created DOUBLE PRECISION NOT NULL, cause TEXT NOT NULL,
    episode BIGINT, snapshot TEXT NOT NULL, sha256 BYTEA NOT NULL, lessons BIGINT NOT NULL DEFAULT 0, holds BIGINT,
    PRIMARY KEY (learner, version));
CREATE TABLE qualities (
    learner BIGINT NOT NULL, version BIGINT NOT NULL, created DOUBLE PRECISION NOT NULL, quality TEXT NOT NULL,
    PRIMARY KEY (learner, version));
CREATE TABLE snapshots (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, learner BIGINT NOT NULL, name TEXT NOT NULL,
    version BIGINT NOT NULL, episodes BIGINT NOT NULL, classes TEXT NOT NULL, origin TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL, size BIGINT NOT NULL, sha256 BYTEA NOT NULL, note TEXT NOT NULL,
    damaged INTEGER NOT NULL DEFAULT 0, learned_before BIGINT NOT NULL DEFAULT 0, UNIQUE (learner, name));
CREATE TABLE corruption_events (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, time DOUBLE PRECISION NOT NULL, learner TEXT NOT NULL,
    snapshot TEXT NOT NULL, lost BIGINT NOT NULL, serving BIGINT NOT NULL, detail TEXT NOT NULL);
"""

_SECOND = """
CREATE TABLE cluster_servers (      -- who is there (board.py)
    node TEXT PRIMARY KEY, owner TEXT NOT NULL, address TEXT NOT NULL, http TEXT NOT NULL);
CREATE TABLE cluster_placements (   -- who should own and follow which learner
    uid TEXT PRIMARY KEY, node TEXT NOT NULL, followers TEXT[] NOT NULL);
CREATE TABLE cluster_coordinator (  -- one row: who says so, and until when if it is not heard of again
    one BOOLEAN PRIMARY KEY, holder TEXT NOT NULL, until TIMESTAMPTZ NOT NULL);
"""

MIGRATIONS = (_FIRST, _SECOND)
"""The n-th brings a database from version n-1 to n."""


async def migrate(session: AsyncSession) -> None:
    """Bring the tables to the newest version, in one transaction; a database of a later server is refused."""
    async with session.transaction():
        await session.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))  # servers may start together
        await session.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
        row = await (await session.execute("SELECT version FROM schema_version")).fetchone()
        found = int(row[0]) if row is not None else 0
        if found > len(MIGRATIONS):
            raise UnsupportedFormatError(
                f"the database has version {found} of the tables, this server knows {len(MIGRATIONS)}: "
                "start the server that wrote it"
            )
        for migration in MIGRATIONS[found:]:
            await session.execute(migration.encode())
        if row is None:
            await session.execute("INSERT INTO schema_version VALUES (%s)", (len(MIGRATIONS),))
        elif found < len(MIGRATIONS):
            await session.execute("UPDATE schema_version SET version = %s", (len(MIGRATIONS),))
