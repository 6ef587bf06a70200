"""A stand-in for an accelerator: tensors on a device of their own that compute on the CPU, as strict as a GPU's.

A tensor there never meets one of the CPU (but for single numbers, which every accelerator takes), has no numpy array,
and comes and goes only by a copy that is asked for. What a GPU would have to be waited for is written down with the
line of the engine that asked. It must never be kinder than a GPU: what passes here can only fail there for reasons of
numbers, memory or drivers.

Everything computes with the same kernels as on the CPU, so answers are the same to the bit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "standin"
"""What the device is called."""

_SCALARS = ("_local_scalar_dense", "is_nonzero", "equal", "allclose")
"""Read a value."""
_SIZES = ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount", "repeat_interleave")
"""Make a tensor whose size depends on values: the host waits to know it."""
_CHECKS = ("_linalg_check_errors",)
"""Look whether a decomposition failed."""

# Once per process, and before its first backward: that is when torch starts a thread for each device there is.
_setup_privateuseone_for_python_backend(NAME)


@dataclass(frozen=True)
class Wait:
    """One time that a GPU would have been waited for, or that a copy could not run beside other work."""

    operation: str
    place: str
    """The line of the engine that asked for it, as file:function."""


@dataclass
class Traffic:
    """What went on between host and device."""

    waits: list[Wait] = field(default_factory=list)
    """The host waits for the device."""
    blocking_uploads: list[Wait] = field(default_factory=list)
    """Copies to the device that were not asked to run beside other work, or whose source is not pinned."""
    uploads: int = 0
    """Copies to the device, of any kind."""

    def clear(self) -> None:
        self.waits.clear()
        self.blocking_uploads.clear()
        self.uploads = 0


_traffic = Traffic()
_pinned: dict[int, Tensor] = {}


class RemoteTensor(Tensor):
    """A tensor on the stand-in device; what it holds lies on the CPU, out of reach."""

    _held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> RemoteTensor:
        with torch.inference_mode(False):  # torch cannot make views of what is made within it
            made: RemoteTensor = Tensor._make_wrapper_subclass(
                cls,
                held.shape,
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=torch.device(NAME, 0),
            )
        made._held = held
        return made

    def tolist(self) -> Any:
        """Torch's own refuses subclasses."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # torch's own takes less than it is given
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _dispatch(func, args, dict(kwargs or {}))


class _Device(TorchDispatchMode):
    """Makes what is asked for on the device, and lets tensors of the CPU go there."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _dispatch(func, args, dict(kwargs or {}))


class _Literals(TorchFunctionMode):
    """Numbers that become tensors: torch makes them without asking the device's kernels, so they are copied there."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if func is torch.Tensor.new_tensor:
            like, *args = args
            options = {"dtype": like.dtype, "device": like.device, **options}
            func = torch.tensor
        if func is torch.tensor and options.get("device") is not None:
            return torch.tensor(*args, **{**options, "device": None}).to(options["device"])
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], RemoteTensor):
            args = (args[0], _listed_places(args[1], args[0].device), *args[2:])
        return func(*args, **options)


def _listed_places(index: Any, device: torch.device) -> Any:
    """An index whose lists of numbers are tensors."""
    if isinstance(index, tuple):
        return tuple(_listed_places(part, device) for part in index)
    return torch.tensor(index, dtype=torch.int64).to(device) if isinstance(index, list) else index


@contextmanager
def accelerator() -> Iterator[Traffic]:
    """The device, for as long as the block lasts; yields what goes on between it and the host."""
    _traffic.clear()
    with _Device(), _Literals():
        yield _traffic
    _pinned.clear()


