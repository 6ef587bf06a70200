"""Write the Python stubs of all protos beside them, or check that they are up to date.

    python proto/generate.py            # write
    python proto/generate.py --check    # compare; exit 1 and show the difference if there is one

Needs the development dependencies (grpcio-tools and mypy-protobuf, at the versions pinned there: the stubs carry the
version they were made with).
"""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

PROTO_ROOT = Path(__file__).resolve().parent
"""The folder that imports in protos, and in stubs, start from."""

SHOWN_LINES = 20
"""How much of each difference `--check` shows."""

_SERVICE = re.compile(r"^service\s+\w+", re.MULTILINE)
_STUB_PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


class GenerationError(Exception):
    """The stubs could not be made: a tool is missing, or a proto is not valid."""


def protos(root: Path) -> list[str]:
    """List the paths of all protos under `root`, relative to it, sorted."""
    return sorted(path.relative_to(root).as_posix() for path in root.glob("sharp/**/*.proto"))


def stubs(root: Path) -> set[str]:
    """Collect the paths of all stubs under `root`, relative to it."""
    found = (path for pattern in _STUB_PATTERNS for path in root.glob(f"sharp/**/{pattern}"))
    return {path.relative_to(root).as_posix() for path in found}


def well_known_protos() -> Path:
    """Find the folder with google/protobuf/*.proto, which the compiler's package brings along."""
    spec = find_spec("grpc_tools")
    if spec is None or spec.origin is None:
        raise GenerationError("grpcio-tools is not installed: pip install -e '.[dev]'")
    return Path(spec.origin).parent / "_proto"


def typing_plugin(name: str) -> str:
    """Find a plugin that types the stubs, in the environment of this interpreter first, as an option of protoc."""
    program = f"protoc-gen-{name}"
    found = shutil.which(program, path=sysconfig.get_path("scripts")) or shutil.which(program)
    if found is None:
        raise GenerationError("mypy-protobuf is not installed: pip install -e '.[dev]'")
    return f"--plugin={program}={found}"


def run_protoc(root: Path, files: Sequence[str], options: Sequence[str]) -> None:
    """Run the protocol compiler on `files` (relative to `root`)."""
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"-I{well_known_protos()}", *options, *files]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise GenerationError(result.stderr.strip() or f"protoc failed with code {result.returncode}")


def generate(root: Path, out: Path) -> None:
    """Write the stubs of all protos under `root` into `out`, which may be `root` itself.

    Messages get `_pb2.py` and `_pb2.pyi`; files that define a service also get `_pb2_grpc.py` and `_pb2_grpc.pyi`.
    The types come from mypy-protobuf, as protoc's own don't pass mypy's strict mode and know nothing of services; they
    carry the comments of the protos as docstrings.
    """
    files = protos(root)
    services = [file for file in files if _SERVICE.search((root / file).read_text(encoding="utf-8"))]
    run_protoc(root, files, [typing_plugin("mypy"), f"--python_out={out}", f"--mypy_out=quiet:{out}"])
    run_protoc(root, services, [typing_plugin("mypy_grpc"), f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}"])


def differences(committed: Path, fresh: Path) -> list[str]:
    """What is missing, left over or different in the stubs of `committed`, compared with those of `fresh`."""
    found = []
    old, new = stubs(committed), stubs(fresh)
    found += [f"missing: {path}" for path in sorted(new - old)]
    found += [f"left over: {path}" for path in sorted(old - new)]
    for path in sorted(old & new):
        before = (committed / path).read_text(encoding="utf-8")
        after = (fresh / path).read_text(encoding="utf-8")
        if before != after:
            diff = difflib.unified_diff(before.splitlines(), after.splitlines(), path, f"{path} (fresh)", lineterm="")
            shown = [line[:160] for _, line in zip(range(SHOWN_LINES), diff, strict=False)]
            found.append("\n".join([f"different: {path}", *shown]))
    return found


def write(root: Path) -> int:
    """Bring the stubs under `root` up to date, and return how many there are."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        generate(root, fresh)
        for path in stubs(root) - stubs(fresh):
            (root / path).unlink()
        for path in stubs(fresh):
            shutil.copyfile(fresh / path, root / path)
        return len(stubs(fresh))


def check(root: Path) -> list[str]:
    """Compare the stubs under `root` with fresh ones, and return the differences."""
    with tempfile.TemporaryDirectory() as folder:
        generate(root, Path(folder))
        return differences(root, Path(folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code: 0 if all is well, 1 if not."""
    parser = argparse.ArgumentParser(description="Write the Python stubs of the protos, or check them.")
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 if a stub is not up to date")
    parser.add_argument("--root", type=Path, default=PROTO_ROOT, help="folder of the protos (default: this script's)")
    options = parser.parse_args(arguments)
    root: Path = options.root.resolve()
    try:
        if not options.check:
            sys.stdout.write(f"{write(root)} stubs written\n")
            return 0
        found = check(root)
    except GenerationError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if found:
        sys.stderr.write("\n".join([*found, "Stubs are not up to date: run python proto/generate.py"]) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
