"""Who may have killed the teacher: what it was at when it died, one arrival at a time once there is a suspicion.

Whatever the teacher died of several times in a row is left out: a lesson whose call is still open is refused, and what
was acknowledged stays in the journal. Nothing is tried without end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_DEATHS = 3
"""In a row, at the same thing."""
_VERSION = -1
"""Stands for the version itself: loading it, or saying what is known."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 600.0


class Suspects:
    """Of one learner."""

    def __init__(self) -> None:
        self._deaths: Counter[int] = Counter()
        self._pause = _FIRST_PAUSE
        self.careful = False
        """Whether arrivals are to be taught one by one, so that it shows which it is."""
        self.left_out: set[int] = set()
        """Places of arrivals that are not taught any more."""

    def accuse(self, places: Sequence[int]) -> int | None:
        """The teacher died over these arrivals, or over the version alone; gives the one that is left out from now."""
        if len(places) > 1:
            self.careful = True
            return None
        place = places[0] if places else _VERSION
        self._deaths[place] += 1
        if place == _VERSION or self._deaths[place] < _DEATHS:
            return None
        self.left_out.add(place)
        return place

    def acquit(self, places: Sequence[int]) -> None:
        """These were taught."""
        for place in places:
            self._deaths.pop(place, None)

    def acquit_all(self) -> None:
        """Everything up to now was taught, and the front has what is known."""
        self._deaths.clear()
        self.careful, self._pause = False, _FIRST_PAUSE

    @property
    def hopeless(self) -> bool:
        """Whether the teacher can't even have the version, for now."""
        return self._deaths[_VERSION] >= _DEATHS

    def pause(self) -> float:
        """Seconds before it is worth another try, ever more."""
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        del self._deaths[_VERSION]
        return pause
