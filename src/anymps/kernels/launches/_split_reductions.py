"""Sums, products, means, counts, extremes, truth, variances and places of extremes, of torch 2.15.

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

from anymps.kernels.launches._call import Call, Describe, Launch, Made, Work
from anymps.kernels.launches._reductions import named_dims, reduction_params, result_without, summed_dtype
from anymps.kernels.launches._types import NAMES, of_numbers

SPLIT = (2, 15)
"""The release whose host was read."""
_LANES, _MOST, _ROWS_GROUP, _FLAT_GROUP, _NARROW_GROUP = 32, 1024, 256, 256, 256
_FLAT_NUMBERS, _MOST_GROUPS, _MOST_SEGMENTS = 8192, 512, 2048
_SMALL = 65_536  # numbers from which rows share a SIMD group, and narrow columns a group of threads
_SHORT, _A_LANE = 256, 16  # numbers of a row that shares one, and of its lane
_FEW_GROUPS, _LONG, _SEGMENT, _PARTIALS = 64, 2048, 64, 8192
_TALL, _FEW_COLUMNS, _TALL_SEGMENT, _TALL_GROUPS, _STRIDED_GROUPS = 4096, 32, 512, 2048, 256
_BATCHED = 128  # numbers of a column from which a narrow group is better than a thread for each
_PLACE_GROUPS, _PLACE_SEGMENT, _PLACE_PARTIALS = 512, 512, 16_384
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
    places: bool = False


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


def _columns(x: torch.Tensor, dim: int, places: bool) -> _Plan | None:
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
    short = not places and numbers <= _SHORT and groups >= _FEW_GROUPS
    narrow = splits if places else x.numel() >= _SMALL and not (short and numbers < _BATCHED)
    if whole and inner < _LANES and narrow:
        least = 2 if places else 1
        wanted = max(least, min(_MOST_SEGMENTS, numbers * inner // _FLAT_NUMBERS))
        return replace(plan, kernel="_narrow", segments=wanted if outer == 1 else 1)
    if short:
        return replace(plan, kernel="_outer_small_dim")
    if splits and whole and not places:
        return replace(plan, segments=min(numbers // _TALL_SEGMENT, max(2, _TALL_GROUPS // groups)))
    if splits:
        return replace(plan, segments=max(2, min(_STRIDED_GROUPS // groups, numbers, _MOST_SEGMENTS)))
    return plan


def _rows(rows: int, numbers: int, places: bool) -> _Plan:
    """Along the last dimension of what lies densely."""
    plan = _Plan("_innermost", rows, numbers)
    if not places and numbers <= _SHORT and rows * numbers >= _SMALL:
        lanes = 1 << (_up(numbers, _A_LANE) - 1).bit_length()
        return replace(plan, kernel="_innermost_chunk", lanes=min(_LANES, lanes))
    if _up(rows, _ROWS_GROUP // _LANES) >= (_PLACE_GROUPS if places else _FEW_GROUPS) or numbers < _LONG:
        return plan
    if places:
        wanted = max(2, min(_PLACE_PARTIALS // rows, max(numbers // _PLACE_SEGMENT, 2)))
    else:
        most = max(2, min(_MOST_SEGMENTS, _up(numbers, _SEGMENT)))
        wanted, plan = max(2, min(_up(_PARTIALS, rows), most)), replace(plan, kernel="_innermost_chunk")
    return replace(plan, segments=_up(numbers, _up(numbers, wanted)))


def _plan(x: torch.Tensor, out: torch.Tensor, places: bool) -> _Plan:
    """`out` has the dimensions of `x`, of size 1 where they go."""
    numbers = x.numel() // out.numel()
    plan = _Plan("", out.numel(), numbers)
    if out.numel() == 1 and not places:
        groups = min(_MOST_GROUPS, _up(numbers, _FLAT_NUMBERS))
        while groups > 1 and numbers % groups:
            groups -= 1
        return replace(plan, kernel="_flat", segments=groups) if groups > 1 else plan
    gone = [at for at in range(x.dim()) if x.shape[at] != out.shape[at]]
    if not out.is_contiguous():
        return plan
    if len(gone) == 1 and gone[0] < x.dim() - 1:
        return _columns(x, gone[0], places) or plan
    if len(gone) <= 1 and x.is_contiguous():
        return _rows(out.numel(), numbers, places)
    if x.is_contiguous() and gone and len(gone) == gone[-1] - gone[0] + 1:
        return _plan(x.flatten(gone[0], gone[-1]), out.flatten(gone[0], gone[-1]), places)
    return plan


def _joining(plan: _Plan, op: Op) -> tuple[_Plan, Op]:
    """What takes the results of segments together."""
    joins = replace(op, kernel=op.joins, types=(op.partial, op.types[1]))
    if op.places:
        return _Plan("_combine", plan.outer * plan.inner, plan.segments), joins
    kernel = {"_innermost_chunk": "_innermost", "_flat": ""}.get(plan.kernel, plan.kernel)
    return _Plan(kernel, plan.outer, plan.segments, plan.inner), joins


_Partials = tuple[torch.Tensor | None, torch.Tensor | None]


def _encoded(plan: _Plan, op: Op, x: torch.Tensor, out: torch.Tensor, partials: _Partials = (None, None)) -> Launch:
    """The launch of a plan; of places also into, or out of, values and places of segments."""
    first = op.places and plan.segments > 1
    end = f"p1_{op.types[0]}" if first else op.types[0] if plan.kernel == "_combine" else "_".join(op.types)
    name = f"{op.kernel}_reduction{plan.kernel}_{end}"
    values, indices = partials
    further: tuple[object, ...]
    if plan.kernel in ("_innermost", "_innermost_chunk", "_combine"):
        simds = plan.outer * plan.segments
        if op.places:
            sizes = [simds, _up(plan.numbers, plan.segments), plan.segments, plan.numbers]
            joining = plan.kernel == "_combine"
            further = (sizes, indices if joining else None, *((values, indices) if first else (None, None)))
        elif plan.kernel == "_innermost_chunk":
            further = ([plan.outer, plan.numbers, plan.lanes, plan.segments], op.number)
            simds = _up(simds, _LANES // plan.lanes)
        else:
            further = ([plan.outer, plan.numbers], op.number)
        return Launch(name, (x, out, *further), (_up(simds, _ROWS_GROUP // _LANES) * _ROWS_GROUP,), (_ROWS_GROUP,))
    sizes = [plan.numbers, plan.inner, plan.segments, 0]
    if plan.kernel == "_narrow":
        width = _NARROW_GROUP // plan.inner * plan.inner
        further = (values, indices, sizes) if op.places else (out, sizes, op.number)
        return Launch(name, (x, *further), (width, plan.segments, plan.outer), (width, 1, 1))
    if plan.kernel in ("_outer", "_outer_small_dim"):
        height = _LANES if plan.kernel == "_outer" else 1
        further = (sizes, list(plan.steps()), *(partials if first else (None, None)))
        if not op.places:
            further = (sizes, op.number, list(plan.steps()))
        grid = (_up(plan.inner, _LANES) * _LANES, plan.segments * height, plan.outer)
        return Launch(name, (x, out, *further), grid, (_LANES, height, 1))
    if plan.kernel == "_flat":
        each = plan.numbers // plan.segments
        return Launch(name, (x, out, [plan.segments, each]), (plan.segments * _FLAT_GROUP,), (_FLAT_GROUP,))
    width = min(_MOST, _up(plan.numbers, _LANES) * _LANES)
    params = reduction_params(plan.numbers, op.number, (x.shape, x.stride()), (out.shape, out.stride()))
    return Launch(name, (x, out, params), (plan.outer * width,), (width,))


def _room(op: Op, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory for the results of segments."""
    if op.partial == _THREE:
        return torch.empty(4 * count, dtype=torch.float32, device="cpu")
    return torch.empty(count, dtype=dtype, device="cpu")


