"""Launches as operators: each is an entry on the tape, with its kernel, its grid and the Python line.

A kernel is an operator `metal::<kernel>`, and each size of grid and group an overload of it. The device treats it as
one that MPS has: it makes aliases of the tensors and calls the kernel of the device that computes. That of the CPU
runs the launch; on the substrate without values there is nothing to run.
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

_KINDS = 64  # overloads of one kernel; grids beyond that are not told apart
_library: Any = None
_overloads: dict[str, int] = {}
_numbers = itertools.count()
_waiting: dict[int, Callable[[Sequence[torch.Tensor]], None]] = {}
_defining = threading.Lock()


def launch_on_tape(
    kernel: str,
    grid: Sequence[int],
    group: Sequence[int],
    tensors: list[torch.Tensor],
    run: Callable[[Sequence[torch.Tensor]], None],
    place: Callable[[Callable[[], None]], None],
) -> None:
    """Runs `run` with aliases of the tensors on the CPU, as the operator of this kernel and grid.

    `place` is `straight`, or a line of the program that the call comes from.
    """
    operator = _operator(re.sub(r"\W", "_", kernel), tuple(grid), tuple(group))
    number = next(_numbers)
    _waiting[number] = run
    try:
        with torch._C._AutoDispatchBelowAutograd():
            place(lambda: operator(tensors, number))
    finally:
        _waiting.pop(number, None)


def straight(call: Callable[[], None]) -> None:
    """Calls it where the program is."""
    call()


def through_line(file: str, line: int, function: str) -> Callable[[Callable[[], None]], None]:
    """Something that calls what it is given from this line, so that the frames say so.

    Dynamo's code has the line of the `def` for all that it runs.
    """
    code = _CALL.replace(co_filename=file, co_name=function, co_firstlineno=line)
    return types.FunctionType(code, {}, function)


_CALL = (lambda call: call()).__code__  # on one line, as its first line is what is set


@functools.cache
def _operator(kernel: str, grid: tuple[int, ...], group: tuple[int, ...]) -> Any:
    global _library
    with _defining:
        if _library is None:
            _library = torch.library.Library("metal", "FRAGMENT")  # type: ignore[no-untyped-call]
        known = _overloads.get(kernel, 0)
        overload = f"threads_{_size(grid)}_group_{_size(group)}" if known < _KINDS else "other_grids"
        if known <= _KINDS:
            _overloads[kernel] = known + 1
            name = f"{kernel}.{overload}"
            _library.define(f"{name}(Tensor(a!)[] buffers, int launch) -> ()")
            _library.impl(name, _run, "CPU")
            _library.impl(name, _run_nothing, "Meta")
    return getattr(getattr(torch.ops.metal, kernel), overload)


def _size(sizes: Sequence[int]) -> str:
    """1024, or 8x8 for more than one dimension."""
    last = max((i for i, size in enumerate(sizes) if size != 1), default=0)
    return "x".join(str(size) for size in sizes[: last + 1])


def _run(buffers: Sequence[torch.Tensor], launch: int) -> None:
    _waiting[launch](buffers)


def _run_nothing(buffers: Sequence[torch.Tensor], launch: int) -> None:
    """On the substrate without values."""
