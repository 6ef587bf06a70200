"""The bills of materials list everything that is locked, to the version and the hash, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

from devtools import lock, sbom


def test_a_bill_lists_exactly_what_the_locks_of_its_image_hold(tmp_path: Path) -> None:
    files = sbom.write(tmp_path)
    assert [file.name for file in files] == ["sbom.json", "sbom-cluster.json"]
    for file in files:
        bill = json.loads(file.read_text(encoding="utf-8"))
        locks = sbom.BILLS[file.name]
        assert bill["bomFormat"] == "CycloneDX" and bill["metadata"]["component"]["name"] == "sharp-serve"
        wanted = {name: version for path in locks for name, version in lock.pins(path).items()}
        assert {entry["name"]: entry["version"] for entry in bill["components"]} == wanted
        hashes = {
            digest["content"]
            for entry in bill["components"]
            for reference in entry["externalReferences"]
            for digest in reference.get("hashes", ())
        }
        locked = "".join(path.read_text(encoding="utf-8") for path in locks)
        assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", locked))
