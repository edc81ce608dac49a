"""The virtual `mps` device: switching it on, and what the running process has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._cache import CACHE_VARIABLE
from anymps.device._build import build, cache_directory, check_cache, is_built
from anymps.device._enable import (
    State,
    banner,
    call_when_enabled,
    default_device,
    enable,
    enforce_hazards,
    is_virtual,
    known_hazards,
    metal_kernels,
    native,
    state,
)
from anymps.device._gpus import Gpus, look_for_gpus, why_no_gpu, why_not_gpu
from anymps.device._internal_code import written_by_torch
from anymps.device._launched import count_real_calls, real_calls, release_of_kernels
from anymps.device._real_mac import this_mac
from anymps.device._start_method import children_used_mps, give_to_children
from anymps.device._toolchain import find_compiler, find_prebuilt, find_torch, python_headers

if TYPE_CHECKING:
    from anymps.device._native import NativeCore
