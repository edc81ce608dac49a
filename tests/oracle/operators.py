"""Operators that one Metal kernel computes: its name, the call that it stands for, and the entry of torch's database.

Source: the names and arguments of the kernels of torch 2.13's macOS wheel; `c10/metal/indexing.h` of the wheel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten
special = torch.special


@dataclass(frozen=True)
class Operator:
    """`kernel` is the name of its kernels up to the layout."""

    kernel: str
    call: Callable[..., torch.Tensor]
    tensors: int
    entry: str = ""
    variant: str = ""
    divides: bool = False
    shifts: bool = False
    orders: bool = False

    @property
    def title(self) -> str:
        """How the page calls it."""
        return f"{self.entry}, {self.variant}" if self.variant else self.entry or self.kernel


def _unary(kernel: str, call: Callable[..., torch.Tensor] | None = None, entry: str = "", **more: Any) -> Operator:
    return Operator(kernel, call or getattr(torch, kernel), 1, entry or kernel, **more)


def _binary(kernel: str, call: Callable[..., torch.Tensor] | None = None, entry: str = "", **more: Any) -> Operator:
    return Operator(kernel, call or getattr(torch, kernel), 2, entry or kernel, **more)


def _special(name: str, tensors: int, kernel: str = "") -> Operator:
    return Operator(kernel or name, getattr(special, name), tensors, f"special.{name}", orders="polynomial" in name)


_PLAIN = "abs acos asin atan bitwise_not cos cosh digamma erf erfc erfinv exp exp2 expm1 i0 lgamma log log10 log1p"
_PLAIN += " log2 neg reciprocal round rsqrt sigmoid sin sinc sinh sqrt tan tanh"
_SPECIAL = "entr erfcx i0e i1 i1e spherical_bessel_j0"
_FORWARD = "bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_i1 modified_bessel_k0"
_FORWARD += " modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1"
_PAIRS = (
    "add sub mul atan2 copysign fmax fmin hypot logaddexp logaddexp2 maximum minimum nextafter xlogy igamma igammac"
)
_PAIRS += " gcd bitwise_and bitwise_or bitwise_xor eq ne lt le gt ge"
_POLYNOMIALS = "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w"
_POLYNOMIALS += " shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v"
_POLYNOMIALS += " shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l"


OPERATORS: tuple[Operator, ...] = (
    *(_unary(name) for name in _PLAIN.split()),
    *(_special(name, 1) for name in _SPECIAL.split()),
    *(_special(name, 1, f"{name}_forward") for name in _FORWARD.split()),
    *(_unary(name) for name in ("ceil", "floor", "isneginf", "isposinf")),
    _unary("relu", entry="nn.functional.relu"),
    _unary("silu", F.silu, "nn.functional.silu"),
    _unary("hardswish", F.hardswish, "nn.functional.hardswish"),
    _unary("hardsigmoid", F.hardsigmoid, "nn.functional.hardsigmoid"),
    _unary("gelu", F.gelu, "nn.functional.gelu"),
    _unary("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), "nn.functional.gelu", variant="tanh"),
    _unary("mish", F.mish, "nn.functional.mish"),
    _unary("trunc"),
    _unary("logical_not"),
    _unary("softplus", lambda x: F.softplus(x, 1.5, 10), "nn.functional.softplus"),
    _unary("nan_to_num"),
    _unary("log_sigmoid_forward", F.logsigmoid, "nn.functional.logsigmoid"),
    _unary("trigamma", lambda x: torch.polygamma(1, x), "polygamma", variant="n = 1"),
    _unary("hardshrink", F.hardshrink, "nn.functional.hardshrink"),
    _unary("softshrink", F.softshrink, "nn.functional.softshrink"),
    _unary("leaky_relu", F.leaky_relu, "nn.functional.leaky_relu"),
    _unary("polygamma", lambda x: torch.polygamma(3, x), "polygamma", variant="n = 3"),
    _unary("round_decimals", lambda x: torch.round(x, decimals=2), "round", variant="2 decimals"),
    *(_binary(name) for name in _PAIRS.split()),
    *(_special(name, 2) for name in ("zeta", "xlog1py", *_POLYNOMIALS.split())),
    *(_binary(f"logical_{name}") for name in ("and", "or", "xor")),
    _binary("sigmoid_backward", aten.sigmoid_backward),
    _binary("tanh_backward", aten.tanh_backward),
    _binary("mish_backward", aten.mish_backward),
    _binary("softplus_backward", lambda g, x: aten.softplus_backward(g, x, 1.5, 10)),
    _binary("logit_backward", lambda g, x: aten.logit_backward(g, x, 0.1)),
    _binary("div_true", torch.div, "div", divides=True),
    _binary("div_floor", torch.floor_divide, "floor_divide", divides=True),
    _binary("div_trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), "div", variant="trunc", divides=True),
    _binary("lcm", divides=True),
    _binary("heaviside"),
    _binary("pow", variant="by a tensor"),
    _binary("remainder", divides=True),
    _binary("fmod", divides=True),
    _binary("bitwise_left_shift", shifts=True),
    _binary("bitwise_right_shift", shifts=True),
    _binary("silu_backward", aten.silu_backward),
    _binary("hardswish_backward", aten.hardswish_backward),
    _binary("hardsigmoid_backward", aten.hardsigmoid_backward),
    _binary("gelu_backward", aten.gelu_backward),
    _binary(
        "gelu_tanh_backward", lambda g, x: aten.gelu_backward(g, x, approximate="tanh"), "gelu_backward", variant="tanh"
    ),
    _binary("leaky_relu_backward", lambda x, g: aten.leaky_relu_backward(g, x, 0.01, False)),
    _binary("shrink_backward", lambda g, x: aten.hardshrink_backward(g, x, 0.5), "hardshrink_backward"),
    _binary("add_alpha", lambda x, y: torch.add(x, y, alpha=3), "add", variant="alpha = 3"),
    _binary("sub_alpha", lambda x, y: torch.sub(x, y, alpha=3), "sub", variant="alpha = 3"),
    _binary("lerp_alpha", lambda x, y: torch.lerp(x, y, 0.3), "lerp", variant="a number"),
)
