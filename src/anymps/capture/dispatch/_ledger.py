"""The ledger in Python, for a device without the native core: storages as they are seen, and the sampled counters.

A buffer's birth is seen when an operator returns it, its death by a weak reference to its storage. What the allocator
charges is the difference of `torch.mps.current_allocated_memory()` between two operators; memory that an operator takes
and gives back inside is in no sample.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable

import torch

from anymps.capture.dispatch._tape import Entry, PythonTape
from anymps.record.format import ALLOCATION

# Columns of `allocations`.
(
    _ID, _BORN, _DIED, _BORN_NS, _DIED_NS, _BYTES, _REQUESTED, _ALLOCATED, _RESERVED, _SIGNATURE, _MODULE, _SITE, _STEP,
    _DIED_STEP, _PHASE, _DIED_PHASE, _ROLE,
) = range(17)  # fmt: skip
_MOST_SLACK = 64 << 20  # bytes that the allocator may add to one buffer; a larger difference is not this buffer's


class PythonLedger:
    """Rows of buffers, living and ended. One a tape."""

    def __init__(self, tape: PythonTape) -> None:
        self._tape = tape
        self._living: dict[int, list[int]] = {}
        self._references: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._ended: deque[bytes] = deque()
        self._limit = self._kept = self._count = 0
        self._sampled = self._freed = 0
        self.events = self.dropped = self.peak = 0

    def start(self, limit: int) -> None:
        """Begin; beyond `limit` ended buffers are only counted."""
        self._limit = limit
        self._sampled = self.peak = torch._C._mps_currentAllocatedMemory()

    def see(self, tensors: Iterable[torch.Tensor], *, resized: bool = False) -> None:
        """Note the buffers of an operator's results that were not there before; `resized`: or have another size now."""
        new: list[tuple[torch.UntypedStorage, int]] = []
        for tensor in tensors:
            for part in _strided(tensor):
                storage = part.untyped_storage()
                size = storage.nbytes()
                row = self._living.get(storage._cdata)
                if row is not None and resized and row[_REQUESTED] != size:
                    self._died(storage._cdata)
                    row = None
                if row is None and size:
                    new.append((storage, size))
        if not new:
            return
        now = torch._C._mps_currentAllocatedMemory()
        reserved = torch._C._mps_driverAllocatedMemory()
        slack = now - (self._sampled - self._freed) - sum(_aligned(size) for _, size in new)
        largest = max(size for _, size in new)
        if not 0 <= slack < _MOST_SLACK:
            slack = 0  # something else came or went unseen
        self._sampled, self._freed = now, 0
        self.peak = max(self.peak, now)
        for storage, size in new:
            if storage._cdata in self._living:
                continue  # several results over one storage
            extra = slack if size == largest else 0
            slack -= extra
            self.events += 1
            row = self._open(storage, _aligned(size) + extra, size)
            row[_BORN], row[_BORN_NS], row[_ALLOCATED], row[_RESERVED] = (
                self.events,
                self._tape.clock_ns(),
                now,
                reserved,
            )
            self._tape.here.unattributed.append((row, None))

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether the buffer of a tensor was seen before."""
        return tensor.untyped_storage()._cdata in self._living

    def attribute(self, entry: Entry) -> None:
        """Put the buffers that the calling thread has made since its last entry down to this one.

        One whose allocation stands at another line (`torch.empty`) keeps that line.
        """
        rows = self._tape.here.unattributed
        for row, line in rows:
            if line is None or line == entry[6]:
                _put_down(row, entry)
        rows.clear()

    def name(self, allocation: Entry) -> None:
        """Put the buffers just made down to an allocation, until an operator at the same line takes them over."""
        rows = self._tape.here.unattributed
        for place, (row, line) in enumerate(rows):
            if line is None:
                _put_down(row, allocation)
                rows[place] = row, allocation[6]

    def assign(self, storage: torch.UntypedStorage, role: int, module: int) -> None:
        """Say what a storage is; begins a row for one that is older than the recording."""
        size = storage.nbytes()
        if not self._tape.on or not size:
            return
        row = self._living.get(storage._cdata)
        if row is None:
            row = self._open(storage, _aligned(size), size)
        row[_ROLE], row[_MODULE] = role, module

    def drain(self, with_living: bool) -> bytes:
        """Packed rows that ended since the last drain; at the end with those that live, which then are forgotten."""
        packed = bytearray()
        if with_living:
            # One by one, and before those that ended: another thread may let go of any of them meanwhile.
            for address in list(self._living):
                row = self._living.pop(address, None)
                packed += ALLOCATION.pack(*row) if row is not None else b""
            self._references.clear()
        while self._ended:
            packed += self._ended.popleft()
        return bytes(packed)

    def _open(self, storage: torch.UntypedStorage, charged: int, size: int) -> list[int]:
        address = storage._cdata
        self._count += 1
        row = [self._count, 0, 0, 0, 0, charged, size, 0, 0, 0, 0, 0, self._tape.step, 0, 0, 0, 0]
        self._living[address] = row
        self._references[address] = weakref.ref(storage, lambda _: self._died(address))
        return row

    def _died(self, address: int) -> None:
        """Called in the midst of anything, on whatever thread lets the last tensor go; while the tape is off, too."""
        row = self._living.pop(address, None)
        self._references.pop(address, None)
        if row is None:
            return
        tape = self._tape
        self.events += 1
        self._freed += row[_BYTES]
        row[_DIED], row[_DIED_NS], row[_DIED_STEP] = self.events, tape.clock_ns(), tape.step
        row[_DIED_PHASE] = tape.current_phase()
        if self._kept < self._limit:
            self._kept += 1
            self._ended.append(ALLOCATION.pack(*row))
        else:
            self.dropped += 1


def _put_down(row: list[int], entry: Entry) -> None:
    row[_SIGNATURE], row[_SITE], row[_STEP], row[_PHASE] = entry[4], entry[6], entry[7], entry[9]
    if row[_ROLE] == 0:
        row[_MODULE] = entry[5]


def _aligned(size: int) -> int:
    """Of a buffer of its own: `heapBufferSizeAndAlign` gives multiples of 256 bytes (pytorch issue 193838)."""
    return -(-size // 256) * 256


def _strided(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The parts of a tensor that have storages of their own."""
    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return (tensor._indices(), tensor._values())
    return ()
