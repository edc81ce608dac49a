"""Metal kernels in their checked form, and what the checker finds in one launch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from anymps.metal import ShaderFault, ShaderFaultWarning, take_shader_faults


def compile_checked(source: str) -> Any:
    """The kernels of a source in their checked form, with no launch that they remember."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANYMPS_CHECK_SHADERS", "1")
        return torch.mps.compile_shader(source)


def faults_of(kernel: Any, *args: Any, **options: Any) -> list[ShaderFault]:
    """The faults of a launch, without those of earlier ones and without a warning."""
    take_shader_faults()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShaderFaultWarning)
        kernel(*args, **options)
    return take_shader_faults()


def said_of(kernel: Any, *args: Any, **options: Any) -> list[str]:
    """What is said of each."""
    return [fault.what for fault in faults_of(kernel, *args, **options)]
