"""Metal shaders on this machine's CPU: `torch.mps.compile_shader` without a Mac.

A name is loaded when it is first asked for: the kernels of a wheel are read without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anymps.metal._ahead import compile_ahead
    from anymps.metal._cache_limit import cache_bytes, cache_limit, shader_cache
    from anymps.metal._check_setting import CHECK_VARIABLE
    from anymps.metal._check_words import ShaderFault
    from anymps.metal._checked_launch import ShaderFaultWarning, take_shader_faults
    from anymps.metal._device import Device
    from anymps.metal._library import MetalKernel, ShaderLibrary

__all__ = [
    "CHECK_VARIABLE",
    "Device",
    "MetalKernel",
    "ShaderFault",
    "ShaderFaultWarning",
    "ShaderLibrary",
    "cache_bytes",
    "cache_limit",
    "compile_ahead",
    "shader_cache",
    "take_shader_faults",
]

_HOMES = {
    "CHECK_VARIABLE": "anymps.metal._check_setting",
    "Device": "anymps.metal._device",
    "MetalKernel": "anymps.metal._library",
    "ShaderFault": "anymps.metal._check_words",
    "ShaderFaultWarning": "anymps.metal._checked_launch",
    "ShaderLibrary": "anymps.metal._library",
    "cache_bytes": "anymps.metal._cache_limit",
    "cache_limit": "anymps.metal._cache_limit",
    "compile_ahead": "anymps.metal._ahead",
    "shader_cache": "anymps.metal._cache_limit",
    "take_shader_faults": "anymps.metal._checked_launch",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
