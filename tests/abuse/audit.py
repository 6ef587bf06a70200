"""`make audit`: every installed package against a public list of known vulnerabilities, with pip-audit.

pip-audit calls it a success when it could ask about nothing at all. This says what was really looked at, and ends with
0 only if that was everything: 1 where a vulnerability is known that `explained.toml` does not explain, 3 where the list
could not be asked.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

OURS = "sharp-serve"
VULNERABLE, NOT_AUDITED = 1, 3
EXPLAINED = Path(__file__).with_name("explained.toml")
_SECONDS = "15"
_NOTHING: Mapping[str, Mapping[str, str]] = MappingProxyType({})


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


def explanations() -> dict[str, dict[str, str]]:
    """By the vulnerability's id: the package that has it, and why it doesn't matter here."""
    return tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))


def verdict(
    wanted: list[str],
    report: dict[str, Any] | None,
    why: str = "",
    explained: Mapping[str, Mapping[str, str]] = _NOTHING,
) -> tuple[int, list[str]]:
    """The exit code, and what is told."""
    if report is None:
        return NOT_AUDITED, [f"NOT AUDITED: the advisory service can't be asked from here ({why})"]
    packages = report.get("dependencies", [])
    asked = [package for package in packages if "skip_reason" not in package]
    lines, vulnerable, used = [], False, set()
    for package in asked:
        for flaw in package.get("vulns", []):
            names = [flaw["id"], *flaw.get("aliases", [])]
            reason = next((name for name in names if explained.get(name, {}).get("package") == package["name"]), None)
            line = f"{package['name']} {package['version']}: {', '.join(names)}"
            if reason is None:
                vulnerable = True
                lines.append(f"{line}; fixed in {', '.join(flaw.get('fix_versions', [])) or 'no version yet'}")
            else:
                used.add(reason)
                lines.append(f"{line}; explained: {explained[reason]['why']}")
    lines += [f"{name} is explained and no longer reported" for name in explained if name not in used]
    missed = len(wanted) - len(asked)
    if missed and not asked:
        lines.append(
            f"NOT AUDITED: the advisory service knows none of {len(wanted)} packages, or can't be asked from here"
        )
    elif missed:
        lines.append(f"NOT AUDITED: {missed} of {len(wanted)} packages could not be asked about")
    else:
        lines.append(f"all {len(asked)} installed packages were audited")
    if vulnerable:
        return VULNERABLE, lines
    return (NOT_AUDITED if missed else 0), lines


def main() -> int:
    """Audit this environment; returns the exit code."""
    wanted = requirements()
    code, lines = verdict(wanted, *audit(wanted), explanations())
    sys.stdout.write("\n".join(lines) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
