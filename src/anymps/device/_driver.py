"""Asks NVIDIA's driver about its GPUs, through its libraries alone: no context is created and no memory is used.

Functions and numbers are those of CUDA's driver API (cuda.h) and of NVML (nvml.h), as NVIDIA documents them.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

_NO_GPU: Final = 100  # CUDA_ERROR_NO_DEVICE
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR


@dataclass(frozen=True)
class Gpu:
    """An NVIDIA GPU: its number as CUDA counts here, its name, and its memory in bytes.

    `free` is what no process has taken, None where NVML does not tell (without it, or for a part of a GPU).
    `capability` is the version of its instructions, such as (9, 0).
    """

    number: int
    name: str
    total: int
    free: int | None
    capability: tuple[int, int]


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver: the newest CUDA that it serves, and its GPUs; `error` says why there are none."""

    cuda: tuple[int, int]
    gpus: tuple[Gpu, ...] = ()
    error: str = ""


def ask_driver() -> Driver | None:
    """What the driver says; None without one."""
    try:
        cuda: Any = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    serves = version.value // 1000, version.value % 1000 // 10
    status = cuda.cuInit(0)
    if status == _NO_GPU:
        return Driver(serves)
    if status:
        return Driver(serves, error=_error(cuda, status))
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    nvml = _Nvml()
    return Driver(serves, tuple(_gpu(cuda, nvml, number) for number in range(count.value)))


def _gpu(cuda: Any, nvml: _Nvml, number: int) -> Gpu:
    gpu, total, name, bus = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256), _buffer()
    cuda.cuDeviceGet(ctypes.byref(gpu), number)
    cuda.cuDeviceGetName(name, len(name), gpu)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total), gpu)
    cuda.cuDeviceGetPCIBusId(bus, len(bus), gpu)
    capability = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, gpu)
        capability.append(value.value)
    free = nvml.free(bus.value, total.value)
    return Gpu(number, name.value.decode(errors="replace"), total.value, free, (capability[0], capability[1]))


def _buffer() -> Any:
    return ctypes.create_string_buffer(64)


def _error(cuda: Any, status: int) -> str:
    said = ctypes.c_char_p()
    if cuda.cuGetErrorString(status, ctypes.byref(said)) or not said.value:
        return f"error {status}"
    return f"error {status}, {said.value.decode(errors='replace')}"


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Nvml:
    """NVML tells how much is free without a context, which would itself take memory."""

    def __init__(self) -> None:
        self._library: Any = None
        with suppress(OSError, AttributeError):
            library: Any = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0:
                self._library = library

    def free(self, bus: bytes, total: int) -> int | None:
        """Free bytes of the GPU at this place of the PCI bus; None if it has another size than CUDA says."""
        if self._library is None:
            return None
        gpu, memory = ctypes.c_void_p(), _Memory()
        if self._library.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(gpu)):
            return None
        if self._library.nvmlDeviceGetMemoryInfo(gpu, ctypes.byref(memory)):
            return None
        # A part of a GPU (MIG) lies at the same place. The driver keeps a little of a whole one for itself.
        same = abs(memory.total - total) < total // 10
        return int(memory.free) if same else None
