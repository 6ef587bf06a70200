"""What all of them share: labels, counts and numbers as JSON has them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

_INT64 = 1 << 63

IntegerLabel = Annotated[int, Field(strict=True, ge=-_INT64, lt=_INT64)]
TextLabel = Annotated[str, Field(strict=True)]
Label = IntegerLabel | TextLabel
Count = Annotated[int, Field(ge=0)]
UnsignedInteger = Annotated[int, Field(ge=0, lt=1 << 32)]
Version = Annotated[int, Field(ge=0, lt=_INT64)]
Number = Annotated[float, Field(strict=True)]
LabelKind = Literal["text", "integer"]


class Answer(BaseModel):
    """Whatever is answered."""

    model_config = ConfigDict(ser_json_inf_nan="constants")


class Question(BaseModel):
    """Whatever is asked: what is not known is refused."""

    model_config = ConfigDict(extra="forbid")
