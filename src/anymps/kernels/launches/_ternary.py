"""Operators of three tensors, each element by itself, and gradients of samplers.

Source: `c10/metal/indexing.h` (ternary_dense, ternary_strided, each with a cast) of torch 2.15's wheel, the arguments
that its kernels describe, and those of `lerp` of torch 2.13's wheel, and `exec_ternary_kernel` of
`aten/src/ATen/native/mps/OperationUtils.mm` of the pytorch tree.

Source of samplers: `Distributions.mm` of the pytorch tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from anymps.kernels.launches._binary import BINARY
from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES, SCALAR_TYPES, all_dense, result_of, sizes_of, strides_of

_OWN_SHAPES = (2, 14)  # the last release in which `lerp` by tensors has kernels of its own shapes


def _result(call: KernelCall, operands: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Memory for the result: of the common dtype and shape; None where a call is for no kernel of three tensors."""
    if call.foreign or any(one.is_conj() or one.is_neg() or one.dtype not in NAMES for one in operands):
        return None
    a, b, c = operands
    common = torch.promote_types(torch.result_type(a, b), torch.result_type(a, c))
    if any(one.dim() == 0 for one in operands) and {one.dtype for one in operands} != {common}:
        return None  # a tensor of no dimension weighs less in the choice of the dtype
    shape = torch._C._infer_size(torch._C._infer_size(a.shape, b.shape), c.shape)
    return result_of(call, shape, common, operands)


def _work(call: KernelCall, out: torch.Tensor, launch: Launch | None) -> Work | None:
    if launch is None or launch.kernel not in call.kernels:
        return None  # nothing is launched for an empty result, so this is where a missing kernel is noticed
    return Work((out,), (launch,) if out.numel() else ())


def _places(out: torch.Tensor, operands: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """Sizes, then the strides of the result and of each operand, and how many dimensions there are."""
    sizes = sizes_of(out.shape)
    return (sizes, *(strides_of(one, out.shape) for one in (out, *operands)), len(sizes))


def _of_three(call: KernelCall, kernel: str, operands: Sequence[torch.Tensor], number: Any = None) -> Work | None:
    """The launch over three tensors, with a further argument or none; one that casts tells of the result, too."""
    out = _result(call, operands)
    if out is None or out.dtype not in NAMES:
        return None
    cast = len({one.dtype for one in operands}) > 1
    layout = "dense" if all_dense((out, *operands)) else "strided"
    of, end = NAMES[out.dtype], "" if number is None else f"_{NAMES[_number_dtype(out.dtype)]}"
    name = f"{kernel}_{layout}_cast_{of}{end}" if cast else f"{kernel}_{layout}_{of}_{of}{end}"
    if isinstance(number, float):
        number = call.note(torch.tensor(number, dtype=_number_dtype(out.dtype), device="cpu"), "float", "value")
    further: tuple[Any, ...] = () if number is None else (number,)
    types = [SCALAR_TYPES[one.dtype] for one in (*operands, out)]
    threads: tuple[int, ...] = (out.numel(),)
    if layout == "dense":
        further += ([one.element_size() for one in (*operands, out)], types) if cast else ()
    else:
        sizes, *_ = places = _places(out, operands)
        threads = (*[*sizes, 1][:2], math.prod(sizes[2:]))
        further += (*places, *([types] if cast else []))
    return _work(call, out, Launch(name, (out, *operands, *further), threads))


def _number_dtype(dtype: torch.dtype) -> torch.dtype:
    """Of the further argument: wide for numbers of 16 bits."""
    return torch.complex64 if dtype.is_complex else torch.float32 if dtype.is_floating_point else dtype


def _scaled(kernel: str) -> Describe:
    """A tensor plus a factor times the product, or the quotient, of two others; of torch 2.15."""

    def describe(call: KernelCall) -> Work | None:
        operands = [call.given[name] for name in ("self", "tensor1", "tensor2")]
        common = torch.promote_types(operands[0].dtype, torch.promote_types(operands[1].dtype, operands[2].dtype))
        value = call.given["value"]
        if not (common.is_floating_point or common.is_complex) and not isinstance(value, int):
            return None
        number = complex(value) if common.is_complex and not isinstance(value, float) else value
        return _of_three(call, kernel, operands, number)

    return describe


def _lerp(call: KernelCall) -> Work | None:
    """Dense, also with one weight for all, or strided, with kernels of their own for two and three dimensions."""
    if not isinstance(call.given["weight"], torch.Tensor):
        return BINARY["lerp"](call)
    operands = tuple(call.given[name] for name in ("self", "end", "weight"))
    out = _result(call, operands)
    if out is None or len({one.dtype for one in operands}) > 1:
        return None
    of = NAMES[out.dtype]
    if call.release > _OWN_SHAPES:
        return _of_three(call, "lerp", operands)
    threads: tuple[int, ...] = (out.numel(),)
    further: tuple[Any, ...] = ()
    whole = all(one.is_contiguous() and one.shape == out.shape for one in (out, *operands[:2]))
    if all_dense((out, *operands)):
        name = "dense"
    elif operands[2].dim() == 0 and whole:
        name = "scalar_weight"
    elif out.dim() in (2, 3):
        sizes, *strides, _ = _places(out, operands)
        name, threads, further = f"strided_{out.dim()}d", tuple(sizes), tuple(strides)
    else:
        name, further = "strided", _places(out, operands)
    return _work(call, out, Launch(f"lerp_tensor_{name}_{of}", (out, *operands, *further), threads))


TERNARY: dict[str, Describe] = {
    "lerp": _lerp,
    "addcmul": _scaled("addcmul"),
    "addcdiv": _scaled("addcdiv"),
}
