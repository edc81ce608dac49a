"""Metal shaders on this machine's CPU: `torch.mps.compile_shader` without a Mac."""

from __future__ import annotations

from anymps.metal._device import Device
from anymps.metal._library import MetalKernel, ShaderLibrary

__all__ = ["Device", "MetalKernel", "ShaderLibrary"]
