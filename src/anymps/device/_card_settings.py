"""Settings of an NVIDIA GPU that computes for the virtual device: a Mac's accuracy, whatever a program asks for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

# Settings that trade accuracy for speed. A Mac has none of them, and programs set them for all machines.
_SETTINGS: Final = (
    ("_set_float32_matmul_precision", "_get_float32_matmul_precision", "highest"),
    ("_set_cublas_allow_tf32", "_get_cublas_allow_tf32", False),
    ("_set_cudnn_allow_tf32", "_get_cudnn_allow_tf32", False),
    ("_set_cudnn_benchmark", "_get_cudnn_benchmark", False),
    ("_set_cudnn_deterministic", "_get_cudnn_deterministic", True),
    ("_set_cublas_allow_fp16_reduced_precision_reduction", "_get_cublas_allow_fp16_reduced_precision_reduction", False),
    ("_set_cublas_allow_bf16_reduced_precision_reduction", "_get_cublas_allow_bf16_reduced_precision_reduction", False),
    ("_set_cublas_allow_fp16_accumulation", "_get_cublas_allow_fp16_accumulation", False),
)


def settle_accuracy(card: int) -> None:
    """Settle this before anything is computed on the card with this number; below 0 the CPU plays it."""
    if card < 0:
        return
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # CUDA's libraries read it when they are first used
    import torch

    for setter, getter, value in _SETTINGS:
        if hasattr(torch._C, setter) and hasattr(torch._C, getter):
            _fix(torch._C, setter, getter, value)


def _fix(owner: Any, setter: str, getter: str, value: object) -> None:
    """Gives a setting of torch this value for good; who sets another one reads it back, and nothing comes of it."""
    set_it: Callable[..., Any] = getattr(owner, setter)
    said: list[Any] = [getattr(owner, getter)()]
    try:
        set_it(value)
    except (TypeError, RuntimeError):  # a release that takes another form of it, and has its own default
        return

    def remember(*values: Any) -> None:
        said[:] = [values[0] if len(values) == 1 else values]

    setattr(owner, setter, remember)
    setattr(owner, getter, lambda: said[0])
