"""What an exception of the device means: the kind of refusal, recognised by the backend's known messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import torch

from anymps.record import RefusalKind
from anymps.rules import NOT_CHECKED, REFUSED_DTYPES, Family, check_supported, in_force, operator_limits
from anymps.rules.texts import (
    SAME_GPU_CHECKS,
    BackendText,
    devices_differ,
    distributed_operator,
    float64_allocation,
    float64_graph,
    float64_kernel,
    generator_device,
    generator_index,
    linear_argument,
    missing_operator,
    not_strided,
    scaled_gradients,
    scaler_argument,
    slow_convolution_devices,
    sparse_argument,
    tensor_on_cpu,
    too_many_cpu_scalars,
    undefined_type,
    unsupported_dtype,
)

_ANY: Final = "ANYTHING"  # stands in a text for what changes from call to call
_MISSING: Final = re.compile(r"The operator '(?P<operator>[^']+)'")
_ALLOCATION: Final = "aten::empty.memory_format"
_BY_ALLOCATOR: Final = frozenset(
    {RefusalKind.FLOAT64, RefusalKind.COMPLEX128, RefusalKind.RANK, RefusalKind.LAYOUT, RefusalKind.MEMORY}
)
DELAYED_ERROR: Final[type[Exception]] = getattr(torch, "AcceleratorError", type("_Never", (Exception,), {}))
"""What a kernel leaves behind and the next wait raises."""


def kind_of(error: Exception, *, wide_complex: bool = False) -> RefusalKind | None:
    """The kind of refusal that an exception of an operator on mps is; None for an error of any device.

    `wide_complex`: of those dtypes that mps lacks, the call's first one is complex128.
    """
    message = str(error)
    for kind, pattern in _patterns(str(torch.__version__)):
        if pattern.match(message):
            is_complex = kind is RefusalKind.FLOAT64 and (wide_complex or "ComplexDouble" in message)
            return RefusalKind.COMPLEX128 if is_complex else kind
    # The backend speaks of itself, in words that are in no table.
    return RefusalKind.ARGUMENT if re.search(r"\bMPS\b", message) else None


def refused_operator(kind: RefusalKind, operator: str, message: str) -> str:
    """Whose refusal it is.

    Most kinds are the allocator's, whatever operator asked for the memory; a missing one may be called inside another.
    """
    if kind is RefusalKind.MISSING:
        named = _MISSING.match(message)
        return named["operator"] if named is not None else operator
    return _ALLOCATION if kind in _BY_ALLOCATOR and not message.startswith("Undefined type") else operator


def culprit_of(kind: RefusalKind, tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The tensor that was refused: the one that is not on mps, or for a dtype the first."""
    if kind is RefusalKind.DEVICE:
        elsewhere = [tensor for tensor in tensors if tensor.device.type != "mps"]
        return next((tensor for tensor in elsewhere if tensor.dim()), elsewhere[0] if elsewhere else None)
    return tensors[0] if kind in (RefusalKind.DTYPE, RefusalKind.ARGUMENT) and tensors else None


@lru_cache(maxsize=1)
def _patterns(version: str) -> tuple[tuple[RefusalKind, re.Pattern[str]], ...]:
    """In the order in which they are tried: the beginnings of the texts."""
    release = check_supported(version)
    texts: dict[RefusalKind, list[BackendText]] = {
        RefusalKind.MISSING: [missing_operator(_ANY, _ANY)],
        RefusalKind.DISTRIBUTED: [distributed_operator(_ANY, _ANY)],
        RefusalKind.FLOAT64: [
            float64_allocation(),
            float64_graph(),
            float64_kernel(),
            undefined_type("Double"),
            undefined_type("ComplexDouble"),
        ],
        RefusalKind.RANK: [BackendText("RuntimeError", "MPS supports tensors with dimensions <= 16")],
        RefusalKind.LAYOUT: [not_strided()],
        RefusalKind.MEMORY: [
            BackendText("RuntimeError", "MPS backend out of memory"),
            BackendText("RuntimeError", "Invalid buffer size:"),
        ],
        RefusalKind.GENERATOR: [
            generator_device("mps", _ANY),
            generator_index("mps:0", _ANY),
            generator_index("mps", _ANY),
        ],
        RefusalKind.DEVICE: _device_texts(),
        RefusalKind.DTYPE: [
            unsupported_dtype(_ANY),
            undefined_type(_ANY),
            *(row.text for row in in_force(REFUSED_DTYPES, release.release)),
        ],
        RefusalKind.ARGUMENT: [BackendText("", text) for _, text in operator_limits(release).values()],
    }
    known = [(kind, _pattern(text)) for kind, rows in texts.items() for _, text in rows]
    return (
        *known,
        # A convolution whose weight or bias is on another device, or on mps with another dtype (Convolution.mm).
        (RefusalKind.DTYPE, re.compile(r"Input type \(MPS\w+\) and \w+ type \(MPS\w+\) should be the same")),
        (RefusalKind.DEVICE, re.compile(r"Input type \(MPS\w+\) and \w+ type \([\w.]+\) should be the same")),
        (RefusalKind.DETERMINISM, re.compile(r".*does not have a deterministic implementation", re.S)),
        # Of the virtual device alone: an index that no kernel on mps looks at.
        (RefusalKind.ARGUMENT, re.compile(".*" + re.escape(NOT_CHECKED.format(release="")[:40]), re.S)),
    )


def _device_texts() -> list[BackendText]:
    checks = [
        tensor_on_cpu(check, [printed, "out"]) for check in SAME_GPU_CHECKS.values() for _, printed, _ in check[1]
    ]
    return [
        *(devices_differ(family, _ANY, _ANY) for family in _FAMILIES),
        *(text for text in checks if text is not None),
        BackendText("RuntimeError", f"Tensor for argument #{_ANY} is on CPU, but expected it to be on GPU"),
        BackendText("RuntimeError", "indices should be either on "),
        linear_argument(_ANY, _ANY),
        sparse_argument(_ANY, _ANY, _ANY),
        scaler_argument(_ANY),
        scaled_gradients(),
        slow_convolution_devices(_ANY, _ANY),
        too_many_cpu_scalars(),
    ]


_FAMILIES: Final = (Family.ITERATOR, Family.DOT, Family.MASKED_FILL, Family.PLACEHOLDER, Family.METAL)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(_ANY, ".*?"), re.S)