def _launches(
    op: Op, x: torch.Tensor, out: torch.Tensor, partial: torch.dtype
) -> tuple[list[Launch], list[torch.Tensor]]:
    """And the room that they need."""
    if not op.places and not x.is_contiguous():
        order = sorted(range(x.dim()), key=x.stride().__getitem__, reverse=True)
        if x.permute(order).is_contiguous():
            x, out = x.permute(order), out.permute(order)
    plan = _plan(x, out, op.places)
    if plan.segments == 1:
        return [_encoded(plan, op, x, out)], []
    count = out.numel() * plan.segments
    values = _room(op, count, partial)
    indices = torch.empty(count, dtype=torch.int32, device="cpu") if op.places else None
    first = replace(op, types=(op.types[0], op.partial), number=0.0)
    if plan.kernel == "_flat" and not x.is_contiguous():
        launch = _gaps(plan, first, x, values)
    else:
        launch = _encoded(plan, first, x, out if op.places else values, (values, indices))
    joined, joins = _joining(plan, op)
    second = _encoded(joined, joins, values, out, (values, indices))
    if not joined.kernel:  # the partial results have one dimension
        params = reduction_params(plan.segments, op.number, ((plan.segments,), (1,)), ((1,), (0,)))
        second = replace(second, buffers=(values, out, params))
    return [launch, second], [one for one in (values, indices) if one is not None]


