"""Makes the tensors of a checkpoint narrower, each in its place: which element types change, and what is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from anymps._errors import CheckpointError
from anymps._text import plural
from anymps._threads import torch_threads
from anymps.checkpoints._read import Checkpoint, shown

if TYPE_CHECKING:
    import torch

_NARROWER: Final = {"float64": "float32", "complex128": "complex64"}
"""What cannot be on mps (torch 2.13, aten/src/ATen/mps/EmptyTensor.cpp), and what takes its place."""

# Quantized types, bits and types with several elements a byte are left out on purpose: they are refused by name.
# fmt: off
_KEPT: Final = frozenset((
    "float32", "float16", "bfloat16", "complex64", "complex32", "int64", "int32", "int16", "int8", "uint8", "bool",
    "uint16", "uint32", "uint64",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
))
# fmt: on
_EXACT: Final = float(1 << 24)  # float32 holds every whole number up to here
_PIECE: Final = 1 << 19  # elements that are compared at once
_LONGEST: Final = 1000
"""Characters of a name: in a file that is nested deep, each would be as long as all before it."""


@dataclass(frozen=True)
class Change:
    """A tensor whose type is another one now."""

    name: str
    shape: tuple[int, ...]
    old_dtype: str
    new_dtype: str


@dataclass
class Report:
    """What a conversion changed. `devices` are those, other than the CPU, that tensors were on; sizes in bytes."""

    source: str
    target: str
    format: str
    devices: list[str]
    tensors: int = 0
    """How many there are, changed or not."""
    changes: list[Change] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    old_bytes: int = 0
    new_bytes: int = 0


@dataclass
class _Storage:
    """What tensors show: their names, the elements made narrower, and how many values are not the same.

    `overflowed` are those beyond float32's range, which became inf; `integers` whole numbers that became others.
    """

    narrow: torch.Tensor
    names: list[str] = field(default_factory=list)
    overflowed: int = 0
    integers: int = 0


def narrow(file: Checkpoint, report: Report) -> None:
    """Set the data of each tensor that is too wide. It stays a parameter, tied, with attributes.

    Raises CheckpointError for a tensor that MPS cannot hold, or that is too wide and not dense.
    """
    storages: dict[int, _Storage] = {}
    done: dict[int, tuple[_Storage, str]] = {}  # by tensor, which may be there under several names
    for name, tensor in _tensors_in(file.root):
        report.tensors += 1
        if id(tensor) not in done:
            old = str(tensor.dtype).removeprefix("torch.")
            if old in _KEPT:
                continue
            _check(file, name, tensor, old)
            number = tensor.untyped_storage()._cdata
            if number not in storages:
                storages[number] = _narrowed(tensor.untyped_storage())
            tensor.data = _same_view(tensor, storages[number].narrow)
            done[id(tensor)] = (storages[number], old)
        storage, old = done[id(tensor)]
        storage.names.append(name)
        report.changes.append(Change(name, tuple(tensor.shape), old, _NARROWER[old]))
    for storage in storages.values():
        names = ", ".join(map(shown, storage.names))
        if storage.overflowed:
            report.remarks.append(f"{names}: {plural(storage.overflowed, 'value')} beyond float32 became inf")
        if storage.integers:
            numbers = plural(storage.integers, "whole number")
            report.remarks.append(f"{names}: {numbers} above 2**24 changed, float32 cannot hold them")


def _tensors_in(root: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors in a structure, by the names that lead there: `model.layer.weight`, `state[0]`.

    Containers may be shared or hold themselves: each is gone through once.
    """
    import torch

    seen: dict[int, Any] = {}
    rest: list[tuple[str, Any]] = [("", root)]
    while rest:
        name, value = rest.pop()
        if isinstance(value, torch.Tensor):
            yield name, value
        if id(value) not in seen:
            seen[id(value)] = value
            # Of a tensor the attributes that were put on it.
            rest += reversed(list(_children(name, vars(value) if isinstance(value, torch.Tensor) else value)))


def _children(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((joined(name, key), item) for key, item in value.items())
    if isinstance(value, (list, tuple, set)):
        return ((f"{name}[{index}]"[:_LONGEST], item) for index, item in enumerate(value))
    return ()


def joined(name: str, key: Any) -> str:
    """The name of what lies under a key of a dict."""
    readable = isinstance(key, str) or (isinstance(key, (int, float)) and abs(key) < 1 << 64)
    text = str(key) if readable else f"<{type(key).__name__}>"
    return (f"{name}.{text}" if name else text)[:_LONGEST]


def _check(file: Checkpoint, name: str, tensor: torch.Tensor, dtype: str) -> None:
    import torch

    if dtype not in _NARROWER:
        raise CheckpointError(f"{file.path} holds tensors of {tensor.dtype} ({shown(name)}), which MPS cannot hold")
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
        raise CheckpointError(
            f"{file.path} holds {dtype} tensors that are sparse, nested or without data ({shown(name)}): "
            "save them as dense tensors"
        )


def _same_view(tensor: torch.Tensor, elements: torch.Tensor) -> torch.Tensor:
    """The view of the elements made narrower that a tensor was of the wide ones."""
    import torch

    elements = elements.view(torch.complex64) if tensor.is_complex() else elements
    view = elements.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    view = view.conj() if tensor.is_conj() else view
    return torch._neg_view(view) if tensor.is_neg() else view


def _narrowed(wide: torch.UntypedStorage) -> _Storage:
    """The float64 elements of a storage as float32; finite values that are not the same are counted."""
    import torch

    elements = torch.empty(0, dtype=torch.float64).set_(wide)
    storage = _Storage(torch.empty(elements.shape, dtype=torch.float32))
    # Pieces are too small to share: several threads take seven times the processor time, most of it waiting.
    with torch_threads(1):
        for old, new in zip(torch.split(elements, _PIECE), torch.split(storage.narrow, _PIECE), strict=True):
            new.copy_(old)
            if not old.numel():
                continue
            low, high = torch.aminmax(old)
            # Nothing that is counted lies within these bounds. A NaN is not within them, and is looked at below.
            if not (low >= -_EXACT and high <= _EXACT):
                changed = (new.double() != old) & old.isfinite()
                infinite = changed & new.isinf()
                storage.overflowed += int(infinite.sum())
                storage.integers += int((changed & ~infinite & (old == old.trunc())).sum())
    return storage
