"""The compiled kernels of a release as a library of callables, like that of `torch.mps.compile_shader`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from anymps.kernels._metadata import BufferArgument, Signature
from anymps.kernels._metallib import Metallib
from anymps.kernels._object_files import LoadedKernel, load_object
from anymps.kernels._packing import pack
from anymps.kernels._support import support
from anymps.metal import (
    LANES,
    PADDING,
    PLAIN,
    Arguments,
    Constant,
    Device,
    KernelEntry,
    MetalKernel,
    Packed,
    Sizes3,
    bind_arguments,
    group_of,
)

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

    _is_compiled = True

    def __init__(self, name: str, loaded: LoadedKernel, device: Device) -> None:
        entry = KernelEntry()
        entry.name = name.encode()
        entry.form = LANES if loaded.together else PLAIN
        setattr(entry, "thread" if loaded.together else "plain", loaded.address)
        self._shared_callback = _SHARED_BYTES(lambda: loaded.shared_bytes)
        entry.shared_bytes = self._shared_callback
        entry.max_threads = loaded.signature.max_threads
        entry.written = sum(1 << one.slot for one in loaded.signature.buffers if one.written)
        entry.buffers = max((one.slot + 1 for one in loaded.signature.buffers), default=0)
        super().__init__(name, entry, support(), device)
        self.signature: Signature = loaded.signature
        by_slot = {one.slot: one for one in loaded.signature.buffers if one.space != "threadgroup"}
        self._written_at = {slot for slot, one in by_slot.items() if one.written}
        self._in_order = [by_slot.get(slot) for slot in range(max(by_slot, default=-1) + 1)]

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
            raise TypeError("arg_casts is only for kernels from source: a compiled kernel's types are known")
        by_slot: dict[int, BufferArgument] = {one.slot: one for one in self.signature.buffers}
        given = dict(zip(sorted(by_slot), args, strict=False))
        if len(args) > len(by_slot):
            raise TypeError(f"{self._name} takes {len(by_slot)} buffers, but {len(args)} were given")
        for word, value in named.items():
            slot = next((slot for slot, one in by_slot.items() if one.name == word), None)
            if slot is None or slot in given:
                raise TypeError(f"{self._name} takes no {word}" if slot is None else f"{word} was given twice")
            given[slot] = value
        values = [given.get(slot) for slot in range(max(given, default=-1) + 1)]
        whole = [isinstance(value, torch.Tensor) for value in values]
        tensors = [value if one else 0 for value, one in zip(values, whole, strict=True)]
        bound = bind_arguments(tensors, threads, group_size, None)
        for slot, value in enumerate(values):
            if not whole[slot]:
                bound.slots[slot] = _slot(by_slot.get(slot), value)
        self._start(bound, error_buf_idx)

    def takes(self, count: int) -> bool:
        """Whether it has that many buffers, the error buffer and slots that it leaves out among them."""
        return count == len(self._in_order)

    def run(
        self, buffers: Sequence[Any], threads: Sequence[int], group_size: Sequence[int] | None, errors: int | None
    ) -> None:
        """A launch within a call of an operator: on tensors of this machine's memory, with no entry of its own.

        Raises RuntimeError if the kernel touches memory that is not there or stores beside a buffer, and what
        `device.note_shader_error` raises.
        """
        bound, grid, group = self._bind(buffers, threads, group_size)
        if 0 in grid:
            return
        try:
            self._run(bound, bound.tensors(), grid, group, errors, None)
        finally:
            stray = self._stray(
                Arguments([one for at, one in enumerate(bound.slots) if at in self._written_at]).tensors()
            )
        if stray is not None:
            self._refuse_stray(bound, *stray)

    def packed(self, buffers: Sequence[Any], threads: Sequence[int], group_size: Sequence[int] | None) -> Packed:
        """Such a launch for `run_again`. Bytes among the buffers are taken as they are.

        Raises LookupError for a launch of no thread.
        """
        bound, grid, group = self._bind(buffers, threads, group_size)
        if 0 in grid:
            raise LookupError
        return self._launch.packed(bound, grid, group)

    def run_again(self, packed: Packed, places: Sequence[tuple[int, torch.Tensor, int]]) -> None:
        """Runs it on other tensors: slot, tensor, and how many bytes behind its first element the slot begins."""
        report = self._launch.again(packed, [(slot, one.data_ptr() + offset) for slot, one, offset in places])
        stray = self._stray([one for slot, one, _ in places if slot in self._written_at])
        if report is None and stray is None:
            return
        bound = Arguments([Constant(b"")] * len(packed.places))
        for slot, one, _ in places:
            bound.slots[slot] = one
        if report is not None:
            self._raise_fault(report, bound, "")
        if stray is not None:
            self._refuse_stray(bound, *stray)

    def _stray(self, stored: Sequence[torch.Tensor]) -> tuple[torch.Tensor, int, int, int] | None:
        """What was stored beside these tensors' memory, and beside which."""
        stray = self._device.stray_store([one.untyped_storage().data_ptr() for one in stored])
        return None if stray is None else (stored[stray[0]], *stray[1:])

    def _bind(
        self, buffers: Sequence[Any], threads: Sequence[int], group_size: Sequence[int] | None
    ) -> tuple[Arguments, Sizes3, Sizes3]:
        x, y, z, *_ = (*threads, 1, 1)
        group = group_of(
            tuple(threads), None if group_size is None else tuple(group_size), self.max_threads_per_threadgroup
        )
        bound = Arguments(threads=(x, y, z), group_size=group)
        for argument, value in zip(self._in_order, buffers, strict=False):
            if isinstance(value, bytes):
                bound.slots.append(Constant(value + bytes(PADDING)))
            else:
                bound.slots.append(value if isinstance(value, torch.Tensor) else _slot(argument, value))
        return bound, (x, y, z), group


def _slot(argument: BufferArgument | None, value: Any) -> Constant:
    """What a kernel finds in the place of a buffer: the bytes of a value, or no buffer."""
    if argument is None:
        return Constant(bytes(16 + PADDING))
    if value is None:  # a kernel asks for the address of an array where it may be missing; a reference has some bytes
        return Constant(b"" if argument.size is None else bytes(argument.size + PADDING))
    return Constant(pack(argument, value) + bytes(PADDING))
