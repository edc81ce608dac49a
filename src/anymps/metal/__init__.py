"""Metal shaders on this machine's CPU: `torch.mps.compile_shader` without a Mac.

A name is loaded when it is first asked for: the kernels of a wheel are read without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.metal._device import Device
    from anymps.metal._library import MetalKernel, ShaderLibrary
    from anymps.metal.checking import ShaderFault, ShaderFaultWarning, take_shader_faults
    from anymps.metal.compilation import cache_bytes, cache_limit, compile_ahead, shader_cache

if not TYPE_CHECKING:
    __getattr__ = lazy_face(
        __name__,
        {
            "_device": "Device",
            "_library": "MetalKernel ShaderLibrary",
            "checking": "ShaderFault ShaderFaultWarning take_shader_faults",
            "compilation": "cache_bytes cache_limit compile_ahead shader_cache",
        },
    )
