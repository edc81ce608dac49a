"""Matrix products: linear layers, convolutions, attention and LSTMs as sizes of a GEMM.

A convolution as a GEMM: forward m = N*Ho*Wo, n = Cout, k = Cin*kh*kw; the gradient of its input m = N*H*W, n = Cin,
k = Cout*kh*kw; that of its weight m = Cout, n = Cin*kh*kw, k = N*Ho*Wo. A depthwise one, forward, has a filter of its
own for each channel: too few products for a GEMM, so that its memory decides, and it is a class of its own.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from anymps.cost._classes import Operands, Work
from anymps.cost._tensors import ITEM_SIZES, OperatorCall, Tensor

_GATES: Final = 4
_POINTWISE: Final = 3  # kernels of an LSTM's step beside its product


def matrix_work(call: OperatorCall, tensors: Operands) -> tuple[Work, ...] | None:
    """The kernels of a product of matrices, with what goes along with it; None if the operator is none.

    Raises IndexError or ValueError for other tensors than the operator takes.
    """
    maker = _MAKERS.get(call.name)
    return None if maker is None else maker(call, tensors)


FEW_ROWS: Final = 16
"""Up to so many rows a matrix is read once and multiplied with each of them, without tiles: from about 16 on, MPS takes
its kernel for matrices again (pytorch issue 189847)."""
TIMED: Final = ("float32", "float16", "bfloat16")


def product(kind: str, m: int, n: int, k: int, batch: int, dtype: str, size: int) -> Work:
    """A product of [m, k] and [k, n], `batch` times, that moves `size` bytes; few rows have a class of their own."""
    if min(m, n, k, batch) < 1:
        return Work("fill", size, dtype)  # nothing to multiply: what is made holds zeros
    if m <= FEW_ROWS and kind in ("gemm", "linear_view") and dtype in TIMED:
        return Work("few_rows", size, dtype)
    return Work(kind, size, dtype, m, n, k, batch)


def _mm(_: OperatorCall, tensors: Operands) -> tuple[Work, ...]:
    left, right = tensors.inputs[-2:]
    (m, k), n = left.shape[-2:], right.shape[-1]
    return (product("gemm", m, n, k, 1, left.dtype, tensors.size),)


def _bmm(_: OperatorCall, tensors: Operands) -> tuple[Work, ...]:
    left, right = tensors.inputs[-2:]
    (batch, m, k), n = left.shape, right.shape[-1]
    return (product("bmm", m, n, k, batch, left.dtype, tensors.size),)


def _vector(_: OperatorCall, tensors: Operands) -> tuple[Work, ...]:
    return (Work("elementwise", tensors.size, tensors.largest.dtype),)


def _linear(call: OperatorCall, tensors: Operands) -> tuple[Work, ...]:
    given, weight = tensors.inputs[:2]
    n, k = weight.shape[-2:] if len(weight.shape) > 1 else (1, weight.shape[0])
    kind = "linear_view" if call.transposed else "gemm"
    return (product(kind, given.elements // max(1, k), n, k, 1, given.dtype, tensors.size),)


def _linear_backward(_: OperatorCall, tensors: Operands) -> tuple[Work, ...]:
    given, gradient, weight = tensors.inputs[:3]
    n, k = weight.shape
    rows = given.elements // max(1, k)
    works = []
    for made in tensors.outputs:
        if made.shape == weight.shape:
            works.append(product("gemm", n, k, rows, 1, given.dtype, given.size + gradient.size + made.size))
        elif len(made.shape) == 1:
            works.append(Work("reduce_first", gradient.size + made.size, given.dtype))
        else:
            works.append(product("gemm", rows, k, n, 1, given.dtype, gradient.size + weight.size + made.size))
    return tuple(works)


def _forward_class(weight: Tensor) -> str:
    return "conv1d" if len(weight.shape) == 3 else "conv"


def _convolution(call: OperatorCall, tensors: Operands) -> tuple[Work, ...]:
    given, weight, made = tensors.inputs[0], tensors.inputs[1], tensors.outputs[0]
    groups = max(1, given.shape[1] // max(1, weight.shape[1]))
    if len(weight.shape) == 4 and groups > 1 and weight.shape[1] == 1 and weight.shape[0] == groups:
        return (Work("conv_depthwise", tensors.size, given.dtype),)
    k = math.prod(weight.shape[1:])
    m = made.shape[0] * math.prod(made.shape[2:])
    work = product(_forward_class(weight), m, weight.shape[0] // groups, k, groups, given.dtype, tensors.size)
    return (replace(work, permuted=call.transposed),)


def _convolution_backward(_: OperatorCall, tensors: Operands) -> tuple[Work, ...]:
    gradient, given, weight = tensors.inputs[:3]
    groups = max(1, given.shape[1] // max(1, weight.shape[1]))
    window = math.prod(weight.shape[2:])
    inside, outside = weight.shape[1], weight.shape[0] // groups
    m_in, m_out = (t.shape[0] * math.prod(t.shape[2:]) for t in (given, gradient))
    works = []
    for made in tensors.outputs:
        if made.shape == weight.shape:
            size = gradient.size + given.size + made.size
            works.append(product("conv_weight", outside, inside * window, m_out, groups, given.dtype, size))
        elif len(made.shape) == 1:
            works.append(Work("reduce_outer", gradient.size + made.size, given.dtype))
        else:
            size = gradient.size + weight.size + made.size
            # With a stride the gradient is sparse: only the products that exist are counted.
            depth = max(1, outside * window * m_out // max(1, m_in))
            works.append(product("conv_input", m_in, inside, depth, groups, given.dtype, size))
    return tuple(works)


def attention(_: OperatorCall, tensors: Operands) -> tuple[Work, Work, Work]:
    """A product with the keys, the softmax of the scores, and a product with the values."""
    query, key, value = tensors.inputs[:3]
    *outer, rows, width = query.shape
    columns, deep = value.shape[-2:]
    batch = math.prod(outer)
    scores = batch * rows * columns * 4  # float32 whatever the inputs are (pytorch pull request 178545)
    return (
        product("bmm", rows, columns, width, batch, query.dtype, query.size + key.size + scores),
        Work("softmax", 2 * scores, "float32"),
        product("bmm", rows, deep, columns, batch, query.dtype, scores + value.size + query.size),
    )


def _lstm(call: OperatorCall, tensors: Operands) -> tuple[Work, ...]:
    """An LSTM that MPS runs as one graph, as the products and pointwise kernels of its layers and steps.

    The layers' input part is one product over all steps; their state part is a product per step, each after the one
    before. How MPSGraph divides the rest of a step is not public. Three kernels (the gates, the cell, the state), and
    twice as many for the gradient, are an assumption, which one public training step of an LSTM confirms.
    """
    weights = [t for t in tensors.inputs if len(t.shape) == 2 and t.shape[0] % _GATES == 0]
    backward = call.name == "lstm_mps_backward"
    if backward:  # the gates that forward kept: [layers, steps, batch, gates]
        gates, *_ = (t for t in tensors.inputs if len(t.shape) == 4)
        steps, batch = gates.shape[1:3]
    else:
        given, state = tensors.inputs[:2]
        batch = state.shape[1]
        steps = given.shape[0] * given.shape[1] // max(1, batch)
    works: list[Work] = []
    for of_input, of_state in zip(weights[::2], weights[1::2], strict=True):
        works += _products(steps * batch, of_input.shape, of_input.dtype, backward)
        works += _products(batch, of_state.shape, of_state.dtype, backward) * steps
        # A step's gates, the cell and the state are read or written once; their gradients, too.
        moved = batch * (of_state.shape[0] + 3 * of_state.shape[1]) * 4 // _POINTWISE
        works += [Work("elementwise", moved, of_state.dtype)] * (steps * _POINTWISE * (2 if backward else 1))
    return tuple(works)


def _products(rows: int, weight: tuple[int, ...], dtype: str, backward: bool) -> list[Work]:
    """The product of so many rows with a weight; backward those of their gradient and of the weight's."""
    n, k = weight
    size = (rows * (n + k) + n * k) * ITEM_SIZES[dtype]
    if not backward:
        return [product("gemm", rows, n, k, 1, dtype, size)]
    return [product("gemm", rows, k, n, 1, dtype, size), product("gemm", n, k, rows, 1, dtype, size)]


_MAKERS = {
    "mm": _mm,
    "addmm": _mm,
    "matmul": _mm,
    "bmm": _bmm,
    "baddbmm": _bmm,
    "mv": _vector,
    "addmv": _vector,
    "dot": _vector,
    "linear": _linear,
    "linear_backward": _linear_backward,
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_overrideable": _convolution,
    "mps_convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_lstm_mps": _lstm,
    "lstm_mps_backward": _lstm,
    "_scaled_dot_product_attention_math_for_mps": attention,
    "scaled_dot_product_attention": attention,
}
