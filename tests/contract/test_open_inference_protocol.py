"""The Open Inference Protocol is on the wire as stock clients know it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from sharp.inference import open_inference_pb2

FILE = open_inference_pb2.DESCRIPTOR

# Per message: name, number and type of each field, as published.
PUBLISHED = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live=1:bool",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready=1:bool",
    "ModelReadyRequest": "name=1:string version=2:string",
    "ModelReadyResponse": "ready=1:bool",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name=1:string version=2:string extensions=3:string*",
    "ModelMetadataRequest": "name=1:string version=2:string",
    "ModelMetadataResponse": (
        "name=1:string versions=2:string* platform=3:string inputs=4:TensorMetadata* outputs=5:TensorMetadata*"
    ),
    "ModelMetadataResponse.TensorMetadata": "name=1:string datatype=2:string shape=3:int64*",
    "ModelInferRequest": (
        "model_name=1:string model_version=2:string id=3:string parameters=4:ParametersEntry* "
        "inputs=5:InferInputTensor* outputs=6:InferRequestedOutputTensor* raw_input_contents=7:bytes*"
    ),
    "ModelInferRequest.InferInputTensor": (
        "name=1:string datatype=2:string shape=3:int64* parameters=4:ParametersEntry* contents=5:InferTensorContents"
    ),
    "ModelInferRequest.InferRequestedOutputTensor": "name=1:string parameters=2:ParametersEntry*",
    "ModelInferResponse": (
        "model_name=1:string model_version=2:string id=3:string parameters=4:ParametersEntry* "
        "outputs=5:InferOutputTensor* raw_output_contents=6:bytes*"
    ),
    "ModelInferResponse.InferOutputTensor": (
        "name=1:string datatype=2:string shape=3:int64* parameters=4:ParametersEntry* contents=5:InferTensorContents"
    ),
    "InferParameter": (
        "bool_param=1:bool int64_param=2:int64 string_param=3:string double_param=4:double uint64_param=5:uint64"
    ),
    "InferTensorContents": (
        "bool_contents=1:bool* int_contents=2:int32* int64_contents=3:int64* uint_contents=4:uint32* "
        "uint64_contents=5:uint64* fp32_contents=6:float* fp64_contents=7:double* bytes_contents=8:bytes*"
    ),
}
METHODS = ["ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer"]
SCALARS = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
}


def described(message: Descriptor) -> str:
    """Write the fields of a message in the form of the table above."""
    fields = []
    for field in message.fields:
        kind = field.message_type.name if field.message_type is not None else SCALARS[field.type]
        fields.append(f"{field.name}={field.number}:{kind}{'*' if field.is_repeated else ''}")
    return " ".join(fields)


def written_messages(messages: list[Descriptor], prefix: str = "") -> Iterator[str]:
    """Yield the names of all messages and messages within, entries of maps left out."""
    for message in messages:
        if not message.GetOptions().map_entry:
            yield prefix + message.name
            yield from written_messages(list(message.nested_types), f"{prefix}{message.name}.")


@pytest.mark.parametrize("name", PUBLISHED)
def test_message_has_the_published_fields_numbers_and_types(name: str) -> None:
    message: Descriptor = FILE.pool.FindMessageTypeByName(f"inference.{name}")
    assert described(message) == PUBLISHED[name]


def test_there_are_no_messages_but_the_published_ones() -> None:
    assert set(written_messages(list(FILE.message_types_by_name.values()))) == set(PUBLISHED)


def test_service_has_the_published_name_and_methods() -> None:
    service = FILE.services_by_name["GRPCInferenceService"]
    assert service.full_name == "inference.GRPCInferenceService"
    assert [method.name for method in service.methods] == METHODS
    for method in service.methods:
        assert method.input_type.full_name == f"inference.{method.name}Request"
        assert method.output_type.full_name == f"inference.{method.name}Response"
        assert not method.client_streaming
        assert not method.server_streaming
