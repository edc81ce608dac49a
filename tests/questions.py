"""What a call asks of torch, as text: each function by its public name, with the sizes and numbers that it is given."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_map

_LONGEST = 1500
_PLACES = {"cpu", "meta", "mps"}
_LEFT_OUT = ("__get__", "__set__", "_parse_to", "_set_grad_enabled", "_has_compatible_shallow_copy_type")
"""Attributes of tensors, and what torch's own modules ask on their way."""
_LEFT_OUT_MODULES = ("nn.init.", "profiler.", "autograd.")


class _Heard(TorchFunctionMode):
    """Notices what the code itself calls, not what torch calls for it; `place` stands for the device."""

    def __init__(self, lines: list[str], place: str) -> None:
        super().__init__()
        self._lines, self._place = lines, place

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = _name(func)
        if name.rpartition(".")[2] not in _LEFT_OUT and not name.startswith(_LEFT_OUT_MODULES):
            self._lines.append(f"{name}({_given(args, kwargs or {})})")
        if self._place:
            args, kwargs = tree_map(self._moved, (args, kwargs))
        return func(*args, **(kwargs or {}))

    def _moved(self, value: Any) -> Any:
        is_ours = value == "mps" if isinstance(value, str) else isinstance(value, torch.device) and value.type == "mps"
        return self._place if is_ours else value


class Noted:
    """Stands for an object of torch that is no tensor: each call of it and of what it returns is a line."""

    def __init__(self, lines: list[str], name: str, value: object = None) -> None:
        self._lines, self._name, self._value = lines, name, value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._lines.append(f"{self._name}({_given(args, kwargs)})")
        return Noted(self._lines, self._name) if self._value is None else self._value

    def __getattr__(self, name: str) -> Noted:
        return Noted(self._lines, f"{self._name}.{name}")


@contextmanager
def heard(place: str = "") -> Iterator[list[str]]:
    """The calls that are made inside, one text each. What would be made on mps is made on the device `place`."""
    lines: list[str] = []
    with _Heard(lines, place):
        yield lines


def told(lines: list[str]) -> str:
    """Calls in one line: the same call several times running once, with its number; of many, the first and a digest."""
    runs: list[tuple[str, int]] = []
    for line in lines:
        if runs and runs[-1][0] == line:
            runs[-1] = line, runs[-1][1] + 1
        else:
            runs.append((line, 1))
    text = "; ".join(line if count == 1 else f"{count} x {line}" for line, count in runs)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]} ... {len(lines)} calls, {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def until_refused(call: Callable[[], object]) -> None:
    """Call; a refusal is no matter, since the question is what counts and not the answer of this device."""
    with contextlib.suppress(Exception):
        call()


def _name(func: Any) -> str:
    name = resolve_name(func) or getattr(func, "__qualname__", None) or getattr(func, "__name__", str(func))
    for prefix in ("torch._C._nn.", "_VariableFunctionsClass.", "torch."):
        name = str(name).removeprefix(prefix)
    return name


def _given(args: Any, kwargs: dict[str, Any]) -> str:
    named = (f"{name}={_shown(value)}" for name, value in sorted(kwargs.items()) if name != "device")
    return ", ".join([*map(_shown, args), *named])


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return _looks(value)
    if isinstance(value, torch.Size | list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, torch.device) or (isinstance(value, str) and value in _PLACES):
        return "device"
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value).removeprefix("torch.")
    if isinstance(value, slice):
        parts = (value.start, value.stop) if value.step is None else (value.start, value.stop, value.step)
        return ":".join("" if part is None else _shown(part) for part in parts)
    if isinstance(value, str | int | float | complex) or value is None:
        return repr(value)
    return type(value).__name__


def _looks(tensor: torch.Tensor) -> str:
    with torch._C.DisableTorchFunction():
        text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        if tensor.layout != torch.strided:
            return f"{str(tensor.layout).removeprefix('torch.')} {text}"
        grad = " grad" if tensor.requires_grad else ""
        return text + grad if tensor.is_contiguous() else f"{text}{grad} strides {list(tensor.stride())}"
