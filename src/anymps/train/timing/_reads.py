"""Where a function reads values from the device: the places at which it waits during a timing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_OWN = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))


def reads_of(function: Callable[[], object]) -> tuple[str, ...]:
    """Call the function once and return where it reads from a device, each place once, as `item() at train.py:12`.

    Sees the reads that every device has: `item()` and what stands on it (`if`, `float`, `print`), blocking copies to
    the CPU, and operators whose result's size depends on values. A synchronise of the function's own is not seen, nor
    is anything inside of compiled code.
    """
    watch = _Watch()
    with watch:
        function()
    return tuple(watch.places)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at every operator on its way to its kernel."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.places: dict[str, None] = {}  # a set that keeps its order

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        what = _read(func._schema.name, args, kwargs)
        if what:
            self.places[what + _place()] = None
        return func(*args, **kwargs)


def _read(operator: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What kind of read a call is; empty if it is none."""
    name = operator.removeprefix("aten::")
    if name == "copy_":
        from_device = not args[0].is_meta and args[0].device.type == "cpu" and _on_device(args[1])
        blocking = not (kwargs.get("non_blocking") or (len(args) > 2 and args[2]))
        return "copy to the CPU" if from_device and blocking else ""
    if not args or not _on_device(args[0]):
        return ""
    if name == "_local_scalar_dense":
        return "item()"
    if name == "_to_copy":
        to = kwargs.get("device")
        return "copy to the CPU" if to is not None and to.type == "cpu" and not kwargs.get("non_blocking") else ""
    if name in ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"):
        return name
    return ""


def _on_device(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type not in ("cpu", "meta")


def _place() -> str:
    """` at file:line`, the innermost line that is the user's; empty in a thread that runs none of it."""
    frame = sys._getframe(2)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((*_OWN, "<")):
            return f" at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
