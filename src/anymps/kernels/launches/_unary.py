"""Operators of one tensor, each element by itself.

Source: `c10/metal/indexing.h` (unary_dense, unary_dense_scalar, unary_strided, unary_alpha_*) of torch 2.13's wheel,
and for what torch 2.15 adds the arguments of its kernels, and `UnaryKernel.h` and `Activation.h` of its wheel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES, all_dense, result_of, sizes_of, strides_of

_GROUP = (32, 1)


@dataclass(frozen=True)
class Row:
    """Which kernel computes elements: `kernel` is its name up to the layout, `operands` their names in its order.

    `result` is the dtype that it gives, by that of the operands. `number` makes the further argument of a call, which
    may be the argument `of` itself; `when` says whether a call is one for this kernel.
    """

    kernel: str
    result: Literal["same", "float", "bool"] = "same"
    operands: tuple[str, ...] = ()
    number: Callable[[KernelCall], Any] | None = None
    when: Callable[[KernelCall], bool] = lambda _: True
    of: str = ""

    def result_of(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the result from that of all operands."""
        if self.result == "bool":
            return torch.bool
        return torch.float32 if self.result == "float" and not (dtype.is_floating_point or dtype.is_complex) else dtype


def described(rows: tuple[Row, ...], describe: Callable[[KernelCall, Row], Work | None]) -> Describe:
    """By the first row that is for a call."""

    def find(call: KernelCall) -> Work | None:
        row = next((row for row in rows if row.when(call)), None)
        return None if row is None else describe(call, row)

    return find


def argument(name: str) -> Callable[[KernelCall], Any]:
    """A number of a call."""
    return lambda call: call.given[name]


def fields(*names: str) -> Callable[[KernelCall], dict[str, Any]]:
    """Several, as a struct."""
    return lambda call: {name: call.given[name] for name in names}


def _finite(call: KernelCall) -> dict[str, float]:
    """What stands for NaN and for the infinities: 0 and the ends of the dtype unless the call says otherwise."""
    given, dtype = call.given, call.given["self"].dtype
    ends = torch.finfo(dtype if dtype in (torch.float16, torch.bfloat16) else torch.float32)
    values = {"nan": 0.0, "posinf": ends.max, "neginf": ends.min}
    return {name: usual if given[name] is None else float(given[name]) for name, usual in values.items()}


def is_exact(call: KernelCall) -> bool:
    """Whether `gelu` is not to be approximated."""
    return str(call.given.get("approximate", "none")) == "none"


def _plain(call: KernelCall) -> bool:
    return "decimals" not in call.given


def _to_the(*powers: float) -> Callable[[KernelCall], bool]:
    """Powers that have kernels of their own; of integers only squares do."""

    def holds(call: KernelCall) -> bool:
        x, power = call.given["self"], call.given["exponent"]
        real = isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())
        return isinstance(power, (int, float)) and power in powers and (real or power == 2)

    return holds


def _power(call: KernelCall) -> Any:
    """As the kernel takes it: whole for integers, as a pair for complex numbers."""
    power = call.given["exponent"]
    return complex(power) if call.given["self"].is_complex() else power


def _by_a_number(call: KernelCall) -> bool:
    x, power = call.given["self"], call.given["exponent"]
    if not isinstance(x, torch.Tensor) or isinstance(power, torch.Tensor) or x.dtype == torch.bool:
        return False
    if not (x.is_floating_point() or x.is_complex()) and not isinstance(power, int):
        return False  # the result is of another dtype than the tensor
    return power not in (0, 1) and not (isinstance(power, complex) and not x.is_complex())


