"""Sums, products, means and variances of torch 2.15, and which release computes a reduction how.

What goes is seen as the middle of three dimensions. Rows, columns, few columns and whole tensors have kernels of their
own; where one pass has too few groups of threads for a GPU, segments are reduced first, and then their results. Source:
`ReduceOps.mm` of the pytorch tree, at a state with the names of kernels, arguments and constants of `ReduceOps.h` of
torch 2.15's wheel. That state copies whole tensors with gaps; the wheel reads them in place, by the arguments that its
kernels describe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES
from anymps.kernels.launches._reductions import (
    OF_2_13,
    READ,
    named_dims,
    reduction_params,
    result_without,
    summed_dtype,
)

SPLIT = (2, 15)
"""The release whose host was read."""
_LANES, _MOST, _ROWS_GROUP, _FLAT_GROUP, _NARROW_GROUP = 32, 1024, 256, 256, 256
_FLAT_NUMBERS, _MOST_GROUPS, _MOST_SEGMENTS = 8192, 512, 2048
_SMALL = 65_536  # numbers from which rows share a SIMD group, and narrow columns a group of threads
_SHORT, _A_LANE = 256, 16  # numbers of a row that shares one, and of its lane
_FEW_GROUPS, _LONG, _SEGMENT, _PARTIALS = 64, 2048, 64, 8192
_TALL, _FEW_COLUMNS, _TALL_SEGMENT, _TALL_GROUPS, _STRIDED_GROUPS = 4096, 32, 512, 2048, 256
_BATCHED = 128  # numbers of a column from which a narrow group is better than a thread for each
_SUMMED = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
_THREE = "float3"  # the partial results of a variance: a count, a mean and a sum of squares


@dataclass(frozen=True)
class Op:
    """A reduction: the names of its kernels, of what joins partial results, and of the types; its number."""

    kernel: str
    joins: str
    types: tuple[str, str]
    partial: str
    number: float = 0.0


@dataclass(frozen=True)
class _Plan:
    """Which kernel, over `outer` times `numbers` times `inner`, by which strides, in how many segments."""

    kernel: str
    outer: int
    numbers: int
    inner: int = 1
    strides: tuple[int, ...] = ()
    segments: int = 1
    lanes: int = _LANES

    def steps(self) -> tuple[int, ...]:
        """From number to number, column to column and matrix to matrix."""
        return self.strides or (self.inner, 1, self.numbers * self.inner, 0)


def _up(number: int, by: int) -> int:
    return -(-number // by)


def _merged(sizes: list[int], strides: list[int]) -> list[tuple[int, int]]:
    """Dimensions as one where the next one goes on where one ends."""
    found: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found


def _columns(x: torch.Tensor, dim: int) -> _Plan | None:
    """Along a dimension that is not the last; None where more than one is left before it, or behind it."""
    before = _merged(list(x.shape[:dim]), list(x.stride()[:dim]))
    behind = _merged(list(x.shape[dim + 1 :]), list(x.stride()[dim + 1 :]))
    if len(before) > 1 or len(behind) > 1:
        return None
    outer, outer_step = before[0] if before else (1, 0)
    inner, step = behind[0] if behind else (1, 0)
    numbers, whole = x.shape[dim], x.is_contiguous()
    plan = _Plan("_outer", outer, numbers, inner, (x.stride(dim), step, outer_step, 0))
    groups = outer * _up(inner, _LANES)
    splits = outer == 1 and numbers >= _TALL and groups < _FEW_COLUMNS
    short = numbers <= _SHORT and groups >= _FEW_GROUPS
    if whole and inner < _LANES and x.numel() >= _SMALL and not (short and numbers < _BATCHED):
        wanted = max(1, min(_MOST_SEGMENTS, numbers * inner // _FLAT_NUMBERS))
        return replace(plan, kernel="_narrow", segments=wanted if outer == 1 else 1)
    if short:
        return replace(plan, kernel="_outer_small_dim")
    if splits and whole:
        return replace(plan, segments=min(numbers // _TALL_SEGMENT, max(2, _TALL_GROUPS // groups)))
    if splits:
        return replace(plan, segments=max(2, min(_STRIDED_GROUPS // groups, numbers, _MOST_SEGMENTS)))
    return plan


def _rows(rows: int, numbers: int) -> _Plan:
    """Along the last dimension of what lies densely."""
    plan = _Plan("_innermost", rows, numbers)
    if numbers <= _SHORT and rows * numbers >= _SMALL:
        lanes = 1 << (_up(numbers, _A_LANE) - 1).bit_length()
        return replace(plan, kernel="_innermost_chunk", lanes=min(_LANES, lanes))
    if _up(rows, _ROWS_GROUP // _LANES) >= _FEW_GROUPS or numbers < _LONG:
        return plan
    most = max(2, min(_MOST_SEGMENTS, _up(numbers, _SEGMENT)))
    wanted = max(2, min(_up(_PARTIALS, rows), most))
    return replace(plan, kernel="_innermost_chunk", segments=_up(numbers, _up(numbers, wanted)))


def _plan(x: torch.Tensor, out: torch.Tensor) -> _Plan:
    """`out` has the dimensions of `x`, of size 1 where they go."""
    numbers = x.numel() // out.numel()
    plan = _Plan("", out.numel(), numbers)
    if out.numel() == 1:
        groups = min(_MOST_GROUPS, _up(numbers, _FLAT_NUMBERS))
        while groups > 1 and numbers % groups:
            groups -= 1
        return replace(plan, kernel="_flat", segments=groups) if groups > 1 else plan
    gone = [at for at in range(x.dim()) if x.shape[at] != out.shape[at]]
    if not out.is_contiguous():
        return plan
    if len(gone) == 1 and gone[0] < x.dim() - 1:
        return _columns(x, gone[0]) or plan
    if len(gone) <= 1 and x.is_contiguous():
        return _rows(out.numel(), numbers)
    if x.is_contiguous() and gone and len(gone) == gone[-1] - gone[0] + 1:
        return _plan(x.flatten(gone[0], gone[-1]), out.flatten(gone[0], gone[-1]))
    return plan


def _joining(plan: _Plan, op: Op) -> tuple[_Plan, Op]:
    """What takes the results of segments together."""
    joins = replace(op, kernel=op.joins, types=(op.partial, op.types[1]))
    kernel = {"_innermost_chunk": "_innermost", "_flat": ""}.get(plan.kernel, plan.kernel)
    return _Plan(kernel, plan.outer, plan.segments, plan.inner), joins


def _encoded(plan: _Plan, op: Op, x: torch.Tensor, out: torch.Tensor) -> Launch:
    """The launch of a plan."""
    name = f"{op.kernel}_reduction{plan.kernel}_{'_'.join(op.types)}"
    if plan.kernel in ("_innermost", "_innermost_chunk"):
        simds, rows = plan.outer * plan.segments, [plan.outer, plan.numbers]
        if plan.kernel == "_innermost_chunk":
            rows += [plan.lanes, plan.segments]
            simds = _up(simds, _LANES // plan.lanes)
        threads = _up(simds, _ROWS_GROUP // _LANES) * _ROWS_GROUP
        return Launch(name, (x, out, rows, op.number), (threads,), (_ROWS_GROUP,))
    sizes = [plan.numbers, plan.inner, plan.segments, 0]
    if plan.kernel == "_narrow":
        width = _NARROW_GROUP // plan.inner * plan.inner
        return Launch(name, (x, out, sizes, op.number), (width, plan.segments, plan.outer), (width, 1, 1))
    if plan.kernel in ("_outer", "_outer_small_dim"):
        height = _LANES if plan.kernel == "_outer" else 1
        grid = (_up(plan.inner, _LANES) * _LANES, plan.segments * height, plan.outer)
        return Launch(name, (x, out, sizes, op.number, list(plan.steps())), grid, (_LANES, height, 1))
    if plan.kernel == "_flat":
        each = plan.numbers // plan.segments
        return Launch(name, (x, out, [plan.segments, each]), (plan.segments * _FLAT_GROUP,), (_FLAT_GROUP,))
    width = min(_MOST, _up(plan.numbers, _LANES) * _LANES)
    params = reduction_params(plan.numbers, op.number, (x.shape, x.stride()), (out.shape, out.stride()))
    return Launch(name, (x, out, params), (plan.outer * width,), (width,))


def _room(call: KernelCall, op: Op, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory for the results of segments."""
    if op.partial == _THREE:
        return call.empty([4 * count], torch.float32)
    return call.empty([count], dtype)


