"""Twenty machines, one lost every hour: even loads, few moves, and nobody without an owner for long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reliability.cluster.simulation import Conditions, measured, simulate

SMALL = Conditions(learners=200, days=1)


def test_loads_stay_even_and_only_what_must_move_does() -> None:
    outcome = simulate(SMALL)
    assert outcome.losses > 10
    assert outcome.largest_load <= -(-200 // 17)  # never more than three machines away at a time
    assert outcome.smallest_load >= 200 // 20
    assert outcome.orphaned <= outcome.losses * outcome.largest_load
    assert outcome.moved <= outcome.losses * 10
    assert outcome.unfollowed == 0


def test_a_learner_waits_for_its_owner_no_longer_than_it_takes_to_notice_and_take_up_one_share() -> None:
    outcome = simulate(SMALL)
    assert outcome.percentile(1.0) <= SMALL.notice + 2 * SMALL.take_up


def test_the_same_seed_gives_the_same_outcome() -> None:
    assert simulate(SMALL) == simulate(SMALL)


def test_parts_come_from_what_was_measured(tmp_path: Path) -> None:
    killed = {"what": "the owner's machine is killed", "seconds_until_owner": 4.5, "seconds_until_learn": 6.0}
    found = {"disasters": [killed], "hand_over_seconds": [0.5, 0.7, 0.6]}
    (tmp_path / "found.json").write_text(json.dumps(found))
    assert measured(tmp_path / "found.json") == pytest.approx({"notice": 4.5, "take_up": 1.5, "hand_over": 2.1})
