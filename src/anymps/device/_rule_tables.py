"""What the native core learns: rules, messages and limits of a release, and the Mac that the device acts as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anymps._vocabulary import Fate, Wait
from anymps.device._internal_code import internal_folders
from anymps.rules import (
    ERROR_CLASSES,
    NOT_CHECKED,
    SCALAR_TYPES,
    Family,
    Trait,
    When,
    alerts,
    castable_dtypes,
    core_table,
    device_checks,
    dtype_table,
    installed_torch,
    kernel_table,
    operator_limits,
    refused_cast,
    version_rules,
)
from anymps.rules.texts import (
    SAME_GPU_CHECKS,
    distributed_operator,
    fallback_warning,
    float64_allocation,
    float64_graph,
    float64_kernel,
    missing_kernel,
    missing_operator,
    tensor_on_cpu,
    undefined_type,
    unsupported_dtype,
    view_fallback_warning,
)

if TYPE_CHECKING:
    from anymps.mac import Mac
    from anymps.rules import CoreRow, TorchVersion

_OPERATOR = "%OP%"  # stands for the operator's name in the texts that the native core fills in


def rule_tables(version: TorchVersion) -> dict[str, Any]:
    """What torch `version` does on a Mac, as `configure` reads it by field (`native/bindings/rule_bindings.cpp`).

    `internal_folders` says where no code is the user's; `casts` are the bits of the dtypes that a copy casts between,
    with class and text of what refuses another; `same_gpu` holds texts by operator and argument. The other tables are
    those of `anymps.rules`.
    """
    return {
        "families": [*(family.name.lower() for family in Family), "convolution"],
        "internal_folders": internal_folders(),
        "operators": [*core_table(version), *composite_rows()],
        "dtypes": dtype_table(version),
        "kernels": kernel_table(version),
        "device_checks": device_checks(version),
        "alerts": alerts(version),
        "texts": _texts(version),
        "complex128_refused": version_rules(version).complex128_refused,
        "casts": _casts(version),
        "same_gpu": _same_gpu_texts(),
        "limits": {**operator_limits(version), **_kernel_texts()},
    }


def composite_rows() -> list[CoreRow]:
    """Operators that are composite on a Mac and one operator here: with the check that their mps branch makes.

    That of convolutions is none of `Family`; its number is the next. Source: torch 2.13,
    aten/src/ATen/native/Convolution.cpp.
    """
    fate, dense, convolution = int(Fate.NATIVE), int(Trait.DENSE), len(Family)
    no_wait = (int(Wait.NONE), When.ALWAYS.value)
    return [
        ("aten::convolution", fate, convolution, dense, *no_wait),
        ("aten::_convolution", fate, convolution, dense, *no_wait),
        ("aten::convolution_backward", fate, int(Family.PLACEHOLDER), dense, *no_wait),
    ]


def _texts(version: TorchVersion) -> dict[str, str]:
    git = installed_torch().git_version
    return {
        "not_checked": NOT_CHECKED.format(release=f"{version.major}.{version.minor}"),
        "float64": float64_allocation().text,
        "missing": missing_operator(_OPERATOR, git).text,
        "distributed": distributed_operator(_OPERATOR, git).text,
        "fallback_warning": fallback_warning(_OPERATOR).text,
        "view_fallback_warning": view_fallback_warning(_OPERATOR).text,
    }


def _kernel_texts() -> dict[str, tuple[int, str]]:
    """What an operator says of a dtype without a kernel, without a name in Metal, and without one in the graph."""
    said = {
        "missing kernel": missing_kernel(_OPERATOR),
        "metal type": undefined_type(_OPERATOR),
        "graph type": unsupported_dtype(_OPERATOR),
        "float64 graph": float64_graph(),
        "float64 kernel": float64_kernel(),
    }
    return {name: (ERROR_CLASSES.index(text.error), text.text) for name, text in said.items()}


def _casts(version: TorchVersion) -> tuple[int, int, str]:
    """Bits of the dtypes that a copy casts between; the class and the text that refuse another."""
    known = sum(1 << SCALAR_TYPES[dtype] for dtype in castable_dtypes(version))
    said = refused_cast(version, _OPERATOR)
    return known, ERROR_CLASSES.index(said.error), said.text


def _same_gpu_texts() -> dict[str, dict[str, str]]:
    """By operator and argument: the text if that argument alone lies on the CPU.

    With a first argument the result lies there too: it is allocated beside it.
    """
    texts: dict[str, dict[str, str]] = {}
    for operator, check in SAME_GPU_CHECKS.items():
        inputs = [(printed, schema) for _, printed, schema in check.arguments if printed != "out"]
        for index, (printed, schema) in enumerate(inputs):
            found = tensor_on_cpu(check, [printed, "out"] if index == 0 else [printed])
            if found is not None:
                texts.setdefault(operator, {})[schema] = found.text
    return texts


def machine(version: TorchVersion, mac: Mac, substrate: str, gpu: int) -> dict[str, Any]:
    """A torch on a Mac, as `install_device` of the core reads it by field (`native/bindings/device_bindings.cpp`).

    Memory is in bytes. `gpu` is the number of the NVIDIA GPU that computes, below 0 where the CPU plays it
    (`choose_substrate`, device/interface/substrate.h).
    """
    return {
        "torch_minor": version.release[1],
        "recommended_max_memory": mac.recommended_max_memory,
        "max_buffer_length": mac.max_buffer_length,
        "macos": mac.macos[:2],
        "substrate": substrate,
        "gpu": gpu,
    }
