"""Makes the tensors of a checkpoint narrower, each in its place: which element types change, and what is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from anymps._errors import CheckpointError
from anymps._text import clean, plural
from anymps._threads import calling_thread_alone

if TYPE_CHECKING:
    import torch

_NARROWER: Final = {"float64": "float32", "complex128": "complex64"}
"""What cannot be on mps (torch 2.13, aten/src/ATen/mps/EmptyTensor.cpp), and what takes its place."""
_REFUSED: Final = re.compile(r"q.*|bits.*|float4.*|u?int[1-7]")
"""Quantized types, bits, and types with several elements a byte."""
_PIECE: Final = 1 << 19  # elements that are compared at once
_LONGEST: Final = 1000
"""Characters of a name: in a file that is nested deep, each would be as long as all before it."""


@dataclass(frozen=True)
class ChangedTensor:
    """A tensor whose type is another one now."""

    name: str
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
    changes: list[ChangedTensor] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    old_bytes: int = 0
    new_bytes: int = 0


def narrow(root: Any, report: Report) -> None:
    """Set the data of each tensor that is too wide. It stays a parameter, tied, with attributes.

    Raises CheckpointError for a tensor that MPS cannot hold, or that is too wide and not dense.
    """
    import torch

    names: dict[int, list[str]] = {}
    wide: list[tuple[torch.Tensor, torch.UntypedStorage]] = []
    seen: set[str] = set()
    for name, tensor in _tensors_in(root):
        report.tensors += 1
        seen.add(name)
        old = str(tensor.dtype).removeprefix("torch.")
        if _REFUSED.fullmatch(old):
            named = f"{tensor.dtype} ({clean(name)})"
            raise CheckpointError(f"{report.source} holds tensors of {named}, which MPS cannot hold")
        if old not in _NARROWER:
            continue
        if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
            raise CheckpointError(
                f"{report.source} holds {old} tensors that are sparse, nested or without data ({clean(name)}): "
                "save them as dense tensors"
            )
        storage = tensor.untyped_storage()
        names.setdefault(storage._cdata, []).append(clean(name))
        wide.append((tensor, storage))
        report.changes.append(ChangedTensor(name, old, _NARROWER[old]))
    done: dict[int, torch.Tensor] = {}
    for tensor, storage in wide:
        if storage._cdata not in done:
            done[storage._cdata], lost = _narrowed(storage)
            report.remarks += [f"{', '.join(names[storage._cdata])}: {words}" for words in lost]
        if tensor.dtype in (torch.float64, torch.complex128):  # one that has several names is done once
            tensor.data = _same_view(tensor, done[storage._cdata])
    report.remarks += _without_state(seen)


def _without_state(names: set[str]) -> list[str]:
    """Weights that bitsandbytes 0.50 packed into 4 bits and cannot load (`QuantState.from_dict` of functional.py)."""
    packed = {name.removesuffix(".absmax") for name in names if name.endswith(".absmax")} & names
    lost = sorted(packed - {name.partition(".quant_state.")[0] for name in names if ".quant_state." in name})
    others = f" and {plural(len(lost) - 1, 'other weight')} have" if lost[1:] else " has"
    advice = "bitsandbytes needs it to load 4 bits; save the model again with save_pretrained"
    return [f"{clean(lost[0])}{others} no quant_state: {advice}"] if lost else []


def _tensors_in(root: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors in a structure, by the names that lead there: `model.layer.weight`, `state.0`.

    Containers may be shared or hold themselves: each is gone through once.
    """
    import torch

    seen: dict[int, Any] = {}
    rest: list[tuple[str, Any]] = [("", root)]
    while rest:
        name, value = rest.pop()
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen[id(value)] = value
            items = value.items() if isinstance(value, dict) else enumerate(value)
            rest += reversed([(f"{name}.{key}".removeprefix(".")[:_LONGEST], item) for key, item in items])


def _same_view(tensor: torch.Tensor, elements: torch.Tensor) -> torch.Tensor:
    """The view of the elements made narrower that a tensor was of the wide ones."""
    import torch

    elements = elements.view(torch.complex64) if tensor.is_complex() else elements
    view = elements.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    view = view.conj() if tensor.is_conj() else view
    return torch._neg_view(view) if tensor.is_neg() else view


def _narrowed(storage: torch.UntypedStorage) -> tuple[torch.Tensor, list[str]]:
    """The float64 elements of a storage as float32, and in words how many finite values are not the same."""
    import torch

    wide = torch.empty(0, dtype=torch.float64).set_(storage)
    narrow = torch.empty(wide.shape, dtype=torch.float32)
    overflowed = integers = 0
    # Pieces are too small to share: several threads take seven times the processor time, most of it waiting.
    with calling_thread_alone():
        for old, new in zip(torch.split(wide, _PIECE), torch.split(narrow, _PIECE), strict=True):
            new.copy_(old)
            overflowed += int((new.isinf() & old.isfinite()).sum())
            integers += int(((old == old.trunc()) & (new != old) & new.isfinite()).sum())
    lost = []
    if overflowed:
        lost.append(f"{plural(overflowed, 'value')} beyond float32 became inf")
    if integers:
        lost.append(f"{plural(integers, 'whole number')} above 2**24 changed, float32 cannot hold them")
    return narrow, lost
