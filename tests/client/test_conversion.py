"""What users have becomes what the wire carries, and comes back the same."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

import sharp_client
from sharp.v1 import label_pb2, tensor_pb2
from sharp_client import _inputs, _labels
from sharp_client.testing._examples import read_examples

TEXTS = st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=20)
NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20)
BATCHES = hnp.arrays(
    dtype=st.sampled_from([np.uint8, np.float32]),
    shape=st.one_of(
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), hnp.array_shapes(min_dims=4, max_dims=4, max_side=5)
    ),
    elements={"allow_nan": False, "allow_infinity": False},
)


def decode(inputs: tensor_pb2.Inputs) -> np.ndarray[Any, Any]:
    dtype = {tensor_pb2.DTYPE_UINT8: np.uint8, tensor_pb2.DTYPE_FLOAT32: np.float32}[inputs.tensor.dtype]
    return np.frombuffer(inputs.tensor.data, dtype).reshape(inputs.tensor.shape)


@given(labels=st.one_of(TEXTS, NUMBERS))
def test_labels_come_back_as_they_were(labels: list[str | int]) -> None:
    wire = label_pb2.Labels.FromString(_labels.encode_labels(_labels.to_labels(labels)).SerializeToString())
    assert _labels.decode_labels(wire) == labels
    assert _labels.label_array(labels).tolist() == labels or any(str(label).endswith("\0") for label in labels)
    assert _labels.decode_label(_labels.encode_label(labels[0])) == labels[0]


@given(batch=BATCHES)
def test_arrays_come_back_as_they_were(batch: np.ndarray[Any, Any]) -> None:
    examples = _inputs.to_examples(batch)
    wire = tensor_pb2.Inputs.FromString(examples.encode(0, len(batch)).SerializeToString())
    back = decode(wire)
    assert back.dtype == batch.dtype and np.array_equal(back, batch)


@given(batch=BATCHES, room=st.integers(1, 4000), most=st.integers(1, 7))
def test_parts_of_a_batch_fit_the_limits_and_add_up(batch: np.ndarray[Any, Any], room: int, most: int) -> None:
    examples = _inputs.to_examples(batch)
    limit = _inputs.OVERHEAD_BYTES + room
    if batch[0].nbytes > room:
        with pytest.raises(sharp_client.MessageTooLargeError, match="example 0"):
            list(_inputs.split(examples.sizes(), limit, most))
        return
    parts = list(_inputs.split(examples.sizes(), limit, most))
    messages = [examples.encode(part.start, part.stop) for part in parts]
    assert all(message.ByteSize() <= limit for message in messages)
    assert all(part.stop - part.start <= most for part in parts)
    assert np.array_equal(np.concatenate([decode(message) for message in messages]), batch)


@given(batch=hnp.arrays(np.float64, (3, 4), elements=st.floats(-1e6, 1e6)))
def test_doubles_are_sent_as_floats(batch: np.ndarray[Any, Any]) -> None:
    assert np.array_equal(decode(_inputs.to_examples(batch).encode(0, 3)), batch.astype(np.float32))


def test_arrays_in_any_memory_order_or_byte_order_are_the_same_on_the_wire() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for same in (np.asfortranarray(x), x.astype(">f4"), np.repeat(x, 2, axis=0)[::2]):
        assert np.array_equal(decode(_inputs.to_examples(same).encode(0, 4)), x)


def test_anything_with_array_is_taken() -> None:
    class Tensor:
        def __init__(self, values: Any) -> None:
            self.values = values

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
            return np.asarray(self.values, dtype)

    x = np.ones((2, 3), np.float32)
    assert np.array_equal(decode(_inputs.to_examples(Tensor(x)).encode(0, 2)), x)
    assert np.array_equal(decode(_inputs.to_examples([Tensor(x[0]), Tensor(x[1])]).encode(0, 2)), x)
    assert _labels.to_labels(Tensor(np.array([1, 2]))) == [1, 2]


def test_torch_tensors_are_taken() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    assert np.array_equal(decode(_inputs.to_examples(x).encode(0, 2)), x.numpy())
    assert _labels.to_labels(torch.tensor([3, 4])) == [3, 4]
    assert _labels.to_label(torch.tensor(3)) == 3


def test_grey_images_get_their_channel() -> None:
    assert _inputs.to_examples(np.zeros((5, 28, 28), np.uint8)).encode(0, 5).tensor.shape == [5, 1, 28, 28]


@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (2, 0), (1, 2, 3, 4, 5)])
def test_an_array_that_is_no_batch_is_refused_with_its_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(sharp_client.ShapeMismatchError) as refused:
        _inputs.to_examples(np.zeros(shape, np.float32))
    assert str(shape) in refused.value.message


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.complex64, np.dtype("U1"), object])
def test_a_dtype_whose_scale_is_unknown_is_refused_by_name(dtype: Any) -> None:
    with pytest.raises(sharp_client.DtypeUnsupportedError, match=str(np.dtype(dtype))):
        _inputs.to_examples(np.zeros((2, 2), dtype))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_the_first_example_with_a_value_that_is_not_finite_is_named(value: float) -> None:
    x = np.zeros((4, 2))
    x[2, 1] = value
    with pytest.raises(sharp_client.NonFiniteValuesError) as refused:
        _inputs.to_examples(x)
    assert refused.value.metadata == {"example": "2"}


@pytest.mark.parametrize("label", ["", "x" * 1025, 2**63, -(2**63) - 1, 1.5, True, None, b"cat"])
def test_a_label_that_is_neither_text_nor_number_is_refused_with_its_index(label: Any) -> None:
    with pytest.raises(sharp_client.LabelInvalidError) as refused:
        _labels.to_labels([*([1] if isinstance(label, int) else ["a"]), label])
    assert refused.value.metadata["example"] == "1"


def test_texts_among_numbers_are_refused() -> None:
    with pytest.raises(sharp_client.LabelKindMismatchError, match="'b'"):
        _labels.to_labels([1, "b"])


@pytest.mark.parametrize("labels", ["abc", 3, np.zeros((2, 2), int)])
def test_labels_that_are_no_list_are_refused(labels: Any) -> None:
    with pytest.raises(sharp_client.LabelInvalidError):
        _labels.to_labels(labels)


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def test_images_are_sent_as_files_whether_paths_bytes_or_pil(tmp_path: Path) -> None:
    image = Image.new("RGB", (4, 3), (10, 20, 30))
    file = tmp_path / "image.png"
    file.write_bytes(png(image))
    for x in (image, file, str(file), png(image), [file, image, png(image)]):
        inputs = _inputs.to_examples(x).encode(0, 3)
        pixels = read_examples(inputs, [], 10)
        assert pixels.shape == (len(inputs.images.images), 3, 3, 4)
        assert np.allclose(pixels[:, :, 0, 0] * 255, [10, 20, 30])


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "F", "I"])
def test_pil_images_of_any_mode_become_png(mode: str) -> None:
    data = _inputs.to_examples([Image.new(mode, (2, 2))]).encode(0, 1).images.images[0]
    assert Image.open(io.BytesIO(data)).format == "PNG"


def test_a_file_that_is_no_image_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("hello")
    with pytest.raises(sharp_client.ImageMalformedError, match=r"notes\.txt is no PNG, JPEG, WebP or BMP"):
        _inputs.to_examples([file])


def test_an_array_among_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sharp_client.FieldInvalidError, match="example 1 is ndarray"):
        _inputs.to_examples([Image.new("L", (2, 2)), np.zeros((2, 2))])
