"""An LSTM that MPS runs as one graph, as the products and pointwise kernels of its layers and steps.

The layers' input part is one product over all steps; their state part is a product per step, each after the one before.
How MPSGraph divides the rest of a step is not public. Three kernels (the gates, the cell, the state), and twice as many
for the gradient, are an assumption, which one public training step of an LSTM confirms.
"""

from __future__ import annotations

from typing import Final

from anymps.cost._classes import Operands, Work
from anymps.cost._matrix import product
from anymps.cost._tensors import ITEM_SIZES

_GATES: Final = 4
_POINTWISE: Final = 3  # kernels of a step beside its product


def recurrent_work(name: str, tensors: Operands) -> tuple[Work, ...] | None:
    """The kernels of `_lstm_mps` and of its gradient; None for another operator.

    Raises IndexError or ValueError for other tensors than the operator takes.
    """
    if name not in ("_lstm_mps", "lstm_mps_backward"):
        return None
    weights = [t for t in tensors.inputs if len(t.shape) == 2 and t.shape[0] % _GATES == 0]
    backward = name == "lstm_mps_backward"
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
