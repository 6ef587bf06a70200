"""The forms that names of learners and streams must have. No name that passes can be a path."""

from __future__ import annotations

import re

from sharp_server.errors import RpcError

_LEARNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_STREAM = re.compile(r"[A-Za-z0-9._:/-]{1,128}")


def learner_name(name: str, field: str) -> str:
    """A learner's name of the right form, or the refusal."""
    if not _LEARNER.fullmatch(name):
        raise RpcError(
            "NAME_INVALID",
            "a name is 1 to 63 letters, digits, '.', '_' and '-', and starts with a letter or a digit",
            fields=(field,),
            name=name,
        )
    return name


def stream_id(name: str, field: str, what: str = "a stream id") -> str:
    """The id of a stream, or of something else with ids of that form, or the refusal."""
    if not _STREAM.fullmatch(name):
        message = f"{what} is 1 to 128 letters, digits, '.', '_', ':', '/' and '-'"
        raise RpcError("NAME_INVALID", message, fields=(field,), name=name)
    return name
