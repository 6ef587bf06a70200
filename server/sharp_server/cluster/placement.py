"""Who should own and follow which learner: a pure function of who is there and who has what now.

Owned learners are spread evenly: no server has two more than another. What need not move does not: a learner leaves a
server only if that is gone or has more than its share. The result depends on nothing but its arguments, not even on
their order, so every coordinator says the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

from sharp_server.storage.board import LearnerPlacement


def place(
    learners: Iterable[LearnerPlacement], nodes: Collection[str], replicas: Mapping[str, int]
) -> dict[str, LearnerPlacement]:
    """Where each learner should be, by uid. `replicas`: wanted followers by uid; none: 0."""
    known = sorted(learners, key=lambda learner: learner.uid)
    there = sorted(set(nodes))
    if not there:
        return {learner.uid: LearnerPlacement(learner.uid, None) for learner in known}
    owners = _owners(known, there)
    load = dict.fromkeys(there, 0)
    placed: dict[str, LearnerPlacement] = {}
    for learner in known:
        owner = owners[learner.uid]
        count = min(replicas.get(learner.uid, 0), len(there) - 1)
        kept = sorted({node for node in learner.followers if node in load and node != owner})[:count]
        for node in kept:
            load[node] += 1
        placed[learner.uid] = LearnerPlacement(learner.uid, owner, tuple(kept))
    for learner in known:  # those who stay were counted first
        owner, followers = owners[learner.uid], set(placed[learner.uid].followers)
        count = min(replicas.get(learner.uid, 0), len(there) - 1)
        while len(followers) < count:
            free = (node for node in there if node != owner and node not in followers)
            chosen = min(free, key=lambda node: (load[node], _weight(learner.uid, node)))
            followers.add(chosen)
            load[chosen] += 1
        placed[learner.uid] = LearnerPlacement(learner.uid, owner, tuple(sorted(followers)))
    return placed


def _owners(learners: list[LearnerPlacement], nodes: list[str]) -> dict[str, str]:
    """Everybody keeps what they have up to their share; the rest goes to whoever has least."""
    has: dict[str, list[str]] = {node: [] for node in nodes}
    homeless: list[str] = []
    for learner in learners:
        if learner.owner in has:
            has[learner.owner].append(learner.uid)
        else:
            homeless.append(learner.uid)
    share, larger = divmod(len(learners), len(nodes))
    # The larger shares belong to those who have most now: so fewest have to move.
    for rank, node in enumerate(sorted(nodes, key=lambda node: (-len(has[node]), node))):
        most = share + (rank < larger)
        has[node].sort(key=lambda uid: _weight(uid, node))
        homeless += has[node][most:]
        del has[node][most:]
    for uid in sorted(homeless):
        node = min(nodes, key=lambda node: (len(has[node]), _weight(uid, node)))
        has[node].append(uid)
    return {uid: node for node, uids in has.items() for uid in uids}


def _weight(uid: str, node: str) -> bytes:
    """A number that belongs to the pair, the same everywhere: whoever has to choose spreads what it chooses."""
    return hashlib.blake2b(f"{uid}/{node}".encode(), digest_size=8).digest()
