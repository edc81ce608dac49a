"""Operators of two tensors, each pair of elements by itself; either may be a number, and is broadcast.

Source: `c10/metal/indexing.h` (binary_dense, binary_dense_scalar, binary_dense_broadcast, binary_strided, each with a
cast and with one number more) of torch 2.13's wheel. The host reads a number of the CPU at the beginning of its storage
up to torch 2.13 (pytorch pull request 187229).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES, SCALAR_TYPES, all_dense, is_dense, result_of, sizes_of, strides_of
from anymps.kernels.launches._unary import UNARY, Row, argument, described, fields, is_exact

_READS_OFFSET = (2, 14)  # the first release that reads a CPU number where it lies
_NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}


_BOTH = ("self", "other")


def _mode(mode: str | None) -> Callable[[KernelCall], bool]:
    return lambda call: call.given.get("rounding_mode") == mode


def _unscaled(call: KernelCall) -> bool:
    alpha = call.given.get("alpha", 1)
    return isinstance(alpha, int) and alpha == 1


def _scaled(name: str) -> tuple[Row, ...]:
    return Row(name, when=_unscaled), Row(f"{name}_alpha", number=argument("alpha"), of="alpha")


def _backward(kernel: str, number: str = "", first: str = "grad_output") -> tuple[Row, ...]:
    return (Row(kernel, "same", (first, "self"), argument(number) if number else None),)


def _by_a_tensor(call: KernelCall) -> bool:
    """Whether a power is one for the kernel: not of 1, with which the host fills the result."""
    base, power = call.given["self"], call.given["exponent"]
    return isinstance(power, torch.Tensor) and (isinstance(base, torch.Tensor) or base != 1)


def _power(call: KernelCall) -> Work | None:
    """By a number it is an operator of one tensor."""
    return (_TENSOR_POWER if isinstance(call.given["exponent"], torch.Tensor) else UNARY["pow"])(call)


def _eps(call: KernelCall) -> float:
    """Negative where the call names none: then numbers outside of 0 to 1 have no gradient."""
    return -1.0 if call.given["eps"] is None else float(call.given["eps"])


_ALIKE = (
    "mul copysign fmax fmin hypot logaddexp logaddexp2 maximum minimum nextafter igamma igammac gcd lcm "
    "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift remainder fmod"
)
_POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w "
    "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l"
)
_TABLE: dict[str, tuple[Row, ...]] = {
    **{name: (Row(name),) for name in _ALIKE.split()},
    **{name: (Row(name, "bool"),) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: (Row(name, "float"),) for name in ("atan2", "xlogy")},
    **{f"special_{name}": (Row(name, "float"),) for name in ("zeta", "xlog1py")},
    **{f"special_{name}": (Row(name, "float", ("x", "n")),) for name in _POLYNOMIALS.split()},
    # From here of torch 2.15.
    "heaviside": (Row("heaviside", operands=("self", "values")),),
    **{f"logical_{name}": (Row(f"logical_{name}", "bool"),) for name in ("and", "or", "xor")},
    **{name: (Row(name, operands=("grad_output", "output")),) for name in ("sigmoid_backward", "tanh_backward")},
    "mish_backward": _backward("mish_backward"),
    "log_sigmoid_backward": (Row("log_sigmoid_backward", operands=("self", "grad_output")),),
    "softplus_backward": (Row("softplus_backward", "same", ("grad_output", "self"), fields("beta", "threshold")),),
    "logit_backward": (Row("logit_backward", "same", ("grad_output", "self"), _eps),),
    # To here.
    "add": _scaled("add"),
    "sub": _scaled("sub"),
    "div": (
        Row("div_true", "float", when=_mode(None)),
        Row("div_floor", when=_mode("floor")),
        Row("div_trunc", when=_mode("trunc")),
    ),
    "floor_divide": (Row("div_floor"),),
    "lerp": (
        Row(
            "lerp_alpha",
            operands=("self", "end"),
            number=argument("weight"),
            when=lambda call: not isinstance(call.given["weight"], torch.Tensor),
            of="weight",
        ),
    ),
    "silu_backward": _backward("silu_backward"),
    "hardswish_backward": _backward("hardswish_backward"),
    "hardsigmoid_backward": _backward("hardsigmoid_backward"),
    "gelu_backward": (
        Row("gelu_backward", "same", ("grad_output", "self"), when=is_exact),
        Row("gelu_tanh_backward", "same", ("grad_output", "self")),
    ),
    "leaky_relu_backward": (Row("leaky_relu_backward", "same", ("self", "grad_output"), argument("negative_slope")),),
    "elu_backward": (
        Row(
            "elu_backward",
            "same",
            ("grad_output", "self_or_result"),
            fields("alpha", "scale", "input_scale", "is_result"),
        ),
    ),
    "hardshrink_backward": _backward("shrink_backward", "lambd", "grad_out"),
    "softshrink_backward": _backward("shrink_backward", "lambd"),
}


def _describe(call: KernelCall, row: Row) -> Work | None:
    names = row.operands or _BOTH
    given = [call.given[name] for name in names]
    if not any(isinstance(one, torch.Tensor) for one in given):
        return None
    common = torch.result_type(*given)
    common = _NARROW.get(common, common)
    result = row.result_of(common)
    operands = [_operand(call, name) for name in names]
    if any(one.is_conj() or one.is_neg() or one.dtype not in NAMES for one in operands) or result not in NAMES:
        return None
    shape = torch._C._infer_size(operands[0].shape, operands[1].shape)
    on_device = [one for one, name in zip(operands, names, strict=True) if name not in call.foreign]
    out = result_of(call, shape, result, on_device)
    if out is None:
        return None
    work = result if row.result == "float" else common
    launch = _launch_of_two(call, row, operands, out, work, None if row.number is None else row.number(call))
    if launch is None:
        return None
    return Work((out,), (launch,) if out.numel() else ())


def _operand(call: KernelCall, name: str) -> torch.Tensor:
    """A tensor of an operand; one of no dimension on the CPU as the host hands it on."""
    value = call.given[name]
    if not isinstance(value, torch.Tensor):
        kind = torch.result_type(torch.empty((), dtype=torch.bool), value)
        return call.note(torch.tensor(value, dtype=_NARROW.get(kind, kind), device="cpu"), "number")
    if value.dtype in _NARROW:
        return call.note(value.to(_NARROW[value.dtype]), "value", name)
    if name in call.foreign and call.release < _READS_OFFSET:
        return value.as_strided((), (), 0)
    return value


def _launch_of_two(
    call: KernelCall, row: Row, operands: list[torch.Tensor], out: torch.Tensor, work: torch.dtype, number: Any
) -> Launch | None:
    a, b = operands
    cast = a.dtype != b.dtype
    of = work if cast else a.dtype
    layout, broadcast = _layout(a, b, out)
    ends = [""] if number is None else [f"_{NAMES[of]}", "_float"]
    if isinstance(number, dict):
        ends = ["_SoftplusParams"] if "beta" in number else [f"_ELUBackwardParams_{NAMES[of]}"]
    for one in dict.fromkeys((layout, "strided")):
        name = f"{row.kernel}_{one}{'_cast' * cast}_{NAMES[out.dtype]}_{NAMES[of]}"
        found = call.first([name + end for end in ends])
        if found is not None:
            break
    else:
        return None
    if row.of and isinstance(number, float):
        if not (of.is_floating_point or of.is_complex):
            return None  # refused by the host
        wide = torch.tensor(number, dtype=torch.float32 if found.endswith("_float") else of, device="cpu")
        number = call.note(wide, "float", row.of)
    further = () if number is None else (number,)
    types = [SCALAR_TYPES[a.dtype], SCALAR_TYPES[b.dtype]]
    if one == "strided":
        sizes = sizes_of(out.shape)
        strides = [strides_of(tensor, out.shape) for tensor in (out, a, b)]
        last = [len(sizes), *types, SCALAR_TYPES[out.dtype]] if cast else [len(sizes), 0, 0]
        return Launch(found, (out, a, b, *further, sizes, *strides, last), (out.numel(),))
    if broadcast is not None:
        further = (broadcast, *further)
    if cast:
        further = (*further, [a.element_size(), b.element_size(), *types])
    return Launch(found, (out, a, b, *further), (out.numel(),))


def _layout(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> tuple[str, int | None]:
    """How the operands lie, as kernels are named for it; and over how many elements one of them repeats."""
    if all_dense((out, a, b)):
        return "dense", None
    if is_dense(out):
        if b.numel() == 1 and all_dense((out, a)):
            return "dense_scalar", None
        if a.numel() == 1 and all_dense((out, b)):
            return "dense_scalar_lhs", None
        if out.is_contiguous():
            if _repeats(b, a):
                return "dense_broadcast", b.numel()
            if _repeats(a, b):
                return "dense_broadcast_rhs", a.numel()
    return "strided", None


def _repeats(small: torch.Tensor, large: torch.Tensor) -> bool:
    """Whether one is the last dimensions of the other, over and over."""
    shape = tuple(small.shape)
    return (
        large.is_contiguous()
        and small.is_contiguous()
        and small.dim() < large.dim()
        and tuple(large.shape[large.dim() - len(shape) :]) == shape
    )


_TENSOR_POWER = described((Row("pow", operands=("self", "exponent"), when=_by_a_tensor),), _describe)
BINARY: dict[str, Describe] = {
    **{name: described(rows, _describe) for name, rows in _TABLE.items()},
    "pow": _power,
}
