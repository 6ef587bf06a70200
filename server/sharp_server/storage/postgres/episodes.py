"""What the journal does with closed episodes: learned, tried again, parked, discarded. In a transaction.

The transaction that records a version is the one that drops the raw examples it was learned from: there is no moment at
which an episode is both learned and still to be learned, or neither.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from sharp_server.errors import RpcError
from sharp_server.storage import raw_examples
from sharp_server.storage.postgres import classes, learners, lessons, partitions, schema, versions
from sharp_server.storage.postgres.episode_rows import episodes_where
from sharp_server.storage.postgres.transaction import Transaction
from sharp_server.storage.records import EpisodeRow, Forgotten, NewVersion, Published, Relabelling


async def publish(
    transaction: Transaction,
    version: NewVersion,
    forgotten: str | None,
    back: Sequence[str],
    relabelling: Relabelling | None = None,
) -> Published:
    """Record a version; in the same transaction a class is forgotten, renamed or merged, others come back, if asked."""
    learner = version.snapshot.learner
    await transaction.own(learner)
    await drop_phases(transaction, learner)
    removed = await forget(transaction, learner, forgotten) if forgotten is not None else None
    relabelled = await classes.relabel(transaction, relabelling) if relabelling is not None else 0
    await learners.remember(transaction, learner, back)
    if version.lessons:
        await lessons.take_in(transaction, learner, version.lessons)
    else:
        await lessons.lessons_first(transaction, learner)
    return Published(await versions.publish(transaction, version), removed, relabelled)


async def learned(transaction: Transaction, episode: int, version: NewVersion, statistics: bytes) -> Published:
    """Record the version that holds an episode and drop its examples."""
    learner = version.snapshot.learner
    await transaction.own(learner)
    row = await transaction.row(
        "SELECT partition FROM episodes WHERE id = %s AND learner = %s AND state = 'waiting'", episode, learner
    )
    if row is None:
        raise RpcError("LEARNER_BUSY", "the episode was changed while it was learned")
    await transaction.run(
        "UPDATE episodes SET state = 'learned', version = %s, episodes_learned = %s, statistics = %s, "
        "finished_at = %s, reason = NULL, detail = NULL, partition = NULL WHERE id = %s",
        *(version.version, version.episodes, statistics, time.time(), episode),
    )
    await partitions.drop(transaction, row[0])
    await drop_phases(transaction, learner)
    await lessons.take_in(transaction, learner, version.lessons)
    await lessons.lessons_first(transaction, learner)
    return Published(await versions.publish(transaction, version))


async def begin(transaction: Transaction, episode: int) -> int:
    """A try begins; returns how many began since a phase was last finished."""
    return await _counted(transaction, episode, "starts = starts + 1", "starts")


async def advance(transaction: Transaction, episode: int, phase_sha256: bytes | None = None) -> None:
    """A phase was finished, so whatever kills the process lies ahead of it, or was chance."""
    if await transaction.own_episode(episode) is not None:
        await transaction.run(
            "UPDATE episodes SET starts = 0, attempts = 0, phase_sha256 = coalesce(%s, phase_sha256) "
            "WHERE id = %s AND state = 'waiting'",
            *(phase_sha256, episode),
        )


async def drop_phases(transaction: Transaction, learner: int) -> None:
    """What a learner's episodes are learned from has changed: none goes on from a finished phase."""
    await transaction.run(
        "UPDATE episodes SET phase_sha256 = NULL WHERE learner = %s AND phase_sha256 IS NOT NULL", learner
    )


async def excuse(transaction: Transaction, episode: int) -> None:
    """A try came to nothing for no fault of the episode."""
    if await transaction.own_episode(episode) is not None:
        await transaction.run("UPDATE episodes SET starts = 0 WHERE id = %s", episode)


async def fail(transaction: Transaction, episode: int, start_over: bool = False) -> int:
    """A try failed; returns how many have."""
    phase = ", phase_sha256 = NULL" if start_over else ""
    return await _counted(transaction, episode, f"attempts = attempts + 1, starts = 0{phase}", "attempts")


async def _counted(transaction: Transaction, episode: int, change: str, column: str) -> int:
    await _own(transaction, episode)
    query = f"UPDATE episodes SET {change} WHERE id = %s RETURNING {column}"
    return int(await transaction.value(query, episode))


async def _own(transaction: Transaction, episode: int) -> int:
    learner = await transaction.own_episode(episode)
    if learner is None:
        raise RpcError("EPISODE_NOT_FOUND", "the episode's learner was deleted")
    return learner


async def park(transaction: Transaction, episode: int, reason: str, detail: str) -> EpisodeRow:
    """Set an episode aside with its reason."""
    learner = await _own(transaction, episode)
    await transaction.run(
        "UPDATE episodes SET state = 'parked', reason = %s, detail = %s, finished_at = %s, phase_sha256 = NULL "
        "WHERE id = %s AND state = 'waiting'",
        *(reason, detail.replace("\0", ""), time.time(), episode),
    )
    await lessons.lessons_first(transaction, learner)
    await transaction.notify(learner, "lesson", 0)
    return (await episodes_where(transaction, "e.id = %s", episode))[0]


async def parked(transaction: Transaction, learner: int, number: int) -> EpisodeRow:
    """A parked episode by its number, or the refusal that fits."""
    known = number <= schema.LARGEST
    found = await episodes_where(transaction, "e.learner = %s AND e.number = %s", learner, number) if known else []
    if not found or found[0].state in ("learned", "discarded"):
        raise RpcError("EPISODE_NOT_FOUND", f"no unlearned episode {number}", episode=number, fields=("episode",))
    if found[0].state != "parked":
        raise RpcError("EPISODE_NOT_PARKED", f"episode {number} is waiting or being learned", episode=number)
    return found[0]


