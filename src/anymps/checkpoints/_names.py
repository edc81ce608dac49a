"""The tensors of a checkpoint by name, as they are found in it and as a safetensors file can hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from anymps._errors import CheckpointError
from anymps.checkpoints._read import Checkpoint, printable

if TYPE_CHECKING:
    import torch

_LONGEST: Final = 1000
"""Characters of a name: in a file that is nested deep, each would be as long as all before it."""


def walk(root: Any) -> Iterator[tuple[str, Any]]:
    """All that is in a structure, by the names that lead there: `model.layer.weight`, `state[0]`.

    Containers may be shared or hold themselves: each is gone through once.
    """
    seen: dict[int, Any] = {}
    rest: list[tuple[str, Any]] = [("", root)]
    while rest:
        name, value = rest.pop()
        yield name, value
        if id(value) not in seen:
            seen[id(value)] = value
            rest += reversed(list(_children(name, value)))


def _children(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    import torch

    if isinstance(value, torch.Tensor):
        value = value.__dict__  # attributes that were put on it
    if isinstance(value, dict):
        return ((_joined(name, key), item) for key, item in value.items())
    if isinstance(value, (list, tuple, set)):
        return ((f"{name}[{index}]"[:_LONGEST], item) for index, item in enumerate(value))
    return ()


def _joined(name: str, key: Any) -> str:
    readable = isinstance(key, str) or (isinstance(key, (int, float)) and abs(key) < 1 << 64)
    text = str(key) if readable else f"<{type(key).__name__}>"
    return (f"{name}.{text}" if name else text)[:_LONGEST]


def named_tensors(file: Checkpoint) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint that holds nothing else: a dict of names, as safetensors files are.

    Raises CheckpointError naming the first thing that is not one.
    """
    import torch

    path = file.path
    if not isinstance(file.root, dict):
        raise CheckpointError(
            f"{path} is not a dict of tensors, which is all that safetensors can hold: leave out --to"
        )
    for key, value in file.root.items():
        label = printable(_joined("", key))
        plain = isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type == "cpu"
        if not isinstance(key, str) or not plain or value.is_nested:
            raise CheckpointError(
                f"{path} holds more than named tensors ({label}: {type(value).__name__}), which safetensors cannot: "
                "convert without --to, or save only the state dict"
            )
        if value.is_conj() or value.is_neg():
            raise CheckpointError(f"{path}: {label} is a lazily conjugated view: save it after resolve_conj()")
    return file.root
