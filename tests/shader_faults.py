"""What the checker of Metal kernels finds in one launch."""

from __future__ import annotations

import warnings
from typing import Any

from anymps.metal import ShaderFault, ShaderFaultWarning, take_shader_faults


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
