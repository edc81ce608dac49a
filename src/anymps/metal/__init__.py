"""Metal shaders on this machine's CPU: `torch.mps.compile_shader` without a Mac.

A name is loaded when it is first used: the kernels of a wheel are read without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.metal._arguments import PADDING, Arguments, Constant, bind_arguments, group_of
    from anymps.metal._device import Device
    from anymps.metal._launch import Packed, Sizes3
    from anymps.metal._library import MetalKernel, ShaderLibrary
    from anymps.metal._runtime import LANES, PLAIN, KernelEntry, runtime
    from anymps.metal._shim import SHIM
    from anymps.metal.checking import ShaderFault, ShaderFaultWarning, take_shader_faults
    from anymps.metal.compilation import cache_directory, find_compiler, find_or_make, tool_key, undefined_symbols

if not TYPE_CHECKING:
    __getattr__ = lazy_face(__name__)
