"""Dtypes, sizes and strides as kernels take them, and the tensors that kernels write."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from anymps.kernels.launches._call import KernelCall

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
UNSIGNED = {torch.uint16: "ushort", torch.uint32: "uint", torch.uint64: "ulong"}
"""Those that few kernels have."""
MOST_32 = 2**31 - 1
"""Elements that 32 bits index."""
SCALAR_TYPES = {  # c10/core/ScalarType.h
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.complex32: 8,
    torch.complex64: 9,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
}


def reach(tensor: torch.Tensor) -> int:
    """How many elements lie from its first place to its last one."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a range of memory, in any order of dimensions."""
    return tensor.is_contiguous() or (reach(tensor) == tensor.numel() and 0 not in tensor.stride())


def all_dense(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the same element of each lies at the same place of a dense range."""
    first = tensors[0]
    return is_dense(first) and all(
        one.shape == first.shape and (one.stride() == first.stride() or (one.is_contiguous() and first.is_contiguous()))
        for one in tensors
    )


def result_of(
    call: KernelCall, shape: Sequence[int], dtype: torch.dtype, operands: Sequence[torch.Tensor] = ()
) -> torch.Tensor | None:
    """Where a call's result goes: what it writes, or new memory; None for a tensor that it would resize or cast.

    New memory has the order of the first operand that has its shape and is dense. An empty tensor gets the shape of the
    result without a word, as everywhere in PyTorch: operators such as `abs` are made of their own `out=` form and an
    empty tensor.
    """
    shape = torch.Size(shape)
    like = next((one.stride() for one in operands if one.shape == shape and is_dense(one)), None)
    if not call.written:
        return call.empty(shape, dtype, like)
    out = call.written[0]
    if out.dtype != dtype:
        return None
    if out.shape != shape:
        if out.numel():
            return None
        out.resize_(shape)
        if like is not None:
            out.as_strided_(shape, like)
    return out


def operand_to_write(call: KernelCall, x: torch.Tensor) -> torch.Tensor | None:
    """Where a call that changes a part of its operand writes: what it was given, or a copy of the operand.

    None for a tensor of another dtype or shape, or with elements that share memory.
    """
    if not call.written:
        return x.clone(memory_format=torch.contiguous_format)
    out = call.written[0]
    if out.dtype != x.dtype or out.shape != x.shape:
        return None
    alone = all(size == 1 or stride for size, stride in zip(out.shape, out.stride(), strict=True))
    return None if not alone else out if out is x else out.copy_(x)


def laid(**tensors: torch.Tensor) -> dict[str, list[int]]:
    """The fields of a struct that say how tensors lie, such as `input_sizes` and `input_strides`."""
    found: dict[str, list[int]] = {}
    for word, one in tensors.items():
        found |= {f"{word}_sizes": list(one.shape), f"{word}_strides": list(one.stride())}
    return found


def of_each_dimension(settings: Sequence[int], dims: int) -> tuple[int, ...]:
    """A setting for each dimension; one stands for all."""
    return tuple(settings) * (dims if len(settings) == 1 else 1)


def sizes_of(shape: Sequence[int]) -> list[int]:
    """The innermost dimension first, as kernels count; of a 0-dim tensor one dimension of one element."""
    return list(reversed(shape)) or [1]


def strides_of(tensor: torch.Tensor, shape: torch.Size) -> list[int]:
    """In bytes, the innermost first; 0 where the tensor is broadcast to `shape`."""
    strides = tensor.expand(shape).stride()
    return [stride * tensor.element_size() for stride in reversed(strides)] or [0]
