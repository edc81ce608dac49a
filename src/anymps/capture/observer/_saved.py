"""What autograd keeps of a call: arguments before its kernel runs, results after it."""

from __future__ import annotations

from typing import Final

_RESULTS_ALONE: Final = frozenset(
    {
        "_log_softmax",
        "_safe_softmax",
        "_softmax",
        "celu_",
        "elu_",
        "exp",
        "exp2",
        "expm1",
        "kthvalue",
        "leaky_relu_",
        "max.dim",
        "median.dim",
        "min.dim",
        "mode",
        "nanmedian.dim",
        "native_dropout",
        "polar",
        "reciprocal",
        "relu",
        "rsqrt",
        "sigmoid",
        "sort",
        "sort.stable",
        "special_ndtri",
        "sqrt",
        "tan",
        "tanh",
        "topk",
    }
)
"""Operators whose formula names no argument but a result (tools/autograd/derivatives.yaml, torch 2.11 to 2.15)."""


def keeps_results_alone(operator: str) -> bool:
    """Whether a hook on what autograd keeps of `aten::exp` runs after the kernel, and never before it.

    The early stop of `torch.utils.checkpoint` raises in such a hook: it then ends a call whose kernel has run. A form
    in place has the formula of its operator.
    """
    name = operator.removeprefix("aten::")
    return name in _RESULTS_ALONE or name.removesuffix("_") in _RESULTS_ALONE
