"""The committed stubs are those of the protos."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROTO_ROOT = ROOT / "proto"
MODULES = sorted(
    ".".join(path.relative_to(PROTO_ROOT).with_suffix("").parts) for path in PROTO_ROOT.glob("sharp/**/*_pb2*.py")
)
FOREIGN = "{'torch', 'numpy', 'sharp_server', 'sharp_engine', 'sharp.inference'}"


def check(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the generator with --check on the protos under `root`."""
    command = [sys.executable, str(PROTO_ROOT / "generate.py"), "--check", "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def copied_protos(tmp_path: Path) -> Path:
    """Copy protos and stubs to where a test may spoil them."""
    shutil.copytree(PROTO_ROOT, tmp_path / "proto", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "proto"


def test_committed_stubs_are_exactly_what_the_generator_writes() -> None:
    result = check(PROTO_ROOT)
    assert result.returncode == 0, result.stderr


def test_check_fails_and_names_the_stub_when_a_proto_has_changed(copied_protos: Path) -> None:
    proto = copied_protos / "sharp/v1/label.proto"
    proto.write_text(proto.read_text(encoding="utf-8").replace("int64 integer = 2;", "int64 integer = 3;"), "utf-8")
    result = check(copied_protos)
    assert result.returncode == 1
    assert "different: sharp/v1/label_pb2.py\n" in result.stderr


def test_check_fails_when_a_stub_is_missing_or_left_over(copied_protos: Path) -> None:
    (copied_protos / "sharp/v1/label_pb2.pyi").rename(copied_protos / "sharp/v1/gone_pb2.pyi")
    result = check(copied_protos)
    assert result.returncode == 1
    assert "missing: sharp/v1/label_pb2.pyi\n" in result.stderr
    assert "left over: sharp/v1/gone_pb2.pyi\n" in result.stderr


def test_check_fails_with_the_place_when_a_proto_is_not_valid(copied_protos: Path) -> None:
    (copied_protos / "sharp/v1/broken.proto").write_text('syntax = "proto3";\nmessage {}\n', encoding="utf-8")
    result = check(copied_protos)
    assert result.returncode == 1
    assert "sharp/v1/broken.proto:2" in result.stderr
    assert "Traceback" not in result.stderr


def test_generator_fixes_what_check_complains_about(copied_protos: Path) -> None:
    (copied_protos / "sharp/v1/label_pb2.pyi").rename(copied_protos / "sharp/v1/gone_pb2.pyi")
    command = [sys.executable, str(PROTO_ROOT / "generate.py"), "--root", str(copied_protos)]
    subprocess.run(command, capture_output=True, check=True)
    assert check(copied_protos).returncode == 0
    assert not (copied_protos / "sharp/v1/gone_pb2.pyi").exists()


@pytest.mark.parametrize("module", MODULES)
def test_every_stub_imports_with_the_installed_protobuf_and_grpc(module: str) -> None:
    importlib.import_module(module)


@pytest.mark.parametrize("module", [module for module in MODULES if module.endswith("_grpc")])
def test_importing_the_stub_of_a_service_is_enough_for_reflection_to_find_it(module: str) -> None:
    proto = module.replace(".", "/").removesuffix("_pb2_grpc") + ".proto"
    program = (
        f"import {module}\nfrom google.protobuf import descriptor_pool as p\np.Default().FindFileByName('{proto}')"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_importing_sharp_v1_loads_neither_heavy_packages_nor_the_open_inference_protocol() -> None:
    modules = ", ".join(module for module in MODULES if module.startswith("sharp.v1."))
    program = f"import sys, {modules}\nassert not {FOREIGN} & set(sys.modules), sorted({FOREIGN} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
