"""Metal shaders on this machine's CPU: `torch.mps.compile_shader` without a Mac.

A name is loaded when it is first asked for: the kernels of a wheel are read without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

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

if not TYPE_CHECKING:
    __getattr__ = lazy_face(
        __name__,
        {
            "_ahead": "compile_ahead",
            "_cache_limit": "cache_bytes cache_limit shader_cache",
            "_check_setting": "CHECK_VARIABLE",
            "_check_words": "ShaderFault",
            "_checked_launch": "ShaderFaultWarning take_shader_faults",
            "_device": "Device",
            "_library": "MetalKernel ShaderLibrary",
        },
    )
