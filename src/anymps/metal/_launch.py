"""One launch handed to the runtime: the addresses of its buffers, and its constants, in one piece of memory."""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from anymps.metal._arguments import Arguments, Constant
from anymps.metal._runtime import GROUPS, PLAIN, KernelEntry, Report, runtime
from anymps.metal._signatures import ADDRESS, Packing, layout, table_form
from anymps.metal.translation import PLANE

_WORD = struct.Struct("Q")
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
    """A call as `anymps_rt_call` takes it. `places` are where in `data` the buffers lie."""

    data: bytes
    plan: bytes
    places: tuple[int, ...]


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
    """Launches one kernel."""

    def __init__(self, entry: KernelEntry) -> None:
        self._call = runtime()["anymps_rt_call"]  # without `argtypes`, which would be gone through at each call
        self._entry = ctypes.c_void_p(ctypes.addressof(entry))
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
        return self._run(self._packed(bound, iter(addresses), grid, group, errors))

    def last_report(self) -> Report:
        """What stopped the last launch of this thread."""
        report = Report()
        runtime().anymps_rt_last_report(ctypes.byref(report))
        return report

    def repeated(self, packing: Packing, grid: Sizes3, group: Sizes3) -> Repeated:
        """A launch over this grid on arguments that are packed so, of which it gets the addresses and the numbers."""
        alone = self._shares_work and grid[0] * grid[1] * grid[2] < _FEW
        pack, places, tensors, written = packing
        plan = ctypes.c_char_p(_plan(places, grid, group))
        return Repeated(self._call, self._entry, pack.pack, plan, int(alone), tensors, written)

    def packed(self, bound: Arguments, grid: Sizes3, group: Sizes3) -> Packed:
        """What a call of it hands over, to be used again with other addresses."""
        return self._packed(bound, iter([one.data_ptr() for one in bound.tensors()]), grid, group, None)

    def again(self, packed: Packed, addresses: Iterable[tuple[int, int]]) -> Report | None:
        """Runs it with these addresses, each in its slot. What stopped it, or None."""
        data = bytearray(packed.data)
        for slot, address in addresses:
            _WORD.pack_into(data, packed.places[slot], address)
        return self._run(packed._replace(data=bytes(data)))

    def _run(self, packed: Packed) -> Report | None:
        if not self._call(self._entry, packed.data, packed.plan, torch.get_num_threads()):
            return None
        return self.last_report()

    def _packed(
        self,
        bound: Arguments,
        addresses: Iterator[int],
        grid: Sizes3,
        group: Sizes3,
        errors: tuple[int, ErrorBuffer] | None,
    ) -> Packed:
        forms: list[str] = []
        values: list[tuple[Any, ...]] = []
        for slot in bound.slots:
            if isinstance(slot, torch.Tensor):
                forms.append(ADDRESS)
                values.append((next(addresses),))
            elif isinstance(slot, Constant):  # without bytes it is no buffer
                forms.append(f"{len(slot.data)}s" if slot.data else ADDRESS)
                values.append((slot.data or 0,))
            else:
                forms.append(table_form(len(slot)))
                values.append(tuple(next(addresses) for _ in slot))
        missing = max(self._buffers, 0 if errors is None else errors[0] + 1) - len(forms)
        forms += [ADDRESS] * missing
        values += [(0,)] * missing
        if errors is not None:
            forms[errors[0]], values[errors[0]] = ADDRESS, (ctypes.addressof(errors[1]),)
        pack, places = layout(tuple(forms))
        return Packed(pack.pack(*itertools.chain(*values)), _plan(places, grid, group), places)


def address_of(memory: torch.Tensor | torch.UntypedStorage, copied: Copied) -> int:
    """Where a launch finds it."""
    address = memory.data_ptr()
    for first, behind, distance in copied:
        if first <= address < behind:
            return address + distance
    return address


@functools.lru_cache(4096)
def _plan(places: tuple[int, ...], grid: Sizes3, group: Sizes3) -> bytes:
    """What `anymps_rt_call` of runtime/launch.h reads of a launch beside its arguments."""
    return struct.pack(f"{7 + len(places)}I", *grid, *group, len(places), *places)


@functools.lru_cache(4096)
def lies_along(axis: int, grid: Sizes3, group: Sizes3) -> bool:
    """Whether groups have more than one thread along that axis alone. Along y there must be one group, too.

    Axis 2 stands for x and y.
    """
    if axis == PLANE:
        return min(grid[2], group[2]) == 1
    return all(min(grid[i], group[i]) == 1 for i in range(3) if i != axis) and (axis == 0 or grid[1] <= group[1])
