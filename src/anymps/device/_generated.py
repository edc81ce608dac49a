"""The headers that are written for a build: what the release does, shared words, and lists of operators.

The core includes them as `<anymps/release.h>`, `<anymps/vocabulary.h>`, `<anymps/typed_kernels.h>` and
`<anymps/operator_shims.h>`. They lie in the folder of the build and are part of its key.
"""

from __future__ import annotations

import re
from dataclasses import fields
from enum import Enum, IntEnum, IntFlag
from typing import Final

from anymps._vocabulary import Direction, Fate, Flag, Phase, RefusalKind, Role, RoundKind, Wait
from anymps.rules import ERROR_CLASSES, TorchVersion, Trait, VersionRules, installed_torch, version_rules

_NUMBERS: Final[tuple[type[IntEnum], ...]] = (Fate, Wait, Direction, Phase, RoundKind, Role)
# Bits by the name of the C++ enum and its type.
_BITS: Final[dict[str, tuple[str, type[IntFlag]]]] = {"Trait": ("uint32_t", Trait), "EntryFlag": ("uint8_t", Flag)}

# The operators that make up most training steps, by what computes their typed kernel (kernels/redirect/unboxed.h).
_TYPED: Final[dict[str, str]] = {
    "OnCpuWithNumber": "add.Tensor add_.Tensor sub.Tensor mul.Tensor mul_.Tensor div.Tensor div_.Tensor",
    "OnCpu": "addcmul_ addcdiv_ lerp_.Scalar sqrt rsqrt reciprocal neg exp pow.Tensor_Scalar tanh tanh_backward "
    "sigmoid sigmoid_backward silu silu_backward relu threshold_backward gelu gelu_backward mm bmm "
    "sum.dim_IntList mean.dim _softmax_backward_data _log_softmax _log_softmax_backward_data "
    "native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward "
    "native_batch_norm_backward convolution_backward masked_fill_.Scalar where.self eq.Scalar eq.Tensor "
    "native_batch_norm nll_loss_forward nll_loss_backward embedding_dense_backward cat fill_.Scalar zero_",
}

# Read by Python alone: names of operators, and the version itself.
_NOT_FOR_CPP = (TorchVersion, tuple)


def generated_headers(version: str | TorchVersion) -> dict[str, str]:
    """The text of each header by its path below the include directory, for a release of torch.

    Raises UnsupportedTorchError outside the supported range.
    """
    return {
        "anymps/release.h": _release(version_rules(version)),
        "anymps/vocabulary.h": _vocabulary(),
        "anymps/typed_kernels.h": _typed_kernels(),
        "anymps/operator_shims.h": _operator_shims(),
    }


def _operator_shims() -> str:
    """Each function that the installed torch declares for compiled programs, and only a macOS build defines."""
    declared = "torch/csrc/inductor/aoti_torch/generated/c_shim_mps.h"
    text = (installed_torch().path / "include" / declared).read_text(encoding="utf-8")
    lines = [
        "// The operators that compiled programs call by name (anymps/device/_generated.py).",
        "#pragma once",
        "",
        f"#include <{declared}>",
        "",
    ]
    for name, parameters in re.findall(r"AOTITorchError aoti_torch_mps_(\w+)\((.*)\);", text):
        found = f'static const auto found = anymps::compiled::find_operator("{name}"); return found;'
        places = ", ".join(f"&{parameter.split()[-1]}" for parameter in parameters.split(","))
        lines += [
            f"AOTITorchError aoti_torch_mps_{name}({parameters}) {{",
            f"  constexpr auto find = [] {{ {found} }};",
            f"  return anymps::compiled::call_operator(find, {{{places}}});",
            "}",
        ]
    return "\n".join([*lines, ""])


def _typed_kernels() -> str:
    rows = [(name, host) for host, names in _TYPED.items() for name in names.split()]
    bases = sorted({name.partition(".")[0].rstrip("_") for name, _ in rows})
    return "\n".join(
        [
            "// Typed kernels for the operators of a training step (anymps/device/_generated.py).",
            "#pragma once",
            "",
            '#include "kernels/redirect/unboxed.h"',
            *(f"#include <ATen/ops/{base}_ops.h>" for base in bases),
            "",
            "namespace anymps {",
            "",
            "inline void add_typed_kernels(KernelTable& table) {",
            *(f"  add_unboxed<at::_ops::{name.replace('.', '_')}, {host}>(table);" for name, host in rows),
            "}",
            "",
            "}  // namespace anymps",
            "",
        ]
    )


def _vocabulary() -> str:
    lines = [
        "// The words of a recording and of the rules, with their numbers (anymps/_vocabulary.py, rules/_encoding.py).",
        "#pragma once",
        "",
        "#include <cstdint>",
        "",
        "namespace anymps {",
        "",
    ]
    for kind in _NUMBERS:
        members = ", ".join(f"{camel_case(member.name)} = {int(member)}" for member in kind)
        lines.append(f"enum class {kind.__name__} : uint8_t {{ {members} }};")
    for name, (type_, flags) in _BITS.items():
        members = ", ".join(f"k{camel_case(bit)} = {int(flags[bit])}" for bit in flags.__members__)
        lines.append(f"enum {name} : {type_} {{ {members} }};")
    refusals = ", ".join(camel_case(member.name) for member in RefusalKind)
    words = ", ".join(f'"{member.value}"' for member in RefusalKind)
    names = ", ".join(f'"{name}"' for name in ERROR_CLASSES)
    errors = ", ".join(name.removesuffix("Error") for name in ERROR_CLASSES)
    lines += [
        "// What a refusal is about, with the word that a recording has for it, and the exception it is raised as.",
        f"enum class Refusal : uint8_t {{ {refusals} }};",
        f"constexpr const char* kRefusalWords[] = {{{words}}};",
        f"enum class ErrorClass : uint8_t {{ {errors} }};",
        f"constexpr const char* kErrorNames[] = {{{names}}};",
    ]
    return "\n".join([*lines, "", "}  // namespace anymps", ""])


def _release(rules: VersionRules) -> str:
    lines = [
        f"// What torch {rules.version.major}.{rules.version.minor} does on mps (anymps/rules/_versions.py).",
        "#pragma once",
        "",
        "namespace anymps::release {",
        "",
    ]
    for field in fields(rules):
        value = getattr(rules, field.name)
        if not isinstance(value, _NOT_FOR_CPP):
            lines += _constant(field.name, value)
    return "\n".join([*lines, "", "}  // namespace anymps::release", ""])


def _constant(name: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [f"constexpr bool {name} = {str(value).lower()};"]
    if isinstance(value, Enum):
        kind = type(value)
        members = ", ".join(camel_case(member.name) for member in kind)
        return [
            f"enum class {kind.__name__} {{ {members} }};",
            f"constexpr {kind.__name__} {name} = {kind.__name__}::{camel_case(value.name)};",
        ]
    if isinstance(value, int):
        return [f"constexpr int {name} = {value};"]
    raise TypeError(f"VersionRules.{name} has no C++ type: {value!r}")


def camel_case(name: str) -> str:
    """`COPY_TO_MPS` as `CopyToMps`."""
    return "".join(part.capitalize() for part in name.split("_"))
