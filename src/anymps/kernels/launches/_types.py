"""What kernels call the dtypes: in their names, and as numbers in their arguments."""

from __future__ import annotations

import torch

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


def of_numbers(dtype: torch.dtype) -> str:
    """The name in the kernels of extremes, which take truth values as numbers; the empty text if there is none."""
    return NAMES.get(torch.int8 if dtype == torch.bool else dtype, "")
