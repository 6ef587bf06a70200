"""An audit that could look at nothing must not look like one that found nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.abuse.audit import NOT_AUDITED, VULNERABLE, explanations, requirements, verdict

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


@pytest.mark.parametrize("name", ["PYSEC-1", "CVE-1"])
def test_what_is_explained_is_told_and_is_no_failure_in_that_package_alone(name: str) -> None:
    report = {"dependencies": [FLAWED]}
    found, lines = verdict(["b==2"], report, "", {name: {"package": "b", "why": "it is never called"}})
    assert found == 0 and "explained: it is never called" in lines[0]
    found, lines = verdict(["b==2"], report, "", {name: {"package": "other", "why": "it is never called"}})
    assert found == VULNERABLE and f"{name} is explained and no longer reported" in lines


def test_every_explanation_names_a_package_and_a_reason() -> None:
    assert all(set(entry) == {"package", "why"} and len(entry["why"]) > 20 for entry in explanations().values())


def test_every_installed_package_but_ours_is_asked_about_by_its_public_version() -> None:
    wanted = requirements()
    names = [line.partition("==")[0] for line in wanted]
    assert {"grpcio", "torch", "protobuf", "safetensors"} <= set(names) and "sharp-serve" not in names
    assert not any("+" in line for line in wanted) and len(set(names)) == len(names)
