"""Every element of the protos is explained, and the errors that comments name are those that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pb2

from sharp.v1 import errors_pb2

PROTO_ROOT = Path(__file__).resolve().parents[2] / "proto"
CODES = "|".join(code.name for code in grpc.StatusCode if code is not grpc.StatusCode.OK)
NAMED_ERRORS = re.compile(rf"\b({CODES})\s+([A-Z]+(?:_[A-Z]+)+(?:,\s+[A-Z]+(?:_[A-Z]+)+)*)")
# Field numbers in descriptor.proto, from which the paths of comments are made.
FILE_MESSAGES, FILE_ENUMS, FILE_SERVICES, FILE_EXTENSIONS = 4, 5, 6, 7
MESSAGE_FIELDS, MESSAGE_MESSAGES, MESSAGE_ENUMS, MESSAGE_ONEOFS = 2, 3, 4, 8
ENUM_VALUES = 2
SERVICE_METHODS = 2


@dataclass(frozen=True)
class Element:
    """A service, method, message, field, oneof, enum or enum value, with the comment above it."""

    kind: str
    """What it is, e.g. "method"."""
    name: str
    """Its name with the file's, e.g. "sharp/v1/admin.proto Admin.GetLearner"."""
    comment: str
    """Its comment without slashes, lines joined by one space. Empty if there is none."""


class CommentedFile:
    """Walks one file descriptor and pairs its elements with their comments."""

    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        """Take a descriptor that was compiled with source info."""
        self.file = file
        self.comments = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}

    def element(self, kind: str, name: str, path: tuple[int, ...]) -> Element:
        """Make the element at `path`."""
        return Element(kind, f"{self.file.name} {name}", " ".join(self.comments.get(path, "").split()))

    def elements(self) -> Iterator[Element]:
        """Yield everything in the file that wants a comment."""
        for i, message in enumerate(self.file.message_type):
            yield from self.of_message(message, message.name, (FILE_MESSAGES, i))
        for i, enum in enumerate(self.file.enum_type):
            yield from self.of_enum(enum, enum.name, (FILE_ENUMS, i))
        for i, extension in enumerate(self.file.extension):
            yield self.element("extension", extension.name, (FILE_EXTENSIONS, i))
        for i, service in enumerate(self.file.service):
            yield self.element("service", service.name, (FILE_SERVICES, i))
            for j, method in enumerate(service.method):
                path = (FILE_SERVICES, i, SERVICE_METHODS, j)
                yield self.element("method", f"{service.name}.{method.name}", path)

    def of_message(
        self, message: descriptor_pb2.DescriptorProto, name: str, path: tuple[int, ...]
    ) -> Iterator[Element]:
        """Yield a message and what is in it; entries of maps are not written by anyone, and left out."""
        if message.options.map_entry:
            return
        yield self.element("message", name, path)
        for i, field in enumerate(message.field):
            yield self.element("field", f"{name}.{field.name}", (*path, MESSAGE_FIELDS, i))
        synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
        for i, oneof in enumerate(message.oneof_decl):
            if i not in synthetic:
                yield self.element("oneof", f"{name}.{oneof.name}", (*path, MESSAGE_ONEOFS, i))
        for i, inner in enumerate(message.nested_type):
            yield from self.of_message(inner, f"{name}.{inner.name}", (*path, MESSAGE_MESSAGES, i))
        for i, enum in enumerate(message.enum_type):
            yield from self.of_enum(enum, f"{name}.{enum.name}", (*path, MESSAGE_ENUMS, i))

    def of_enum(self, enum: descriptor_pb2.EnumDescriptorProto, name: str, path: tuple[int, ...]) -> Iterator[Element]:
        """Yield an enum and its values."""
        yield self.element("enum", name, path)
        for i, value in enumerate(enum.value):
            yield self.element("enum value", f"{name}.{value.name}", (*path, ENUM_VALUES, i))


@pytest.fixture(scope="module")
def elements(tmp_path_factory: pytest.TempPathFactory) -> list[Element]:
    """Compile all protos with their comments, and collect their elements."""
    out = tmp_path_factory.mktemp("descriptors") / "all.binpb"
    files = sorted(path.relative_to(PROTO_ROOT).as_posix() for path in PROTO_ROOT.glob("sharp/**/*.proto"))
    options = [f"-I{PROTO_ROOT}", "--include_source_info", f"--descriptor_set_out={out}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, *files], check=True, capture_output=True)
    descriptors = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    assert {file.name for file in descriptors.file} == set(files)
    return [element for file in descriptors.file for element in CommentedFile(file).elements()]


def named_errors(comment: str) -> set[tuple[str, str]]:
    """Find the errors that a comment names, as pairs of code and reason."""
    return {(code, reason) for code, reasons in NAMED_ERRORS.findall(comment) for reason in re.split(r",\s+", reasons)}


def existing_errors() -> set[tuple[str, str]]:
    """Collect the errors that exist, as pairs of code and reason."""
    values = errors_pb2.ErrorReason.DESCRIPTOR.values
    return {(value.GetOptions().Extensions[errors_pb2.canonical_code], value.name) for value in values if value.number}


def test_every_element_has_a_comment_that_is_a_sentence(elements: list[Element]) -> None:
    kinds = {element.kind for element in elements}
    assert kinds == {"service", "method", "message", "field", "oneof", "enum", "enum value", "extension"}
    ending = re.compile(r"(?:[.})]|[A-Z]+_[A-Z]+)$")
    bare = [element.name for element in elements if not ending.search(element.comment)]
    assert not bare


def test_every_method_names_its_errors(elements: list[Element]) -> None:
    silent = [e.name for e in elements if e.kind == "method" and not re.search(r"Errors\b.*:", e.comment)]
    assert not silent


def test_every_method_says_whether_it_may_be_repeated(elements: list[Element]) -> None:
    named = re.compile(r"idempotent|repeat|no side effects", re.IGNORECASE)
    silent = [e.name for e in elements if e.kind == "method" and not named.search(e.comment)]
    assert not silent


def test_every_service_says_how_to_drive_it(elements: list[Element]) -> None:
    silent = [e.name for e in elements if e.kind == "service" and "How to drive it." not in e.comment]
    assert not silent


def test_every_error_that_a_comment_names_exists_with_that_code(elements: list[Element]) -> None:
    wrong = {e.name: named_errors(e.comment) - existing_errors() for e in elements}
    assert not {name: errors for name, errors in wrong.items() if errors}


def test_every_error_that_exists_is_named_by_a_service_or_method(elements: list[Element]) -> None:
    named = {error for e in elements if e.kind in {"service", "method"} for error in named_errors(e.comment)}
    assert not existing_errors() - named
