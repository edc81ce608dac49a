"""One launch handed to the runtime: the addresses of its buffers, and its constants, in one piece of memory."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from anymps.metal._arguments import Arguments, Constant, Table
from anymps.metal._runtime import GROUPS, PLAIN, KernelEntry, Report, runtime
from anymps.metal._signatures import Packing
from anymps.metal.translation import PLANE

_ALIGNED = 16  # where constants begin
_ADDRESS = struct.Struct("Q")
_FEW = 4096  # threads, which are run by one worker whatever it is asked for: runtime/launch.cpp

Sizes3 = tuple[int, int, int]
Copied = Sequence[tuple[int, int, int]]
"""Buffers that a launch runs on copies of: first address, the one past the last, and how far away the copy lies."""


class _Message(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char * 128),
        ("func", ctypes.c_char * 128),
        ("message", ctypes.c_char * 250),
        ("line", ctypes.c_uint),
    )


class ErrorBuffer(ctypes.Structure):
    """The buffer into which kernels report errors (`error_buf_idx`), empty: what the next wait raises.

    Source: torch 2.13, c10/metal/error.h. As on a Mac the first message is raised and the rest forgotten
    (MPSStream::checkLastError).
    """

    _fields_ = (("count", ctypes.c_uint), ("messages", _Message * 30))

    def first(self) -> str | None:
        """The message of the first report, or None if there is none."""
        if self.count == 0:
            return None
        text: bytes = self.messages[0].message
        return text.decode(errors="replace")


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, as the checker is given it.

    `tensors` are those of the arguments, tables included, with addresses of this machine's; `errors` is the argument of
    that index.
    """

    kernel: str
    entry: KernelEntry
    bound: Arguments
    tensors: Sequence[torch.Tensor]
    grid: Sizes3
    group: Sizes3
    errors: tuple[int, ErrorBuffer] | None = None

    @property
    def missing(self) -> int:
        """How many buffers the kernel takes that it was not given."""
        return int(self.entry.buffers) - len(self.bound.slots) - (self.errors is not None)


class Packed(NamedTuple):
    """A call as `anymps_rt_call` takes it: at first the addresses of the buffers, as many as there are slots."""

    data: bytes
    slots: int
    shape: bytes


class Repeated(NamedTuple):
    """A launch whose addresses and numbers alone are new, unpacked by whoever runs it: most of its time is Python's.

    `call(entry, pack(*values), plan, workers)` runs it and returns the signal that stopped it, or 0. It is `alone` if
    one worker runs it in any case. `tensors` and `written` are those of `Packing`.
    """

    call: Callable[..., int]
    entry: ctypes.c_void_p
    pack: Callable[..., bytes]
    plan: ctypes.c_char_p
    alone: int
    tensors: tuple[int, ...]
    written: tuple[int, ...]