async def retry(transaction: Transaction, learner: int, number: int) -> EpisodeRow:
    """Put a parked episode at the end of the queue."""
    await transaction.own(learner)
    episode = await parked(transaction, learner, number)
    position = await transaction.value(
        "UPDATE learners SET next_position = next_position + 1 WHERE id = %s RETURNING next_position - 1", learner
    )
    await transaction.run(
        "UPDATE episodes SET state = 'waiting', attempts = 0, starts = 0, reason = NULL, detail = NULL, "
        "finished_at = NULL, position = %s WHERE id = %s",
        *(position, episode.id),
    )
    await lessons.lessons_first(transaction, learner)
    await transaction.notify(learner, "lesson", 0)
    return (await episodes_where(transaction, "e.id = %s", episode.id))[0]


async def discard(transaction: Transaction, learner: int, number: int) -> EpisodeRow:
    """Give up a parked episode and drop its examples; returns it as it was."""
    await transaction.own(learner)
    episode = await parked(transaction, learner, number)
    await partitions.drop(
        transaction, await transaction.value("SELECT partition FROM episodes WHERE id = %s", episode.id)
    )
    await _discard(transaction, episode.id, "operator")
    return episode


async def _discard(transaction: Transaction, episode: int, reason: str) -> None:
    await transaction.run(
        "UPDATE episodes SET state = 'discarded', reason = %s, finished_at = %s, partition = NULL WHERE id = %s",
        *(reason, time.time(), episode),
    )


async def forget(transaction: Transaction, learner: int, label: str) -> Forgotten:
    """Remove a class (label as JSON) from everything not learned yet, and remember that it was forgotten."""
    await transaction.own(learner)
    await drop_phases(transaction, learner)
    ordinal = await classes.ordinal_of(transaction, learner, label)
    await lessons.lessons_first(transaction, learner)
    names = await classes.forget_names(transaction, learner, label)
    await versions.forget_in_qualities(transaction, learner, names)
    await transaction.notify(learner, "lesson", 0)
    if ordinal is None:
        return Forgotten(0, 0, 0, ())
    await transaction.run("DELETE FROM classes WHERE learner = %s AND label = %s", learner, label)
    removed, freed, opened = 0, 0, 0
    discarded: list[EpisodeRow] = []
    for place in await classes.held(transaction, learner):
        new, gone, nbytes = await _rewrite(transaction, place.partition, ordinal)
        removed, freed = removed + gone, freed + nbytes
        if place.episode is None:
            opened += gone
            await transaction.run(
                "UPDATE streams SET open_examples = open_examples - %s, partition = %s WHERE id = %s",
                *(gone, new, place.stream),
            )
        else:
            discarded += await _rewritten(transaction, learner, place.episode, new, gone)
    removed += await lessons.forget(transaction, learner, ordinal)
    return Forgotten(removed, freed, opened, tuple(discarded))


async def _rewrite(transaction: Transaction, partition: int, ordinal: int) -> tuple[int, int, int]:
    """Write a partition anew without a class; gives the new one, and the examples and bytes that went."""
    removed, freed = 0, 0
    new = await partitions.create(transaction)
    for piece in await partitions.ordinals(transaction, partition):
        y, x = (await partitions.examples(transaction, partition, [piece]))[piece]
        left = raw_examples.without_class(y, x, ordinal)
        if left is not None:
            removed, freed = removed + left.gone, freed + len(x) + len(y) - left.bytes
            y, x = left.y, left.x
            row = await transaction.row("SELECT first, indices FROM batch_slices WHERE id = %s", piece)
            assert row is not None
            await transaction.run(
                "UPDATE batch_slices SET kept = %s, indices = %b, bytes = %s WHERE id = %s",
                *(left.kept, left.indices(*row), left.bytes, piece),
            )
        if left is None or left.kept:
            await partitions.insert(transaction, new, piece, y, x)
    await partitions.drop(transaction, partition)
    return new, removed, freed


async def _rewritten(
    transaction: Transaction, learner: int, episode: int, partition: int, gone: int
) -> list[EpisodeRow]:
    """An episode lost examples; gives it if none is left: it is discarded."""
    await transaction.run("UPDATE episodes SET partition = %s WHERE id = %s", partition, episode)
    if not gone:
        return []
    ordinals = await partitions.ordinals(transaction, partition)
    await transaction.run(
        "UPDATE episodes e SET examples = t.kept, bytes = t.bytes FROM (SELECT coalesce(sum(kept), 0) AS kept, "
        "coalesce(sum(bytes), 0) AS bytes FROM batch_slices WHERE episode = %s) AS t WHERE e.id = %s",
        *(episode, episode),
    )
    await classes.describe(transaction, learner, episode, ordinals.values())
    if ordinals:
        return []
    discarded = await episodes_where(transaction, "e.id = %s", episode)
    await partitions.drop(transaction, partition)
    await _discard(transaction, episode, "forgotten")
    return discarded


async def relabel(transaction: Transaction, change: Relabelling) -> int:
    """Rename or merge a class in everything not learned yet; returns the examples that changed."""
    await transaction.own(change.learner)
    await drop_phases(transaction, change.learner)
    return await classes.relabel(transaction, change)