_FLOATS = (
    "acos asin atan cos cosh digamma erf erfc erfinv exp exp2 expm1 i0 lgamma log log10 log1p log2 reciprocal "
    "rsqrt sigmoid sin sinc sinh sqrt tan tanh"
)
_BESSEL = (
    "bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 "
    "modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1"
)
_TABLE: dict[str, tuple[Row, ...]] = {
    **{name: (Row(name),) for name in ("bitwise_not", "relu", "silu", "hardswish", "hardsigmoid")},
    **{name: (Row(name, "float"),) for name in _FLOATS.split()},
    **{
        f"special_{name}": (Row(name, "float"),)
        for name in ("entr", "erfcx", "i0e", "i1", "i1e", "spherical_bessel_j0")
    },
    **{f"special_{name}": (Row(f"{name}_forward", "float"),) for name in _BESSEL.split()},
    **{name: (Row(name),) for name in ("ceil", "floor", "mish", "trunc")},  # of torch 2.15, as are the next two
    **{name: (Row(name, "bool"),) for name in ("isneginf", "isposinf")},
    "abs": (Row("abs", when=lambda call: not call.given["self"].is_complex()),),
    "neg": (Row("neg"),),
    "round": (Row("round", when=_plain), Row("round_decimals", number=argument("decimals"))),
    "gelu": (Row("gelu", when=is_exact), Row("gelu_tanh")),
    "hardshrink": (Row("hardshrink", number=argument("lambd")),),
    "softshrink": (Row("softshrink", number=argument("lambd")),),
    "leaky_relu": (Row("leaky_relu", number=argument("negative_slope")),),
    "polygamma": (
        Row("trigamma", "float", when=lambda call: call.given["n"] == 1),
        Row("polygamma", "float", number=argument("n"), when=lambda call: call.given["n"] > 1),
    ),
    "pow": (  # aten/src/ATen/native/mps/operations/UnaryKernel.mm of the pytorch tree
        Row("sqr", when=_to_the(2)),
        Row("reciprocal", when=_to_the(-1)),
        Row("rsqrt", when=_to_the(-0.5)),
        Row("sqrt", when=_to_the(0.5)),
        Row("pow_scalar", number=_power, when=_by_a_number),
    ),
    "elu": (Row("elu", number=fields("alpha", "scale", "input_scale")),),
    "logical_not": (Row("logical_not", "bool"),),
    "softplus": (Row("softplus", number=fields("beta", "threshold")),),
    "nan_to_num": (Row("nan_to_num", number=_finite),),
}
_PARAMS = {"alpha": "ELUParams_{}", "beta": "SoftplusParams", "nan": "NanToNumParams_float"}
"""How kernels' names end that take a struct, by its first field."""


def _describe(call: KernelCall, row: Row) -> Work | None:
    x = next(one for one in call.given.values() if isinstance(one, torch.Tensor))  # releases name it differently
    if call.foreign or x.is_conj() or x.is_neg() or x.dtype not in NAMES:
        return None
    out = result_of(call, x.shape, row.result_of(x.dtype), (x,))
    if out is None:
        return None
    number = None if row.number is None else row.number(call)
    if isinstance(number, float) and not x.is_floating_point():
        return None  # the kernel of integers takes the number as an integer
    ends = [""] if number is None else _number_types(number, x.dtype)
    launch = launch_of_one(call, row.kernel, x, out, number, ends)
    if launch is None:
        return None
    return Work((out,), (launch,) if out.numel() else ())


def launch_of_one(
    call: KernelCall, kernel: str, x: torch.Tensor, out: torch.Tensor, number: Any, ends: list[str]
) -> Launch | None:
    """The launch over one tensor, with a further argument or None; `ends` are how the kernel's name may end."""
    types = f"{NAMES[out.dtype]}_{NAMES[x.dtype]}"
    further = () if number is None else (number,)
    if all_dense((out, x)):
        # Without a number, that of one element a thread: the one of four has the same arithmetic.
        layout = "dense_scalar" if number is None else "dense"
        dense = call.first([f"{kernel}_{layout}_{types}{end}" for end in ends])
        if dense is not None:
            return Launch(dense, (out, x, *further), (out.numel(),))
    name = call.first([f"{kernel}_strided_{types}{end}" for end in ends])
    if name is None:
        return None
    sizes = sizes_of(x.shape)
    places = (sizes, strides_of(x, x.shape), strides_of(out, x.shape), len(sizes))
    return Launch(name, (out, x, *places, *further), (sizes[0], out.numel() // max(sizes[0], 1)), _GROUP)


def _number_types(number: Any, dtype: torch.dtype) -> list[str]:
    """How the names of kernels with one more argument may end: its type is that of the tensor, or wider."""
    own = NAMES[dtype]
    if isinstance(number, dict):
        return [f"_{_PARAMS[next(iter(number))]}".format(own)]
    return [f"_{one}" for one in (own, "float", "long", "int", "float2")]


def _log_sigmoid(call: KernelCall) -> Work | None:
    """The second result is for the CPU's backward alone, and empty here."""
    work = _describe(call, Row("log_sigmoid_forward")) if not call.written else None
    if work is None:
        return None
    return Work((*work.results, call.empty([0], work.results[0].dtype)), work.launches)


UNARY: dict[str, Describe] = {
    **{name: described(rows, _describe) for name, rows in _TABLE.items()},
    "log_sigmoid_forward": _log_sigmoid,
}
