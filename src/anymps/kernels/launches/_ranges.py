"""Numbers at equal distances, and powers at equal distances, of torch 2.15.

Source: the arguments of the kernels in torch 2.15's macOS wheel, what they write, and linspace_out_mps in its
libtorch_cpu. A thread a number; a result of one dimension is told by its stride, another by its sizes and strides, the
innermost first.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._elements import MOST_32, NAMES

_WHOLE = (torch.int32, torch.int64)
_EXACT, _MANY = 2**20, 2**24
"""Integers of at least that size, or more of them than that, are not computed as float32."""
_WRAPS = 2**64
_FIRST = 0  # the place of the first number


def _is_written(call: Call) -> bool:
    if not call.written or call.foreign:
        return False
    out = call.written[0]
    return 1 <= out.numel() <= MOST_32 and all(one > 0 for one in out.stride())


def _stride(out: torch.Tensor) -> int | None:
    """How far apart two numbers lie; None if no single stride tells."""
    return 1 if out.is_contiguous() else out.stride(0) if out.dim() == 1 else None


def _laid(out: torch.Tensor) -> tuple[int, list[int], list[int]]:
    return out.dim(), list(reversed(out.shape)), list(reversed(out.stride()))


def _arange(call: Call) -> Work | None:
    if not _is_written(call):
        return None
    out, first, step = call.written[0], call.given["start"], call.given["step"]
    if not out.is_floating_point() and not type(first) is type(step) is int:
        return None
    if out.numel() != math.ceil((call.given["end"] - first) / step):
        return None  # the host makes it of that size first
    stride, of = _stride(out), NAMES.get(out.dtype)
    name = f"arange_strided_{of}" if stride is None else f"arange_{of}_i32"
    places = ([stride, _FIRST],) if stride is not None else (*_laid(out), _FIRST)
    return Work((out,), (Launch(name, (out, [first, step], *places), (out.numel(),)),))


def _spaced(call: Call, powers: bool) -> Work | None:
    if not _is_written(call):
        return None
    out, steps = call.written[0], call.given["steps"]
    first, last = call.given["start"], call.given["end"]
    plain = all(type(one) in (int, float) for one in (first, last))
    if out.numel() != steps or steps < 2 or not plain:
        return None
    if not (out.is_floating_point() or out.is_complex()) and not type(first) is type(last) is int:
        return None
    kind, numbers = "logspace" if powers else "linspace", _numbers(first, last, steps)
    if powers:
        numbers = [*numbers, call.given["base"]]
    elif out.dtype in _WHOLE and (max(abs(first), abs(last)) >= _EXACT or steps > _MANY):
        kind, numbers = "linspace_integral", _whole(int(first), int(last), steps)
    stride, of = _stride(out), NAMES.get(out.dtype)
    name = f"{kind}_strided_{of}" if stride is None else f"{kind}_{of}_i32"
    places = ([steps, stride, _FIRST],) if stride is not None else ([steps, _FIRST], *_laid(out))
    return Work((out,), (Launch(name, (out, numbers, *places), (steps,)),))


def _numbers(first: float, last: float, steps: int) -> list[Any]:
    """The first, the step, the last: each a float32, which the host divides as such."""
    ends = torch.tensor([first, last], dtype=torch.float32, device="cpu")
    return [first, ((ends[1] - ends[0]) / float(steps - 1)).item(), last]


def _whole(first: int, last: int, steps: int) -> list[Any]:
    """The first and the last of two's complement, and their distance: by the step, and what remains."""
    return [first % _WRAPS, last % _WRAPS, *divmod(abs(last - first), steps - 1)]


RANGES: dict[str, Describe] = {
    "arange": _arange,
    "linspace": lambda call: _spaced(call, powers=False),
    "logspace": lambda call: _spaced(call, powers=True),
}
