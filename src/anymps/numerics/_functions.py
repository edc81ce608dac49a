"""Which operators are exact, and how many units in the last place the functions of one element may be off.

The numbers of Metal's own functions are those of the Metal Shading Language Specification 4.1, section 8.4: table 8.1
(without fast math), table 8.2 (with it), table 8.3 (half) and table 8.4 (bfloat). PyTorch compiles its kernels without
fast math. What MPSGraph does is not published, so the second table is allowed for its operators. The functions that
PyTorch builds of Metal's are allowed the sum of what their steps are allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


def names_of(text: str) -> frozenset[str]:
    """The names in a text, separated by blanks."""
    return frozenset(text.split())


EXACT: Final = names_of(
    """
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    abs absolute alias all amax amin any arange argmax argmin argsort bitwise_and bitwise_left_shift bitwise_not
    bitwise_or bitwise_right_shift bitwise_xor broadcast_to bucketize cat ceil chunk clamp clamp_max clamp_min clip
    clone conj conj_physical constant_pad_nd contiguous copysign count_nonzero cummax cummin diag diag_embed
    diagonal_copy embedding eq eye fill flip floor fmax fmin frac full full_like gather ge greater greater_equal gt
    hardshrink heaviside im2col index index_copy index_fill index_select isfinite isin isinf isnan isneginf isposinf
    le less less_equal logical_and logical_not logical_or logical_xor lt masked_fill masked_scatter masked_select
    max max_pool2d max_pool2d_with_indices max_pool3d_with_indices maximum median min minimum msort nan_to_num ne
    neg negative new_full new_ones new_zeros nextafter nonzero not_equal one_hot ones ones_like permute_copy
    pixel_shuffle pixel_unshuffle put reflection_pad1d reflection_pad2d reflection_pad3d relu repeat
    repeat_interleave replication_pad1d replication_pad2d replication_pad3d roll rot90 round scatter searchsorted
    select_copy select_scatter sgn sign signbit slice_copy slice_scatter sort split_copy split_with_sizes_copy stack
    take threshold threshold_backward topk tril tril_indices triu triu_indices trunc unfold_copy unique
    unique_consecutive unsqueeze_copy upsample_nearest1d upsample_nearest2d upsample_nearest3d where zero zeros
    zeros_like
    """
)
"""Operators that place, choose or compare numbers, or compute them without rounding."""

MOVES: Final = names_of("cat clone copy embedding flip gather index index_select repeat roll stack zero")
"""Those among them, and copies, that leave the numbers of one dtype as they are."""

ROUNDED_IF_COMPLEX: Final = names_of("abs absolute sgn sign")
"""Those among them that round where the number is complex: they take its length."""

_COMPARISONS: Final = names_of("eq ne lt le gt ge equal isclose")


@dataclass(frozen=True)
class Accuracy:
    """What one function of an element is allowed, in units in the last place of its result."""

    ulps: float
    fast_ulps: float | None = None  # where MPSGraph computes it; None: the same
    of_input: bool = False  # the units are of the largest input, not of the result: its formula cancels
    source: str = "Metal Shading Language Specification 4.1, table 8.1"


_OWN: Final = "the sum of its steps, each by the Metal Shading Language Specification 4.1, table 8.1"


def _own(ulps: float, fast: float | None = None, *, of_input: bool = False) -> Accuracy:
    return Accuracy(ulps, fast, of_input, _OWN)


FUNCTIONS: Final = {
    # correctly rounded: half a unit
    **dict.fromkeys(names_of("add sub subtract rsub mul multiply"), Accuracy(0.5)),
    **dict.fromkeys(names_of("div divide true_divide"), Accuracy(0.5, 2.5)),
    "reciprocal": Accuracy(0.5, 1),
    "sqrt": Accuracy(0.5, 3),
    "rsqrt": Accuracy(0.5, 2),
    "fmod": Accuracy(0),
    "square": Accuracy(0.5),
    "_to_copy": Accuracy(0.5),
    "copy": Accuracy(0.5),
    "to": Accuracy(0.5),
    "floor_divide": Accuracy(0.5, 2.5),
    # Metal's functions
    **dict.fromkeys(names_of("acos acosh asin asinh"), Accuracy(4, 5)),
    **dict.fromkeys(names_of("arccos arccosh arcsin arcsinh"), Accuracy(4, 5)),
    **dict.fromkeys(names_of("atan atanh arctan arctanh tanh"), Accuracy(5, 10)),
    "atan2": Accuracy(6, 8),
    **dict.fromkeys(names_of("cos cosh exp exp2 log log2 log10 sin sinh"), Accuracy(4, 8)),
    "tan": Accuracy(6, 16),
    **dict.fromkeys(names_of("pow float_power"), Accuracy(16, 32)),
    # PyTorch's functions, of Metal's
    "expm1": _own(6),
    "log1p": _own(6),
    "sigmoid": _own(6),
    "silu": _own(7),
    **dict.fromkeys(names_of("hypot abs absolute sgn"), _own(4)),
    "erf": _own(16),
    "erfc": _own(32),
    "erfinv": _own(32),
    "sinc": _own(8),
    "xlogy": _own(6),
    "special_xlog1py": _own(8),
    "special_entr": _own(6),
    "hardsigmoid": _own(3, of_input=True),
    "hardswish": _own(4, of_input=True),
    "leaky_relu": Accuracy(0.5),
    "deg2rad": Accuracy(0.5),
    "rad2deg": Accuracy(0.5),
    "lerp": _own(3, of_input=True),
    "addcmul": _own(3, of_input=True),
    "addcdiv": _own(5, of_input=True),
    "softshrink": Accuracy(0.5),
    "gelu": _own(20, of_input=True),  # x (1 + erf(x / √2)) / 2: the sum cancels left of zero
    "mish": _own(20, of_input=True),
    "softplus": _own(10, of_input=True),
    "elu": _own(8, of_input=True),
    "celu": _own(8, of_input=True),
    "selu": _own(8, of_input=True),
    "log_sigmoid_forward": _own(10, of_input=True),
    "remainder": _own(2, of_input=True),  # x - y floor(x / y)
    "glu": _own(8),
    "logaddexp": _own(12, of_input=True),
    "logaddexp2": _own(12, of_input=True),
    "logit": _own(12, of_input=True),
}
"""The functions of one element whose accuracy follows from the specification."""


def is_comparison(name: str) -> bool:
    """Whether an operator answers yes or no for each element."""
    return name in _COMPARISONS


def is_fused_step(name: str) -> bool:
    """Whether an operator is the step of a fused optimizer."""
    return name.startswith("_fused_") and "rms_norm" not in name