def _dispatch(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = func._schema.name.removeprefix("aten::")
    here, there = _tensors(args, kwargs)
    if name in ("_pin_memory", "pin_memory"):
        copy = func(*args, **kwargs) if there else args[0].clone()
        _pinned[copy.data_ptr()] = copy
        return copy
    if name == "is_pinned":
        return not there and args[0].data_ptr() in _pinned
    if torch.is_inference_mode_enabled():  # there, calls come in one piece that are made of smaller ones
        with _Device():
            made = func.decompose(*args, **kwargs)
        if made is not NotImplemented:
            return made
    target = kwargs.get("device")
    if target is not None:
        kwargs["device"] = torch.device("cpu") if torch.device(target).type == NAME else target
    if name == "_to_copy":
        return _moved(func, args, kwargs, target)
    if name == "copy_":
        return _overwritten(func, args, kwargs)
    if not there:
        made = func(*args, **kwargs)
        return _wrap(made) if target is not None and torch.device(target).type == NAME else made
    _refuse_strangers(name, here)
    _write_down_waits(name, func, args)
    made = func(*_held(args), **_held(kwargs))
    return _written_arguments(func, args, kwargs, made)


def _moved(func: Any, args: Sequence[Any], kwargs: dict[str, Any], target: Any) -> Any:
    """A copy, perhaps to another device."""
    source = args[0]
    comes = isinstance(source, RemoteTensor)
    goes = comes if target is None else torch.device(target).type == NAME
    if comes and not goes:
        _traffic.waits.append(Wait("copy to the host", _place()))
    if goes and not comes:
        _note_upload(source, bool(kwargs.get("non_blocking")))
    made = func(_held(source), **kwargs)
    return RemoteTensor(made) if goes else made


def _overwritten(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A copy into a tensor that is there already."""
    into, source = args[0], args[1]
    if isinstance(source, RemoteTensor) and not isinstance(into, RemoteTensor):
        _traffic.waits.append(Wait("copy to the host", _place()))
    if isinstance(into, RemoteTensor) and not isinstance(source, RemoteTensor) and source.ndim:
        _note_upload(source, bool(kwargs.get("non_blocking") or (len(args) > 2 and args[2])))
    func(_held(into), _held(source), *args[2:], **kwargs)
    return into


def _note_upload(source: Tensor, beside: bool) -> None:
    if not source.numel():
        return
    _traffic.uploads += 1
    if not beside or source.untyped_storage().data_ptr() not in _pinned:
        _traffic.blocking_uploads.append(Wait("copy to the device", _place()))


def _refuse_strangers(name: str, here: list[Tensor]) -> None:
    strangers = [tensor for tensor in here if tensor.ndim]
    if strangers:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but {name} found at least two devices, {NAME}:0 and cpu"
        )


def _write_down_waits(name: str, func: Any, args: Sequence[Any]) -> None:
    waits = name in (*_SCALARS, *_CHECKS) or name in _SIZES and _size_unknown(name, func)
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        waits = any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1])
        name = f"{name} by a mask"
    if waits:
        _traffic.waits.append(Wait(name, _place()))


def _size_unknown(name: str, func: Any) -> bool:
    return not (name == "repeat_interleave" and func._overloadname == "self_int")


def _written_arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], made: Any) -> Any:
    """What was made, on the device; of a call that writes into its argument, that argument."""
    written = _written(func)
    if written is None:
        return _wrap(made)
    position, name = written
    return args[position] if position < len(args) else kwargs[name]


@cache
def _written(func: Any) -> tuple[int, str] | None:
    """Position and name of the argument that a call writes into and returns."""
    returned = func._schema.returns
    if len(returned) == 1 and returned[0].alias_info is not None and returned[0].alias_info.is_write:
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                return position, argument.name
    return None


def _tensors(args: Any, kwargs: Any) -> tuple[list[Tensor], list[RemoteTensor]]:
    """Tensors of the CPU, and of the device."""
    here: list[Tensor] = []
    there: list[RemoteTensor] = []

    def note(tensor: Tensor) -> Tensor:
        there.append(tensor) if isinstance(tensor, RemoteTensor) else here.append(tensor)
        return tensor

    _with_tensors((args, kwargs), note)
    return here, there


def _held(tree: Any) -> Any:
    return _with_tensors(tree, lambda tensor: tensor._held if isinstance(tensor, RemoteTensor) else tensor)


def _wrap(tree: Any) -> Any:
    return _with_tensors(tree, lambda tensor: tensor if isinstance(tensor, RemoteTensor) else RemoteTensor(tensor))


def _with_tensors(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Arguments or results with other tensors in them. Torch's own trees do the same, many times slower."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, tuple | list):
        return type(tree)([_with_tensors(part, change) for part in tree])
    if isinstance(tree, dict):
        return {key: _with_tensors(part, change) for key, part in tree.items()}
    return tree


def _place() -> str:
    """Where in the engine it was asked for. The stack alone: a whole traceback would read the files of its lines."""
    frame = sys._getframe(1)
    while frame is not None:
        _, engine, file = frame.f_code.co_filename.rpartition("/sharp_engine/")
        if engine:
            return f"{file}:{frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return "elsewhere"
