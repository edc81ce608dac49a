"""The tensors in a structure: their names, their views of storages, and what else in it speaks of types and devices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anymps._errors import CheckpointError
from anymps.checkpoints._dtypes import DTYPES, Dtype, for_mps
from anymps.checkpoints._reading import printable
from anymps.checkpoints._structure import PLAIN_TENSORS, Call, Named, Storage

_PLAIN: Final = frozenset(f"torch._utils.{name}" for name in PLAIN_TENSORS)
_TYPED_VIEW: Final = "torch._utils._rebuild_tensor_v3"
_META: Final = "torch._utils._rebuild_meta_tensor_no_storage"
_BY_WAY_OF_CPU: Final = "torch._utils._rebuild_device_tensor_from_cpu_tensor"
_WITH_ATTRIBUTES: Final = "torch._tensor._rebuild_from_type_v2"
_PARAMETERS: Final = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")


@dataclass(frozen=True)
class View:
    """A tensor: which elements of a storage it shows. `device` and `dtype` are those in the file that is read."""

    storage: Storage | None
    dtype: Dtype
    device: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    lazy: bool = False
    """Whether a conjugation or negation is still to be done when the tensor is read."""

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie one behind the other, in order."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return self.elements == 0
            expected *= size
        return True


@dataclass(frozen=True)
class Contents:
    """What is in a structure: its tensors by name, in order, and remarks on what is kept as it is."""

    tensors: list[tuple[str, View]]
    remarks: list[str]


def plain_view(node: Any, path: Path) -> View | None:
    """The tensor that a node makes, where it is nothing but a tensor or a parameter; else None.

    Raises CheckpointError if it would show what is not in its storage.
    """
    while isinstance(node, Call) and node.arguments:
        name = str(node.function)
        if name in _PARAMETERS:
            node = node.arguments[0]
        elif name == _WITH_ATTRIBUTES and len(node.arguments) == 4 and isinstance(node.arguments[0], Named):
            node = Call(node.arguments[0], node.arguments[2])
        else:
            return _view(node, path) if name in _PLAIN else None
    return None


def _view(node: Call, path: Path) -> View:
    arguments = node.arguments
    storage, offset, shape, strides = arguments[:4] if len(arguments) >= 4 else (None,) * 4
    whole = (
        isinstance(storage, Storage)
        and _natural((offset,))
        and isinstance(shape, tuple)
        and isinstance(strides, tuple)
        and len(shape) == len(strides)
        and _natural(shape + strides)
    )
    if not whole:
        raise CheckpointError(f"{path} is damaged: a tensor has no storage, or no shape")
    assert isinstance(storage, Storage)
    dtype = storage.dtype
    metadata = arguments[6] if len(arguments) > 6 else None
    if str(node.function) == _TYPED_VIEW:
        dtype = _typed(storage, arguments[6] if len(arguments) > 6 else None, path)
        metadata = arguments[7] if len(arguments) > 7 else None
    elif storage.is_untyped:
        raise CheckpointError(f"{path} is damaged: a tensor without a type")
    view = View(storage, dtype, storage.location, offset, shape, strides, lazy=bool(metadata))
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if view.elements and last >= storage.size // dtype.itemsize:
        raise CheckpointError(
            f"{path} is damaged: a tensor of shape {list(shape)} reaches beyond its storage {storage.key}"
        )
    return view


def _natural(numbers: tuple[Any, ...]) -> bool:
    return all(type(number) is int and number >= 0 for number in numbers)


def _typed(storage: Storage, named: Any, path: Path) -> Dtype:
    """The type of a tensor that names it itself; torch.save does so for types without a storage class of their own."""
    dtype = _dtype(named)
    if not storage.is_untyped or dtype is None or dtype.becomes:
        raise CheckpointError(f"{path} is damaged: a tensor of type {printable(str(named))} over {storage.kind}")
    return dtype


def _dtype(node: Any) -> Dtype | None:
    return DTYPES.get(node.name) if isinstance(node, Named) and node.module == "torch" else None


def find_tensors(root: Any, path: Path) -> Contents:
    """All tensors of a structure under the names that lead to them: `model.layer.weight`, `state[0]`.

    Tensors without a storage get their new type and device here. Raises CheckpointError for one that makes no sense.
    """
    contents = Contents([], [])
    seen: dict[int, Any] = {}  # containers may be shared or hold themselves; each is gone through once
    rest: list[tuple[str, Any]] = [("", root)]
    while rest:
        name, node = rest.pop()
        view = plain_view(node, path)
        if view is not None:
            contents.tensors.append((name, view))
        elif isinstance(node, Storage):
            view = View(node, node.dtype, node.location, 0, (node.count,), (1,))
            contents.tensors.append((name, view))
        elif (dtype := _dtype(node)) is not None and dtype.becomes:
            contents.remarks.append(f"{name} is the type {dtype.name} itself and was kept: mps refuses it")
        elif isinstance(node, Call) and str(node.function) in (_META, _BY_WAY_OF_CPU):
            contents.tensors.extend(_without_storage(name, node, path))
        if isinstance(node, (dict, list, tuple, set, Call)) and id(node) not in seen:
            seen[id(node)] = node
            rest += reversed(list(_children(name, node, view is not None)))
    return contents


def _children(name: str, node: Any, is_tensor: bool) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        yield from ((_joined(name, key), value) for key, value in node.items())
    elif not isinstance(node, Call):
        yield from ((f"{name}[{index}]", value) for index, value in enumerate(node))
    elif node.is_dict:
        yield from _children(name, node.items, False)
    elif is_tensor:
        # Attributes that were put on a tensor may hold tensors.
        if str(node.function) in (_WITH_ATTRIBUTES, _PARAMETERS[1]):
            yield (_joined(name, "state"), node.arguments[3])
    elif str(node.function) not in (_META, _BY_WAY_OF_CPU):
        yield from _parts(name, node)


def _parts(name: str, node: Call) -> Iterator[tuple[str, Any]]:
    """What a call of another kind is made of (the indices and values of a sparse tensor)."""
    for index, value in enumerate(node.arguments):
        if isinstance(value, (Call, dict, list, tuple, set)):
            yield (f"{name}.part{index}", value)


def _joined(name: str, key: Any) -> str:
    text = key if isinstance(key, str) else str(key) if isinstance(key, (int, float)) else f"<{type(key).__name__}>"
    return f"{name}.{text}" if name else text


def _without_storage(name: str, node: Call, path: Path) -> Iterator[tuple[str, View]]:
    """A meta tensor, or one of a device that saves by way of the CPU (XLA); its call is changed in place."""
    is_meta = str(node.function) == _META
    place = 0 if is_meta else 1
    dtype = _dtype(node.arguments[place]) if len(node.arguments) == 4 else None
    if dtype is None:
        raise CheckpointError(f"{path} is damaged: a tensor without a type")
    changed = list(node.arguments)
    changed[place] = Named("torch", for_mps(dtype).name)
    if is_meta:
        shape, strides = node.arguments[1], node.arguments[2]
        if not (isinstance(shape, tuple) and isinstance(strides, tuple) and _natural(shape + strides)):
            raise CheckpointError(f"{path} is damaged: a tensor has no shape")
        yield (name, View(None, dtype, "meta", 0, shape, strides))
    else:
        view = plain_view(node.arguments[0], path)
        if view is None:
            raise CheckpointError(f"{path} is damaged: a tensor has no storage, or no shape")
        device = node.arguments[2] if isinstance(node.arguments[2], str) else "?"
        yield (name, View(view.storage, view.dtype, device, view.offset, view.shape, view.strides, view.lazy))
        changed[2] = "cpu"
    node.arguments = tuple(changed)


def named_tensors(root: Any, path: Path) -> dict[str, View]:
    """The tensors of a structure that holds nothing else: names with one tensor each, as safetensors files are.

    Raises CheckpointError naming the first thing that is not one.
    """
    items = root.items if isinstance(root, Call) and root.is_dict else root
    if not isinstance(items, dict):
        raise CheckpointError(
            f"{path} is not a dict of tensors, which is all that safetensors can hold: leave out --to"
        )
    tensors: dict[str, View] = {}
    for key, node in items.items():
        view = plain_view(node, path)
        label = printable(str(key)) if isinstance(key, (str, int)) else f"a key of type {type(key).__name__}"
        if not isinstance(key, str) or view is None:
            raise CheckpointError(
                f"{path} holds more than named tensors ({label}: {_kind(node)}), which safetensors cannot: "
                "convert without --to, or save only the state dict"
            )
        if view.lazy:
            raise CheckpointError(f"{path}: {label} is a lazily conjugated view: save it after resolve_conj()")
        tensors[key] = view
    return tensors


def _kind(node: Any) -> str:
    return str(node.function) if isinstance(node, Call) else type(node).__name__
