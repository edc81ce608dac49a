"""Operators whose kernels differ between releases of torch: group norms, attention, convolutions, reductions.

Until 2.12 Python runs a group norm as a row of other operators (`torch/backends/mps/__init__.py` of those releases;
issue 182805 and pull request 183020 of pytorch say what that costs). Attention goes through a graph that writes out all
scores. Since 2.9 it also looks for rows that may see nothing, which reads and writes them again (pull request 178545).
Since 2.13 a kernel of PyTorch's own keeps them on the GPU for the common widths of a head (pull request 181575).

A reduction has one threadgroup for each result in some releases (`_by_groups`): the wheels of 2.12 to 2.14 have no
other kernel for the norm of a whole tensor (`norm_float_float`), and that of 2.13 none for a sum or an extreme over a
middle axis or several axes (`sum_reduction_float_float`). Later wheels have kernels that share a result among
threadgroups (`sum_reduction_flat_...` since 2.14, `norm_l2_reduction_flat_...` since 2.15).

What a convolution makes is contiguous until 2.4, and as its input is since 2.5 (pull request 128393; `Convolution.mm`).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from anymps.cost._classes import SUMS, Operands, Work, axis_of, plain_works
from anymps.cost._matrix import TIMED, attention, product
from anymps.cost._tensors import OperatorCall
from anymps.rules import metal_kernel_since

Number = tuple[int, int]

_NORMS_SINCE: Final[Number] = (2, 13)
_CHECKED_SINCE: Final[Number] = (2, 9)
_BLOCKS_SINCE: Final[Number] = (2, 13)
_BLOCK_WIDTHS: Final = (32, 64, 72, 80, 96, 128, 256)
_NORMS: Final = ("norm", "linalg_vector_norm")
_NORM_BY_GROUPS: Final = ((2, 12), (2, 14))
_SUM_BY_GROUPS: Final[Number] = (2, 13)
_CONVOLUTIONS_KEEP_SINCE: Final[Number] = (2, 5)
_CONVOLUTIONS: Final = ("convolution", "_convolution", "convolution_overrideable", "mps_convolution")
_FEW_QUERIES: Final = 8  # have kernels of their own

PYTHON_RUNS: Final = {"native_group_norm": 9, "native_group_norm_backward": 28}
"""How many operators Python runs in place of these until PyTorch has a kernel: those of its code, without the views."""


def works_by_release(call: OperatorCall, tensors: Operands, number: Number) -> tuple[Work, ...] | None:
    """The kernels of an operator that goes another way in this release than in the newest, or None.

    Raises IndexError or ValueError for other tensors than the operator takes.
    """
    if call.name in PYTHON_RUNS and number < _NORMS_SINCE:
        return _norm_by_python(call, tensors)
    if "scaled_dot_product_attention" in call.name:
        return _attention(call, tensors, number)
    if call.name in SUMS:
        return _by_groups(call, tensors, number)
    return None


def _by_groups(call: OperatorCall, tensors: Operands, number: Number) -> tuple[Work, ...] | None:
    """A reduction with a threadgroup for each result, as `kernels/launches` describes the grids; None for another."""
    given, made, results = tensors.inputs[0].shape, tensors.outputs[0].shape, tensors.outputs[0].elements
    gone = len(given) - len(made) or sum(size != other for size, other in zip(given, made, strict=True))
    axis = axis_of(call, tensors) if results > 1 and gone == 1 else None
    if call.name in _NORMS:
        first, last = _NORM_BY_GROUPS
        grouped = first <= number <= last and not (axis == "inner" and number > first)
    else:
        of_one = len(tensors.inputs) == 1 and metal_kernel_since(call.name) == _SUM_BY_GROUPS
        grouped = of_one and number == _SUM_BY_GROUPS and results > 1 and axis not in ("inner", "first")
    works = plain_works(call, tensors) if grouped else None
    return tuple(replace(work, groups=results) for work in works) if works is not None else None


class Layouts:
    """Which convolutions of a step read permuted inputs in a release, whatever is installed where it was recorded.

    Until 2.4 it is those that read what the program permuted, not what another convolution made: those of the first
    one's shape, as a recording does not say where a tensor comes from.
    """

    def __init__(self, number: Number) -> None:
        self._kept = number >= _CONVOLUTIONS_KEEP_SINCE
        self._permuted = ""

    def as_laid_out(self, call: OperatorCall) -> OperatorCall:
        """The call as the release makes it; calls come in the order of the program."""
        if self._kept or not call.transposed or call.name not in _CONVOLUTIONS:
            return call
        self._permuted = self._permuted or call.inputs[0]
        return call if call.inputs[0] == self._permuted else replace(call, transposed=False)


def _norm_by_python(call: OperatorCall, tensors: Operands) -> tuple[Work, ...]:
    """What a group norm's operators move: the variance reads the values for the mean and again for what is off it."""
    given = tensors.inputs[0]
    dtype, whole = given.dtype, given.size
    row = min(tensor.size for tensor in tensors.outputs)
    if call.name == "native_group_norm":
        large = [("reduce_inner", 2), ("elementwise", 2), ("elementwise", 2)]
    else:
        large = [("elementwise", 3), *[("reduce_inner", 1)] * 2]
        large += [("elementwise", times) for times in (2, 2, 3, 2)]
    small = PYTHON_RUNS[call.name] - len(large)
    return (
        *(Work(kind, times * whole, dtype) for kind, times in large),
        *(Work("elementwise", 2 * row, dtype) for _ in range(small)),
    )


def _attention(call: OperatorCall, tensors: Operands, number: Number) -> tuple[Work, ...] | None:
    query, key, value = tensors.inputs[:3]
    *outer, rows, width = query.shape
    columns, deep = value.shape[-2:]
    batch = prod(outer)
    if rows <= _FEW_QUERIES or query.dtype not in TIMED:
        return None
    if number >= _BLOCKS_SINCE and width == deep and width in _BLOCK_WIDTHS:
        # Its sums are of float32, whatever the inputs are.
        return (
            product("bmm", rows, columns, width, batch, "float32", query.size + key.size),
            product("bmm", rows, deep, columns, batch, "float32", value.size + query.size),
        )
    if number < _CHECKED_SINCE:
        return None
    scores = 4 * batch * rows * columns
    first, softmax, second = attention(call, tensors)
    return first, *[Work("elementwise", 2 * scores, "float32")] * 3, softmax, second
