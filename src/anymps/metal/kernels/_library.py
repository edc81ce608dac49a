"""The compiled kernels of a release as a library of callables, like that of `torch.mps.compile_shader`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from anymps.metal._arguments import PADDING, Arguments, Constant, group_of
from anymps.metal._device import Device
from anymps.metal._library import MetalKernel
from anymps.metal._runtime import KernelEntry
from anymps.metal.kernels._metadata import BufferArgument, Signature
from anymps.metal.kernels._metallib import Metallib
from anymps.metal.kernels._objects import LoadedKernel, load_object
from anymps.metal.kernels._packing import pack
from anymps.metal.kernels._support import support

_PLAIN, _FIBERS = 0, 1  # anymps_rt::Form
_SHARED_BYTES = ctypes.CFUNCTYPE(ctypes.c_uint)


class KernelLibrary:
    """PyTorch's own kernels of one release, as attributes. They run on `device`."""

    def __init__(self, kernels: Metallib, device: Device) -> None:
        self._stored = kernels
        self._device = device
        self._loaded: dict[str, CompiledKernel] = {}

    def __getattr__(self, name: str) -> CompiledKernel:
        if name.startswith("__") or name not in self._stored.kernels:
            raise AttributeError(f"there is no kernel {name} (anymps kernels list)")
        return self[name]

    def __getitem__(self, name: str) -> CompiledKernel:
        if name not in self._loaded:
            loaded = load_object(name, self._stored.bitcode(name))
            self._loaded[name] = CompiledKernel(name, loaded, self._device)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._stored.kernels

    def __dir__(self) -> list[str]:
        return list(self._stored.kernels)


class CompiledKernel(MetalKernel):
    """One kernel. Calling it runs it over a grid of threads.

    Buffers are given in the order of their slots, or by name: tensors on mps; numbers; sequences of numbers; structs as
    dicts of their fields. None stands for a buffer that is not used.

    Raises TypeError for arguments that do not fit, and what `compile_shader`'s kernels raise.
    """

    def __init__(self, name: str, loaded: LoadedKernel, device: Device) -> None:
        entry = KernelEntry()
        entry.name = name.encode()
        entry.form = _FIBERS if loaded.together else _PLAIN
        setattr(entry, "thread" if loaded.together else "plain", loaded.address)
        self._shared_callback = _SHARED_BYTES(lambda: loaded.shared_bytes)
        entry.shared_bytes = self._shared_callback
        entry.max_threads = loaded.signature.max_threads
        entry.buffers = max((one.slot + 1 for one in loaded.signature.buffers), default=0)
        super().__init__(name, entry, support(), device)
        self.signature: Signature = loaded.signature
        self._in_order = sorted(loaded.signature.buffers, key=lambda one: one.slot)

    def __call__(
        self,
        *args: Any,
        threads: Any = None,
        group_size: Any = None,
        arg_casts: Any = None,
        error_buf_idx: Any = None,
        **named: Any,
    ) -> None:
        if arg_casts is not None:
            raise TypeError("the types of a compiled kernel's arguments are known: arg_casts is for kernels of source")
        by_slot: dict[int, BufferArgument] = {one.slot: one for one in self.signature.buffers}
        given = dict(zip(sorted(by_slot), args, strict=False))
        if len(args) > len(by_slot):
            raise TypeError(f"{self._name} takes {len(by_slot)} buffers, and {len(args)} were given")
        for word, value in named.items():
            slot = next((slot for slot, one in by_slot.items() if one.name == word), None)
            if slot is None or slot in given:
                raise TypeError(f"{self._name} takes no {word}" if slot is None else f"{word} was given twice")
            given[slot] = value
        values: list[Any] = []
        casts: dict[int, str] = {}
        for slot in range(max(given, default=-1) + 1):
            value = given.get(slot)
            if isinstance(value, torch.Tensor):
                values.append(value)
                continue
            argument = by_slot.get(slot)
            values.append(list(_packed(argument, value)))
            casts[slot] = "uint8"
        state = support().anymps_k_state()
        try:
            super().__call__(
                *values, threads=threads, group_size=group_size, arg_casts=casts or None, error_buf_idx=error_buf_idx
            )
        finally:
            support().anymps_k_set_state(state)  # a kernel makes subnormal numbers zero

    def takes(self, count: int) -> bool:
        """Whether it has that many buffers, the error buffer among them."""
        return count == len(self._in_order)

    def run(
        self, buffers: Sequence[Any], threads: Sequence[int], group_size: Sequence[int] | None, errors: int | None
    ) -> None:
        """A launch within a call of an operator: on tensors of this machine's memory, with no entry of its own.

        Raises RuntimeError if the kernel touches memory that is not there, and what `device.note_shader_error` raises.
        """
        x, y, z, *_ = (*threads, 1, 1)
        grid = (x, y, z)
        if 0 in grid:
            return
        group = group_of(
            tuple(threads), None if group_size is None else tuple(group_size), self.max_threads_per_threadgroup
        )
        bound = Arguments(threads=grid, group_size=group)
        for argument, value in zip(self._in_order, buffers, strict=False):
            whole = isinstance(value, torch.Tensor)
            bound.slots.append(value if whole else Constant(_packed(argument, value) + bytes(PADDING)))
        state = support().anymps_k_state()
        try:
            self._run(bound, bound.tensors(), grid, group, errors, None)
        finally:
            support().anymps_k_set_state(state)


def _packed(argument: BufferArgument | None, value: Any) -> bytes:
    """What a kernel reads of a value; a buffer that is not used has some bytes, too."""
    return bytes(16) if value is None or argument is None else pack(argument, value)