def _launches(call: KernelCall, op: Op, x: torch.Tensor, out: torch.Tensor, partial: torch.dtype) -> tuple[Launch, ...]:
    """One, or that of segments and what takes their results together."""
    if not x.is_contiguous():
        order = sorted(range(x.dim()), key=x.stride().__getitem__, reverse=True)
        if x.permute(order).is_contiguous():
            x, out = x.permute(order), out.permute(order)
    plan = _plan(x, out)
    if plan.segments == 1:
        return (_encoded(plan, op, x, out),)
    values = _room(call, op, out.numel() * plan.segments, partial)
    first = replace(op, types=(op.types[0], op.partial), number=0.0)
    if plan.kernel == "_flat" and not x.is_contiguous():
        launch = _gaps(plan, first, x, values)
    else:
        launch = _encoded(plan, first, x, values)
    joined, joins = _joining(plan, op)
    second = _encoded(joined, joins, values, out)
    if not joined.kernel:  # the partial results have one dimension
        params = reduction_params(plan.segments, op.number, ((plan.segments,), (1,)), ((1,), (0,)))
        second = replace(second, buffers=(values, out, params))
    return launch, second


def _gaps(plan: _Plan, op: Op, x: torch.Tensor, values: torch.Tensor) -> Launch:
    """A whole tensor as it lies, of up to four dimensions; else a copy."""
    sizes = _merged(list(x.shape), list(x.stride()))[::-1]
    if len(sizes) > 4:
        return _encoded(plan, op, x.contiguous(), values)
    padded = [*sizes, *[(1, 0)] * (4 - len(sizes))]
    name = f"{op.kernel}_reduction_flat_strided_{'_'.join(op.types)}"
    buffers = (x, values, [size for size, _ in padded], [stride for _, stride in padded])
    return Launch(name, buffers, (plan.segments * _FLAT_GROUP,), (_FLAT_GROUP,))


