"""The numbers that classes go by in the journal: met in order, never given twice, durable with the first batch of each.

A class that is forgotten loses its number for good: should it come again, it is another class to the journal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import numpy as np

from sharp_engine import Label
from sharp_server.errors import RpcError
from sharp_server.storage.records import Ordinals


class ClassOrdinals:
    """The classes of one learner that were met and not forgotten."""

    def __init__(self, next_ordinal: int) -> None:
        self._next = next_ordinal
        self._known: dict[Label, int] = {}
        self._durable: set[int] = set()

    def __contains__(self, label: Label) -> bool:
        return label in self._known

    def by_ordinal(self) -> dict[int, Label]:
        """Ordinal → label."""
        return {ordinal: label for label, ordinal in self._known.items()}

    @property
    def next_ordinal(self) -> int:
        """What the next new class gets."""
        return self._next

    def load(self, pairs: Iterable[tuple[int, str]]) -> None:
        """Take up (ordinal, label as JSON) from the journal."""
        for ordinal, text in pairs:
            self._known[json.loads(text)] = ordinal
            self._durable.add(ordinal)

    def number(self, labels: Sequence[Label], limit: int) -> Ordinals:
        """The ordinal of each label; classes met for the first time get the next ones, or are refused together."""
        known = self._known
        if not known.keys() >= set(labels):
            new = [label for label in dict.fromkeys(labels) if label not in known]
            if len(known) + len(new) > limit:
                message = f"the learner would have more than {limit} classes"
                raise RpcError("TOO_MANY_CLASSES", message, limit=limit)
            for label in new:
                self._add(label)
        return np.fromiter(map(known.__getitem__, labels), np.int32, len(labels))

    def _add(self, label: Label) -> int:
        ordinal = self._known[label] = self._next
        self._next += 1
        return ordinal

    def not_durable(self, labels: Iterable[Label]) -> tuple[tuple[int, str], ...]:
        """(ordinal, label as JSON) of those that are not in the journal yet."""
        ordinals = {self._known[label]: label for label in set(labels)}
        return tuple((o, json.dumps(ordinals[o])) for o in sorted(ordinals.keys() - self._durable))

    def made_durable(self, ordinals: Iterable[int]) -> None:
        """They are in the journal."""
        self._durable.update(ordinals)

    def adopt(self, labels: Iterable[Label]) -> list[tuple[int, str]]:
        """Know the classes that a snapshot brought; gives (ordinal, label as JSON) of all of them."""
        return [
            (self._known[label] if label in self._known else self._add(label), json.dumps(label)) for label in labels
        ]

    def reload(self, pairs: Iterable[tuple[int, str]]) -> None:
        """Know what the journal knows, and what is on its way there."""
        on_the_way = {label: ordinal for label, ordinal in self._known.items() if ordinal not in self._durable}
        self._known = {}
        self.load(pairs)
        self._known.update({label: o for label, o in on_the_way.items() if label not in self._known})

    def relabel(self, old: Label, new: Label, merge: bool) -> None:
        """A class has another name from now on, or is part of the class that has it."""
        ordinal = self._known.pop(old)
        if not merge:
            self._known[new] = ordinal

    def forget(self, label: Label) -> int | None:
        """Forget a class; gives the ordinal it had."""
        return self._known.pop(label, None)

    def take_back(self, label: Label, ordinal: int | None) -> None:
        """Forgetting did not come about: the class goes by its number again, also in what has come meanwhile.

        That was given a new one; the journal writes it under the one that it has.
        """
        if ordinal is not None:
            self._known[label] = ordinal
