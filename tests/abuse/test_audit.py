"""An audit that could look at nothing must not look like one that found nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.abuse.audit import NOT_AUDITED, VULNERABLE, requirements, verdict

SOUND = {"name": "a", "version": "1", "vulns": []}
FLAWED = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("report", "code", "words"),
    [
        ({"dependencies": [SOUND]}, 0, "all 1 installed"),
        ({"dependencies": [SOUND, FLAWED]}, VULNERABLE, "CVE-1; fixed in 3"),
        ({"dependencies": [SKIPPED, SKIPPED]}, NOT_AUDITED, "NOT AUDITED"),
        ({"dependencies": [SOUND, SKIPPED]}, NOT_AUDITED, "1 of 2"),
        ({"dependencies": [FLAWED, SKIPPED]}, VULNERABLE, "1 of 2"),
        (None, NOT_AUDITED, "no network"),
    ],
)
def test_only_an_audit_of_everything_that_finds_nothing_succeeds(report: Any, code: int, words: str) -> None:
    wanted = [str(i) for i in range(len(report["dependencies"]) if report else 5)]
    found, lines = verdict(wanted, report, "no network")
    assert found == code and words in "\n".join(lines)


def test_every_installed_package_but_ours_is_asked_about_by_its_public_version() -> None:
    wanted = requirements()
    names = [line.partition("==")[0] for line in wanted]
    assert {"grpcio", "torch", "protobuf", "safetensors"} <= set(names) and "sharp-serve" not in names
    assert not any("+" in line for line in wanted) and len(set(names)) == len(names)
