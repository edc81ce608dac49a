"""Dtypes that a copy on the device can cast from and to, by torch release, and what it says to any other.

Sources, all in the macOS arm64 wheels. Up to torch 2.12 `copy_cast_mps` casts in an MPSGraph, whose types are those of
`getMPSDataType`. From 2.13 on `copy_cast_kernel_mps` launches a Metal kernel named after both dtypes
(`scalarToMetalTypeString`): `copy_identity_dense_castout_<dtype>` in the metallibs, each of which stores to every dtype
that has such a kernel. The jump tables of the two functions and the stores of the kernels agree.
"""

from __future__ import annotations

from typing import Final

from anymps.rules._readings import Reading
from anymps.rules._versions import TorchVersion, version_rules
from anymps.rules.texts import BackendText, undefined_type, unsupported_dtype

READING: Final = Reading("casts", "jump tables and metallibs of the macOS arm64 wheels", (2, 11), (2, 15))

_KNOWN: Final = (
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "complex32",
    "complex64",
    "bool",
    "bfloat16",
    "uint16",
    "uint32",
    "uint64",
)


def castable_dtypes(version: str | TorchVersion) -> tuple[str, ...]:
    """The dtypes between which the device casts, each to each.

    Raises UnsupportedTorchError for a release outside the supported range.
    """
    return (*_KNOWN, "float8_e4m3fn") if version_rules(version).float8_e4m3fn else _KNOWN


def refused_cast(version: str | TorchVersion, scalar_type: str) -> BackendText:
    """What a cast from or to a dtype outside of `castable_dtypes` says; `scalar_type` is the C++ name: `Float8_e5m2`.

    Where both dtypes are outside, the target is named. Raises UnsupportedTorchError like `castable_dtypes`.
    """
    return (undefined_type if version_rules(version).metal_casts else unsupported_dtype)(scalar_type)
