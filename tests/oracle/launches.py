"""How the kernels that compute an operator's call are run: as the device would with `kernels="real"`, or as told here.

What `anymps.kernels.launches` describes is taken from there. The rest are copies, casts, complex numbers of two
parts and clamps, for which the device has no description yet. Source: `c10/metal/indexing.h` of the wheel (the kernels
and their arguments), and their own metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from anymps.kernels import KernelLibrary, Launcher
from anymps.kernels.launches import NAMES, SCALAR_TYPES

from .operators import Operator


class _Calls(TorchDispatchMode):
    """Notes the operators that a call comes to, with all arguments in the order of the schema."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema, named = func._schema, dict(kwargs or {})
        given = [
            args[at] if at < len(args) else named.get(one.name, one.default_value)
            for at, one in enumerate(schema.arguments)
        ]
        self.seen.append((schema.name + (f".{schema.overload_name}" if schema.overload_name else ""), given))
        return func(*args, **named)


def described_by(launcher: Launcher) -> set[str]:
    """The names of the operators whose launches are described."""
    return {name for name, *_ in launcher.operators()}


def run_described(
    launcher: Launcher, call: Callable[..., Any], tensors: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, ...] | None:
    """The results of the first operator of a call whose launch is described, on copies of this machine; else None."""
    described = described_by(launcher)
    with _Calls() as calls:
        call(*tensors)
    for operator, given in calls.seen:
        if operator in described:
            return launcher(operator, [one.cpu() if isinstance(one, torch.Tensor) else one for one in given], [])
    return None


def run_kernel(
    library: KernelLibrary, operator: Operator, tensors: tuple[torch.Tensor, ...], like: torch.Tensor
) -> torch.Tensor | None:
    """The result of the operator's kernel, of the shape and type of `like`; None if there is no kernel for that."""
    given = [one.expand(like.shape) if one.shape != like.shape else one for one in tensors]
    dense = all(one.is_contiguous() for one in given)
    out = torch.zeros(like.shape, dtype=like.dtype, device="mps")
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


def run_cast(
    library: KernelLibrary, source: torch.Tensor, dtype: torch.dtype, kernel: str = "copy_identity"
) -> torch.Tensor | None:
    """A copy of a tensor in another type, by the kernel that casts; None if there is none."""
    name = f"{kernel}_dense_castout_{NAMES[source.dtype]}"
    if name not in library:
        return None
    out = torch.zeros(source.shape, dtype=dtype, device="mps")
    library[name](out, source, [out.element_size(), SCALAR_TYPES[dtype]], threads=out.numel())
    return out
