"""The element types of checkpoints: their names in torch and safetensors, their sizes, what they become for mps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Dtype:
    """An element type. `name` is torch's, `itemsize` the bytes of an element."""

    name: str
    itemsize: int
    storage: str | None = None
    """The storage class that a torch file names it by; None: an untyped storage whose tensors name the type."""
    safetensors: str | None = None
    """Its code in a safetensors header; None: the format has none."""
    becomes: str | None = None
    """The type that takes its place for mps; None: MPS can hold it."""


# float64 and complex128 cannot be on mps (torch 2.13, aten/src/ATen/mps/EmptyTensor.cpp). Quantized types, bits and
# types with several elements a byte are left out on purpose: what is not in this table is refused by name.
_ALL: Final = (
    Dtype("float64", 8, "DoubleStorage", "F64", "float32"),
    Dtype("complex128", 16, "ComplexDoubleStorage", None, "complex64"),
    Dtype("float32", 4, "FloatStorage", "F32"),
    Dtype("complex64", 8, "ComplexFloatStorage", "C64"),
    Dtype("float16", 2, "HalfStorage", "F16"),
    Dtype("bfloat16", 2, "BFloat16Storage", "BF16"),
    Dtype("int64", 8, "LongStorage", "I64"),
    Dtype("int32", 4, "IntStorage", "I32"),
    Dtype("int16", 2, "ShortStorage", "I16"),
    Dtype("int8", 1, "CharStorage", "I8"),
    Dtype("uint8", 1, "ByteStorage", "U8"),
    Dtype("bool", 1, "BoolStorage", "BOOL"),
    Dtype("uint16", 2, None, "U16"),
    Dtype("uint32", 4, None, "U32"),
    Dtype("uint64", 8, None, "U64"),
    Dtype("complex32", 4),
    Dtype("float8_e4m3fn", 1, None, "F8_E4M3"),
    Dtype("float8_e5m2", 1, None, "F8_E5M2"),
    Dtype("float8_e4m3fnuz", 1),
    Dtype("float8_e5m2fnuz", 1),
    Dtype("float8_e8m0fnu", 1, None, "F8_E8M0"),
)

DTYPES: Final = {dtype.name: dtype for dtype in _ALL}
BY_STORAGE: Final = {dtype.storage: dtype for dtype in _ALL if dtype.storage}
BY_CODE: Final = {dtype.safetensors: dtype for dtype in _ALL if dtype.safetensors}


def for_mps(dtype: Dtype) -> Dtype:
    """The type that elements have after the conversion."""
    return DTYPES[dtype.becomes] if dtype.becomes else dtype
