"""Messages that hypothesis makes from protobuf descriptors: made up, mutated from good ones, or no message at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from reliability.fuzz import values

_DEEPEST = 4
_F = FieldDescriptor
_RANGES = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), (-(2**31), 2**31 - 1)),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), (-(2**63), 2**63 - 1)),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), (0, 2**32 - 1)),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), (0, 2**64 - 1)),
}
_LENGTHS = (0, 1, 1, 2, 3, 4, 17, 3000)
"""Of repeated fields; long ones repeat one value, so that making them costs little."""

Draw = Callable[[st.SearchStrategy[Any]], Any]


class Vocabulary:
    """What messages are made of, beside what is always hostile: names that the server knows, and blocks of bytes."""

    def __init__(self, names: tuple[str, ...] = (), blocks: tuple[bytes, ...] = ()) -> None:
        self.texts, self.blocks = values.texts(names), values.blocks(blocks)
        self.overrides = values.overrides()

    def scalar(self, field: FieldDescriptor) -> st.SearchStrategy[Any]:
        """Values of a field that is no message."""
        if field.type in _RANGES:
            return values.integers(*_RANGES[field.type])
        if field.type == _F.TYPE_BOOL:
            return st.booleans()
        if field.type == _F.TYPE_STRING:
            return self.texts
        if field.type == _F.TYPE_BYTES:
            return self.blocks
        if field.type == _F.TYPE_ENUM:
            assert field.enum_type is not None
            return st.sampled_from([*(v.number for v in field.enum_type.values), 99, 2**31 - 1, -1])
        return st.one_of(st.sampled_from(values.FLOATS[:-2]), st.floats(width=32))


def _fill(draw: Draw, message: Any, field: FieldDescriptor, words: Vocabulary, depth: int) -> None:
    """Give one field a value, whatever it had."""
    message.ClearField(field.name)
    if field.name == "overrides":
        message.overrides.update(draw(words.overrides))
        return
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        for _ in range(draw(st.integers(0, 2))):
            key = draw(words.scalar(field.message_type.fields_by_name["key"]))
            value = field.message_type.fields_by_name["value"]
            if value.message_type is None:
                getattr(message, field.name)[key] = draw(words.scalar(value))
            else:
                _populate(draw, getattr(message, field.name)[key], words, depth + 1)
        return
    if field.is_repeated:
        length = draw(st.sampled_from(_LENGTHS))
        place = getattr(message, field.name)
        if field.message_type is None:
            if length > 4:
                place.extend([draw(words.scalar(field))] * (length if field.type != _F.TYPE_BYTES else 17))
            else:
                place.extend(draw(words.scalar(field)) for _ in range(length))
        elif depth < _DEEPEST:
            for _ in range(min(length, 3)):
                _populate(draw, place.add(), words, depth + 1)
        return
    if field.message_type is None:
        setattr(message, field.name, draw(words.scalar(field)))
    elif depth < _DEEPEST:
        part = getattr(message, field.name)
        part.SetInParent()
        _populate(draw, part, words, depth + 1)


def _populate(draw: Draw, message: Any, words: Vocabulary, depth: int = 0) -> None:
    for field in message.DESCRIPTOR.fields:
        if draw(st.integers(0, 3)):
            _fill(draw, message, field, words, depth)


@st.composite
def made_up(draw: Draw, descriptor: Descriptor, words: Vocabulary) -> bytes:
    """A message of this type with fields of any value."""
    message = GetMessageClass(descriptor)()
    _populate(draw, message, words)
    return message.SerializeToString()


@st.composite
def mutated(draw: Draw, seeds: tuple[Message, ...], words: Vocabulary) -> bytes:
    """A good message in which one to three fields, anywhere, are something else; or none."""
    message: Any = type(seeds[0])()
    message.CopyFrom(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 3))):
        place, depth = message, 0
        while fields := tuple(place.DESCRIPTOR.fields):
            field = draw(st.sampled_from(fields))
            inner = field.message_type
            deeper = inner is not None and not inner.GetOptions().map_entry and depth < _DEEPEST
            if not deeper or not draw(st.integers(0, 3)):
                _fill(draw, place, field, words, depth)
                break
            if field.is_repeated:
                items = getattr(place, field.name)
                place = items[draw(st.integers(0, len(items) - 1))] if len(items) else items.add()
            else:
                place = getattr(place, field.name)
                place.SetInParent()
            depth += 1
    return bytes(message.SerializeToString())


@st.composite
def damaged(draw: Draw, good: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that were a message, or a file, before some of them were changed, lost, doubled or made up."""
    data = bytearray(draw(good))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        how = draw(st.integers(0, 3))
        if how == 0 and data:
            data[place] ^= draw(st.integers(1, 255))
        elif how == 1:
            del data[place:]
        elif how == 2:
            data[place:place] = draw(st.binary(min_size=1, max_size=12))
        else:
            data[place:place] = data[max(0, place - 16) : place] * 3
    return bytes(data)


def requests(
    descriptor: Descriptor, seeds: tuple[Message, ...], words: Vocabulary, largest: int
) -> st.SearchStrategy[bytes]:
    """What is sent to a method as one message."""
    kinds = [made_up(descriptor, words), mutated(seeds, words), mutated(seeds, words), damaged(mutated(seeds, words))]
    return st.one_of(*kinds, st.binary(max_size=64)).map(lambda data: data[:largest])