class Launcher:
    """Launches one kernel. What a call needs anew is kept small: it counts where kernels are."""

    def __init__(self, entry: KernelEntry) -> None:
        self._call = runtime().anymps_rt_call
        self._entry = ctypes.addressof(entry)
        self._buffers = max(int(entry.buffers), 1)
        self._shares_work = entry.form in (PLAIN, GROUPS)

    def __call__(
        self,
        bound: Arguments,
        tensors: Sequence[torch.Tensor],
        grid: Sizes3,
        group: Sizes3,
        errors: tuple[int, ErrorBuffer] | None,
        copied: Copied = (),
    ) -> Report | None:
        """Runs it on tensors whose addresses are this machine's. What stopped it, or None."""
        addresses = [address_of(tensor, copied) for tensor in tensors]
        count = len(addresses)
        if errors is None and bound.flat and count >= self._buffers:
            packed = _words(count).pack(*addresses)
        else:
            count, packed = self._packed(bound, iter(addresses), errors)
        if not self._call(self._entry, packed, count, _shape(grid, group), torch.get_num_threads()):
            return None
        return self.last_report()

    def last_report(self) -> Report:
        """What stopped the last launch of this thread."""
        report = Report()
        runtime().anymps_rt_last_report(ctypes.byref(report))
        return report

    def repeated(self, packing: Packing, grid: Sizes3, group: Sizes3) -> Repeated:
        """A launch over this grid on arguments that are packed so, of which it gets the addresses and the numbers."""
        bare = runtime()["anymps_rt_repeat"]  # without `argtypes`, which would be gone through at each call
        alone = self._shares_work and grid[0] * grid[1] * grid[2] < _FEW
        count = len(packing.places)
        plan = ctypes.c_char_p(struct.pack(f"{7 + count}I", *grid, *group, count, *packing.places))
        pack, _, tensors, written = packing
        return Repeated(bare, ctypes.c_void_p(self._entry), pack.pack, plan, int(alone), tensors, written)

    def packed(self, bound: Arguments, grid: Sizes3, group: Sizes3) -> Packed:
        """What a call of it hands over, to be used again with other addresses."""
        count, data = self._packed(bound, iter([one.data_ptr() for one in bound.tensors()]), None)
        return Packed(data, count, _shape(grid, group))

    def again(self, packed: Packed, addresses: Iterable[tuple[int, int]]) -> Report | None:
        """Runs it with these addresses, each in its slot. What stopped it, or None."""
        data = bytearray(packed.data)
        for slot, address in addresses:
            _ADDRESS.pack_into(data, _ADDRESS.size * slot, address)
        if not self._call(self._entry, bytes(data), packed.slots, packed.shape, torch.get_num_threads()):
            return None
        return self.last_report()

    def _packed(
        self, bound: Arguments, addresses: Iterator[int], errors: tuple[int, ErrorBuffer] | None
    ) -> tuple[int, bytes]:
        """How many buffers, and what `anymps_rt_call` of runtime/launch.h reads of them."""
        words, parts, lengths = [], [], []
        for slot in bound.slots:
            if isinstance(slot, torch.Tensor):
                words.append(next(addresses))
                lengths.append(0)
                continue
            part = slot.data if isinstance(slot, Constant) else _table(slot, addresses)
            words.append(0)
            lengths.append(len(part))
            if part:
                parts.append(part)
        count = max(self._buffers, len(words), 0 if errors is None else errors[0] + 1)
        if count > len(words):
            words += [0] * (count - len(words))
            lengths += [0] * (count - len(lengths))
        if errors is not None:
            words[errors[0]] = ctypes.addressof(errors[1])
        packing, inside, places = _packing(tuple(map(_form, lengths)))
        for index, place in places:
            words[index] = place
        return count, packing.pack(*words, inside, *parts)


def address_of(memory: torch.Tensor | torch.UntypedStorage, copied: Copied) -> int:
    """Where a launch finds it."""
    address = memory.data_ptr()
    for first, behind, distance in copied:
        if first <= address < behind:
            return address + distance
    return address


def _table(tensors: Table, addresses: Iterator[int]) -> bytes:
    return _words(len(tensors)).pack(*(0 if one is None else next(addresses) for one in tensors))


@functools.cache
def _words(count: int) -> struct.Struct:
    """Addresses, and a zero for each: it is one."""
    return struct.Struct(f"{count}Q{count}x")


@functools.lru_cache(4096)
def _packing(forms: tuple[str, ...]) -> tuple[struct.Struct, bytes, list[tuple[int, int]]]:
    """How addresses (no form) and constants of these forms are packed; which are constants, and where they lie."""
    text = f"{len(forms)}Q{len(forms)}s"
    size = struct.calcsize(text)
    places = []
    for index, form in enumerate(forms):
        if form:
            gap = -size % _ALIGNED
            text += f"{gap}x{form}"
            places.append((index, size + gap))
            size += gap + struct.calcsize(form)
    return struct.Struct(text), bytes(map(bool, forms)), places


def _form(length: int) -> str:
    """How a constant of so many bytes is packed; an address has none."""
    return f"{length}s" if length else ""


@functools.lru_cache(4096)
def _shape(grid: Sizes3, group: Sizes3) -> bytes:
    return struct.pack("6I", *grid, *group)


@functools.lru_cache(4096)
def lies_along(axis: int, grid: Sizes3, group: Sizes3) -> bool:
    """Whether groups have more than one thread along that axis alone. Along y there must be one group, too.

    Axis 2 stands for x and y.
    """
    if axis == PLANE:
        return min(grid[2], group[2]) == 1
    return all(min(grid[i], group[i]) == 1 for i in range(3) if i != axis) and (axis == 0 or grid[1] <= group[1])
