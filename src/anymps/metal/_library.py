"""What `torch.mps.compile_shader` returns: a library of kernels, and a kernel that is called like a function."""

from __future__ import annotations

import ctypes
import signal
from typing import Any

import torch

from anymps.metal._arguments import Arguments, Constant, bind_arguments, group_of
from anymps.metal._compile import compile_shader
from anymps.metal._faults import fault_text
from anymps.metal._runtime import KernelEntry, Report, Triple, load_kernels, runtime

MAX_SHARED_BYTES = 32768  # threadgroup memory of a group, on every Apple GPU
_EXECUTION_WIDTH = 32


class ShaderLibrary:
    """The kernels of one Metal source, as attributes."""

    def __init__(self, source: str) -> None:
        self._handle, self._entries = load_kernels(compile_shader(source))
        self._kernels: dict[str, MetalKernel] = {}

    def __getattr__(self, name: str) -> MetalKernel:
        kernels = self.__dict__.get("_kernels", {})
        if name not in kernels:
            entry = self.__dict__.get("_entries", {}).get(name)
            if entry is None:
                raise RuntimeError(f"Failed to create function state object for: {name}")
            kernels[name] = MetalKernel(name, entry, self.__dict__["_handle"])
        kernel: MetalKernel = kernels[name]
        return kernel

    def __dir__(self) -> list[str]:
        return list(self._entries)


class MetalKernel:
    """One kernel. Calling it runs it over a grid of threads.

    Raises what torch raises on a Mac for arguments that it does not take, ValueError for a group above the limit, and
    RuntimeError if the kernel touches memory that is not there or divides an integer by zero.
    """

    def __init__(self, name: str, entry: KernelEntry, library: ctypes.CDLL) -> None:
        self._name = name
        self._entry = entry
        self._library = library  # the code lives as long as this
        self._shared = int(entry.shared_bytes())
        if self._shared > MAX_SHARED_BYTES:
            raise RuntimeError(
                "Failed to created pipeline state object, error: Threadgroup memory size "
                f"({self._shared}) exceeds the maximum threadgroup memory allowed ({MAX_SHARED_BYTES})"
            )

    @property
    def max_threads_per_threadgroup(self) -> int:
        """How many threads a group may have."""
        return int(self._entry.max_threads)

    @property
    def thread_execution_width(self) -> int:
        """The threads of a SIMD group."""
        return _EXECUTION_WIDTH

    @property
    def static_thread_group_memory_length(self) -> int:
        """Bytes of threadgroup memory that the kernel declares."""
        return self._shared

    def __call__(
        self, *args: Any, threads: Any = None, group_size: Any = None, arg_casts: Any = None, error_buf_idx: Any = None
    ) -> None:
        bound = bind_arguments(args, threads, group_size, arg_casts)
        group = group_of(bound.threads, bound.group_size, self.max_threads_per_threadgroup)
        self._run(bound, group)

    def _run(self, bound: Arguments, group: tuple[int, int, int]) -> None:
        grid = (*bound.threads, 1, 1)[:3]
        if 0 in grid:
            return
        if 0 in group:
            raise ValueError("anymps: a group of threads cannot be empty")
        keep, pointers, ranges = _pointers(bound, max(int(self._entry.buffers), len(bound.slots)))
        report = Report()
        runtime().anymps_rt_launch(
            self._entry, pointers, Triple(*grid), Triple(*group), torch.get_num_threads(), ctypes.byref(report)
        )
        del keep
        if report.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if report.signal:
            missing = int(self._entry.buffers) - len(bound.slots)
            raise RuntimeError(fault_text(self._name, report, ranges, missing))


def _pointers(bound: Arguments, count: int) -> tuple[list[Any], Any, list[tuple[int, int, int]]]:
    """What keeps the memory, the pointer of each buffer, and where the tensors among them lie."""
    keep: list[Any] = []
    ranges = []
    pointers = (ctypes.c_void_p * max(count, 1))()
    for index, slot in enumerate(bound.slots):
        if isinstance(slot, Constant):
            data = ctypes.create_string_buffer(slot.data, len(slot.data))
            keep.append(data)
            pointers[index] = ctypes.addressof(data)
        elif isinstance(slot, list):
            table = (ctypes.c_void_p * len(slot))(*(tensor.data_ptr() for tensor in slot))
            keep.append(table)
            pointers[index] = ctypes.addressof(table)
            ranges += [(index, *_extent(tensor)) for tensor in slot]
        else:
            pointers[index] = slot.data_ptr()
            ranges.append((index, *_extent(slot)))
    return keep, pointers, ranges


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()
