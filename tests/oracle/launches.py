"""How the backend's host code calls the kernels of one element at a time, on tensors of the device.

Source: `c10/metal/indexing.h` of the wheel (the kernels and their arguments), and their own metadata.
"""

from __future__ import annotations

import torch

from anymps.metal.kernels import KernelLibrary

from .operators import Operator

NAMES = {
    torch.float32: "float",
    torch.float16: "half",
    torch.bfloat16: "bfloat",
    torch.int64: "long",
    torch.int32: "int",
    torch.int16: "short",
    torch.int8: "char",
    torch.uint8: "uchar",
    torch.bool: "bool",
    torch.complex64: "float2",
    torch.complex32: "half2",
}
# c10/core/ScalarType.h
_SCALAR_TYPES = {"uchar": 0, "char": 1, "short": 2, "int": 3, "long": 4, "half": 5, "float": 6, "half2": 8, "float2": 9}
_SCALAR_TYPES |= {"bool": 11, "bfloat": 15}


def run_kernel(
    library: KernelLibrary, operator: Operator, tensors: tuple[torch.Tensor, ...], like: torch.Tensor
) -> torch.Tensor | None:
    """The result of the operator's kernel, of the shape and type of `like`; None if there is no kernel for that."""
    given = [one.expand(like.shape) if one.shape != like.shape else one for one in tensors]
    dense = all(one.is_contiguous() for one in given)
    out = torch.empty(like.shape, dtype=like.dtype, device="mps")
    layout = "dense" if dense else "strided"
    name = _name(library, operator, layout, like.dtype, tensors[0].dtype)
    if name is None or like.numel() == 0:
        return None
    kernel = library[name]
    if dense:
        named = {"numel": out.numel()} if any(one.name == "numel" for one in kernel.signature.buffers) else {}
        alpha = [operator.alpha] if operator.alpha is not None else []
        threads = -(-out.numel() // 4) if named else out.numel()
        kernel(out, *given, *alpha, threads=threads, **named)
        return out
    sizes = list(reversed(like.shape)) or [1]
    strides = [[stride * one.element_size() for stride in reversed(one.stride())] or [0] for one in (out, *given)]
    alpha = [operator.alpha] if operator.alpha is not None else []
    if operator.tensors == 1:
        # sizes, strides of the input, then of the output
        grid = (sizes[0], out.numel() // sizes[0])
        kernel(out, *given, sizes, strides[1], strides[0], len(sizes), *alpha, threads=grid, group_size=(32, 1))
    else:
        kernel(out, *given, *alpha, sizes, *strides, [len(sizes), 0, 0], threads=out.numel())
    return out


def _name(
    library: KernelLibrary, operator: Operator, layout: str, result: torch.dtype, source: torch.dtype
) -> str | None:
    """The kernel of an operator, by the types of its result and its operands."""
    types = f"{NAMES.get(result)}_{NAMES.get(source)}"
    base = f"{operator.kernel}_{layout}_{types}"
    if operator.alpha is None:
        # One element a thread, as for small tensors.
        scalar = f"{operator.kernel}_{layout}_scalar_{types}"
        if operator.tensors == 1 and layout == "dense" and scalar in library:
            return scalar
        return base if base in library else None
    types_ = [one for one in ("float", "half", "bfloat", "long", "int", NAMES.get(source)) if one]
    ends = [NAMES.get(source), *types_, *(f"ClampScalarParams_{one}" for one in types_)]
    return next((f"{base}_{end}" for end in ends if f"{base}_{end}" in library), None)


def run_cast(library: KernelLibrary, source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    """A copy of a tensor in another type, by the kernel that casts; None if there is none."""
    name = f"copy_identity_dense_castout_{NAMES[source.dtype]}"
    if name not in library:
        return None
    out = torch.empty(source.shape, dtype=dtype, device="mps")
    library[name](out, source, [out.element_size(), _SCALAR_TYPES[NAMES[dtype]]], threads=out.numel())
    return out