def reduced(call: KernelCall, op: Op, x: torch.Tensor, result: torch.dtype, partial: torch.dtype) -> Work | None:
    """A reduction over what the call asks for, in one pass or two."""
    found = result_without(call, x, result) if x.numel() < 2**31 else None
    if found is None:
        return None
    out, kept = found
    return Work((out,), _launches(call, op, x, kept, partial))


def _summed(prefix: str, mean: bool = False) -> Describe:
    """As the host casts what it reads to the type of the result first."""

    def describe(call: KernelCall) -> Work | None:
        x, result = call.given["self"], summed_dtype(call, mean)
        if result is None or result not in NAMES or not x.numel() or not x.dim():
            return None
        partial = _SUMMED.get(result, result)
        count = math.prod(x.shape[at] for at in set(named_dims(call, x)))
        joins = "sum" if prefix == "nansum" else prefix
        kernel = prefix if result.is_floating_point or result.is_complex else joins
        op = Op(kernel, joins, (NAMES[result],) * 2, NAMES[partial], float(count) if mean else 0.0)
        return reduced(call, op, x.to(result), result, partial)

    return describe


def _spread(kernel: str) -> Describe:
    def describe(call: KernelCall) -> Work | None:
        x, correction = call.given["self"], call.given.get("correction", 1)
        if "unbiased" in call.given:
            correction = int(call.given["unbiased"])
        if not x.is_floating_point():
            return None
        of = NAMES.get(x.dtype, "")
        op = Op(kernel, kernel, (of, of), _THREE, 1.0 if correction is None else float(correction))
        return reduced(call, op, x, x.dtype, torch.float32)

    return describe


_LATER: dict[str, Describe] = {
    "sum": _summed("sum"),
    "nansum": _summed("nansum"),
    "mean": _summed("sum", mean=True),
    "prod": _summed("prod"),
    "var": _spread("var"),
    "std": _spread("std"),
}


def _by_release(name: str) -> Describe:
    """As the hosts of torch 2.13 and 2.15 do it, which were read; the CPU computes what others do."""
    read = {READ: OF_2_13.get(name), SPLIT: _LATER.get(name)}

    def describe(call: KernelCall) -> Work | None:
        found = read.get(call.release)
        return None if found is None else found(call)

    return describe


REDUCTIONS: dict[str, Describe] = {name: _by_release(name) for name in (*OF_2_13, "prod", "var", "std")}
