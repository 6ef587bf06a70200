"""`make audit`: every installed package against a public list of known vulnerabilities, with pip-audit.

pip-audit calls it a success when it could ask about nothing at all. This says what was really looked at, and ends with
0 only if that was everything: 1 where a vulnerability is known, 3 where the list could not be asked.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

OURS = "sharp-serve"
VULNERABLE, NOT_AUDITED = 1, 3
_SECONDS = "15"


def requirements() -> list[str]:
    """Every installed package with its public version; a build for one machine (`+cpu`) counts as its source."""
    found = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in importlib.metadata.distributions()}
    return sorted(f"{name}=={version.partition('+')[0]}" for name, version in found.items() if name != OURS)


def audit(wanted: list[str]) -> tuple[dict[str, Any] | None, str]:
    """What pip-audit found, as it writes it, or why it could find nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("\n".join(wanted) + "\n", encoding="utf-8")
        argv = ["--requirement", str(file), "--no-deps", "--disable-pip", "--format", "json"]
        argv += ["--progress-spinner", "off", "--timeout", _SECONDS]
        done = subprocess.run([sys.executable, "-m", "pip_audit", *argv], capture_output=True, text=True, check=False)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return None, (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
    return report, ""


def verdict(wanted: list[str], report: dict[str, Any] | None, why: str = "") -> tuple[int, list[str]]:
    """The exit code, and what is told."""
    if report is None:
        return NOT_AUDITED, [f"NOT AUDITED: the advisory service can't be asked from here ({why})"]
    packages = report.get("dependencies", [])
    asked = [package for package in packages if "skip_reason" not in package]
    lines = [
        f"{package['name']} {package['version']}: {', '.join([flaw['id'], *flaw.get('aliases', [])])}"
        f"; fixed in {', '.join(flaw.get('fix_versions', [])) or 'no version yet'}"
        for package in asked
        for flaw in package.get("vulns", [])
    ]
    missed = len(wanted) - len(asked)
    if missed and not asked:
        lines.append(
            f"NOT AUDITED: the advisory service knows none of {len(wanted)} packages, or can't be asked from here"
        )
    elif missed:
        lines.append(f"NOT AUDITED: {missed} of {len(wanted)} packages could not be asked about")
    else:
        lines.append(f"all {len(asked)} installed packages were audited")
    if any(package.get("vulns") for package in asked):
        return VULNERABLE, lines
    return (NOT_AUDITED if missed else 0), lines


def main() -> int:
    """Audit this environment; returns the exit code."""
    wanted = requirements()
    code, lines = verdict(wanted, *audit(wanted))
    sys.stdout.write("\n".join(lines) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