def _gaps(plan: _Plan, op: Op, x: torch.Tensor, values: torch.Tensor) -> Launch:
    """A whole tensor as it lies, of up to four dimensions; else a copy."""
    sizes = _merged(list(x.shape), list(x.stride()))[::-1]
    if len(sizes) > 4:
        return _encoded(plan, op, x.contiguous(), values)
    padded = [*sizes, *[(1, 0)] * (4 - len(sizes))]
    name = f"{op.kernel}_reduction_flat_strided_{'_'.join(op.types)}"
    buffers = (x, values, [size for size, _ in padded], [stride for _, stride in padded])
    return Launch(name, buffers, (plan.segments * _FLAT_GROUP,), (_FLAT_GROUP,))


def reduced(call: Call, op: Op, x: torch.Tensor, result: torch.dtype, partial: torch.dtype) -> Work | None:
    """A reduction over what the call asks for, in one pass or two."""
    if call.foreign or not x.numel() or not x.dim() or x.is_conj() or x.is_neg() or x.numel() >= 2**31:
        return None
    found = result_without(call, x, named_dims(call, x), result)
    if found is None:
        return None
    out, kept = found
    launches, room = _launches(op, x, kept, partial)
    own = x is call.given["self"] and launches[0].buffers[0].data_ptr() == x.data_ptr()
    return _work(out, launches, room, own)


def _work(out: torch.Tensor, launches: list[Launch], room: list[torch.Tensor], own: bool) -> Work:
    """`own` where the launches read what the call gave."""
    return Work((out,), tuple(launches), kept=own, made=tuple(Made(one, "room") for one in room))


def _summed(prefix: str, mean: bool = False) -> Describe:
    """As the host casts what it reads to the type of the result first."""

    def describe(call: Call) -> Work | None:
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


def _count(call: Call) -> Work | None:
    x = call.given["self"]
    op = Op("count_nonzero", "sum", (NAMES.get(x.dtype, ""), "long"), "long")
    return reduced(call, op, x, torch.int64, torch.int64)


def _extreme(kernel: str) -> Describe:
    def describe(call: Call) -> Work | None:
        x = call.given["self"]
        of = of_numbers(x.dtype)
        return reduced(call, Op(kernel, kernel, (of, of), of), x, x.dtype, x.dtype)

    return describe


def _truth(kernel: str, joins: str) -> Describe:
    def describe(call: Call) -> Work | None:
        x = call.given["self"]
        if call.given.get("dim") == []:
            return None  # each number by itself
        op = Op(kernel, joins, (NAMES.get(x.dtype, ""), "uchar"), "uchar")
        return reduced(call, op, x, torch.uint8 if x.dtype == torch.uint8 else torch.bool, torch.uint8)

    return describe


def _spread(kernel: str) -> Describe:
    def describe(call: Call) -> Work | None:
        x, correction = call.given["self"], call.given.get("correction", 1)
        if "unbiased" in call.given:
            correction = int(call.given["unbiased"])
        if not x.is_floating_point():
            return None
        of = NAMES.get(x.dtype, "")
        op = Op(kernel, kernel, (of, of), _THREE, 1.0 if correction is None else float(correction))
        return reduced(call, op, x, x.dtype, torch.float32)

    return describe


def _place(kernel: str) -> Describe:
    """The host moves the dimension to one end where what it reads lies densely then."""

    def describe(call: Call) -> Work | None:
        x, dim = call.given["self"], call.given.get("dim")
        if call.foreign or not x.numel() or not x.dim() or x.is_complex() or x.is_neg() or x.numel() >= 2**31:
            return None
        if dim is not None and x.shape[dim] == 1:
            return None  # the host fills the result with zeros
        found = result_without(call, x, named_dims(call, x), torch.int64)
        if found is None:
            return None
        out, kept = found
        if dim is None:
            read, kept = x.contiguous().view(-1), kept.view(1)
        else:
            ends = () if x.is_contiguous() else (-1, 0)
            end = next((one for one in ends if x.movedim(dim, one).is_contiguous()), dim)
            read, kept = x.movedim(dim, end), kept.movedim(dim, end)
        op = Op(kernel, kernel, (of_numbers(x.dtype), "long"), of_numbers(x.dtype), places=True)
        launches, room = _launches(op, read, kept, torch.int8 if x.dtype == torch.bool else x.dtype)
        return _work(out, launches, room, read.data_ptr() == x.data_ptr())

    return describe


SPLIT_REDUCTIONS: dict[str, Describe] = {
    "sum": _summed("sum"),
    "nansum": _summed("nansum"),
    "mean": _summed("sum", mean=True),
    "prod": _summed("prod"),
    "count_nonzero": _count,
    "amax": _extreme("max"),
    "amin": _extreme("min"),
    "any": _truth("any", "max"),
    "all": _truth("all", "min"),
    "var": _spread("var"),
    "std": _spread("std"),
    "argmax": _place("argmax"),
    "argmin": _place("argmin"),
}
"""For `SPLIT` alone."""
