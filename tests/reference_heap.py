"""The allocator of the MPS backend once more, slow and plain: what the C++ heap model is compared with.

Written from the rules alone (aten/src/ATen/mps/MPSAllocator.{h,mm} by torch release; pytorch pulls 187441 and 190438
for torch 2.14), with sorted lists and counters that really count. The GPU is idle whenever the rules ask, ties are
broken by (heap number, offset), and Metal places a buffer at the lowest offset that fits: the choices that the C++
header states.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NoReturn

MIB = 1 << 20
GIB = 1 << 30
ALIGNMENT = 256
PAGE = 16384


class Refusal(RuntimeError):
    """An error of the backend, with torch's text."""


def up(value: int, step: int) -> int:
    """`value` rounded up to a multiple of `step`."""
    return -(-value // step) * step


def size_text(size: int, minor: int) -> str:
    """A size as torch 2.`minor` prints it (2.7: KB, MB, GB; later KiB, MiB, GiB)."""
    if size <= 1024:
        return f"{size} bytes"
    if minor == 7:  # narrows to float before it divides
        (size,) = struct.unpack("f", struct.pack("f", size))
    letter, unit = next((s, u) for s, u in (("K", 1024), ("M", MIB), ("G", GIB)) if s == "G" or size <= u * 1024)
    return f"{size / unit:.2f} {letter}{'B' if minor == 7 else 'iB'}"


@dataclass(eq=False)
class Buffer:
    """A buffer of G1 and G2, or a block of G3 (`ident` 0: a free block without a buffer)."""

    heap: HeapRecord
    offset: int
    size: int
    ident: int = 0
    in_use: bool = False
    gc_count: int = 0

    @property
    def key(self) -> tuple[int, int, int]:
        """The order of the free sets."""
        return (self.size, self.heap.number, self.offset)


@dataclass(eq=False)
class HeapRecord:
    """A Metal heap with its buffers in offset order (G3: with the free blocks between them)."""

    pool: Pool
    number: int
    size: int
    dedicated: bool
    buffers: list[Buffer] = field(default_factory=list)

    def gaps(self) -> list[tuple[int, int]]:
        """(start, end) of the free ranges of an automatic heap."""
        edges = [0]
        for buffer in sorted(self.buffers, key=lambda b: b.offset):
            edges += [buffer.offset, buffer.offset + buffer.size]
        edges.append(self.size)
        return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]

    def available(self) -> int:
        """The largest free run that starts on a page."""
        return max((end - min(end, up(start, PAGE)) for start, end in self.gaps()), default=0)


@dataclass(eq=False)
class Pool:
    """A pool of heaps."""

    small: bool
    shared: bool
    heaps: list[HeapRecord] = field(default_factory=list)

    def free(self) -> list[Buffer]:
        """The free buffers or blocks in the order (size, address)."""
        return sorted((b for h in self.heaps for b in h.buffers if not b.in_use), key=lambda b: b.key)


class ReferenceHeap:
    """`allocate` and `release` as torch 2.`minor` accounts for them; sizes in bytes, ratio 0 means unlimited."""

    def __init__(
        self,
        minor: int,
        recommended: int,
        max_buffer: int,
        high: float = 1.7,
        low: float = 1.4,
        *,
        unified: bool = True,
        baseline: int = 0,
        metal_limit: int = 0,
    ) -> None:
        if minor >= 13 and not unified:
            raise Refusal("MPS backend is only supported on devices with unified memory")
        if not 0 <= high <= 2:
            raise Refusal(f"invalid high watermark ratio {high:g}")
        if not 0 <= low <= (high or 2):
            raise Refusal(f"invalid low watermark ratio {low:g}")
        self.minor, self.recommended, self.max_buffer = minor, recommended, max_buffer
        self.low_limit = int(low * recommended) if low else None
        self.unified, self.baseline, self.metal_limit = unified, baseline, metal_limit
        self.set_memory_fraction(high)
        shared = minor >= 12
        self.large, self.small, self.tiny = Pool(False, shared), Pool(True, shared), Pool(True, True)
        self.current = self.peak_current = self.peak_total = 0
        self.heap_count = self.buffer_count = 0

    def set_memory_fraction(self, ratio: float) -> None:
        """Changes the high limit alone."""
        self.high_limit = int(ratio * self.recommended) if ratio else None

    @property
    def pools(self) -> list[Pool]:
        """All pools."""
        return [self.small, self.large, self.tiny]

    @property
    def total(self) -> int:
        """Bytes of heaps."""
        return sum(heap.size for pool in self.pools for heap in pool.heaps)

    @property
    def driver(self) -> int:
        """What Metal counts."""
        return self.baseline + self.total

    # ---- a request ------------------------------------------------------------------------------------------------

    def tier(self, size: int, pressure: bool) -> tuple[int, bool]:
        """(heap size, dedicated) of a heap made for `size` bytes."""
        xlarge = GIB if self.unified else 128 * MIB
        if size <= MIB:
            return 8 * MIB, False
        if size < 10 * MIB:
            return 32 * MIB, False
        if size < xlarge // 2 and not pressure:
            return xlarge, False
        return up(size, 2 * MIB), True

    def charged(self, nbytes: int) -> int:
        """The aligned, from 2.14 bucketed, size of a request."""
        aligned = up(nbytes, ALIGNMENT)
        if self.minor < 14 or aligned <= MIB:
            return aligned
        bucketed = up(aligned, max((1 << (aligned.bit_length() - 1)) // 32, PAGE))
        band = [sum(size >= edge for edge in (10 * MIB, 512 * MIB)) for size in (aligned, bucketed)]
        return aligned if bucketed >= self.max_buffer or band[0] != band[1] else bucketed

    def allocate(self, nbytes: int) -> Buffer | None:
        """A buffer for `nbytes`, nothing for 0; raises with torch's text."""
        if nbytes == 0:
            return None
        if nbytes >= self.max_buffer:
            raise Refusal(f"Invalid buffer size: {size_text(nbytes, self.minor)}")
        size = self.charged(nbytes)
        if self.minor <= 11 and self.unified and nbytes <= 8:
            pool = self.tiny
        else:
            pool = self.small if size <= MIB else self.large
        self.pressure = False
        if not pool.small and self.low_limit is not None:
            distance = self.low_limit - self.driver
            self.pressure = max(0, distance // MIB if distance > 0 else 0) <= 0
        found = self.find_placed(pool, size) if self.minor >= 14 else self.find_packed(pool, size)
        if found is None:
            self.fail(pool, size)
        found.in_use = True
        self.current += found.size
        self.peak_current = max(self.peak_current, self.current)
        return found

    def release(self, buffer: Buffer) -> None:
        """Back to the free set."""
        buffer.in_use = False
        buffer.gc_count = 0
        self.current -= buffer.size

    def fail(self, pool: Pool, size: int) -> NoReturn:
        """Raises the out-of-memory text."""
        total, other = size_text(self.total, self.minor), size_text(self.baseline, self.minor)
        limit, advice = "", ""
        if self.high_limit is not None:
            limit = f", max allowed: {size_text(self.high_limit, self.minor)}"
            advice = (
                " Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations"
                " (may cause system failure)."
            )
        word = "shared" if pool.shared else "private"
        raise Refusal(
            f"MPS backend out of memory (MPS allocated: {total}, other allocations: {other}{limit}). "
            f"Tried to allocate {size_text(size, self.minor)} on {word} pool.{advice}"
        )

    def too_much(self, size: int) -> bool:
        """Whether `size` more bytes pass the high limit."""
        return self.high_limit is not None and self.driver + size > self.high_limit

    def make_heap(self, pool: Pool, size: int) -> HeapRecord | None:
        """A new heap, unless Metal refuses."""
        heap_size, dedicated = self.tier(size, self.pressure)
        if self.metal_limit and self.driver + heap_size > self.metal_limit:
            return None
        self.heap_count += 1
        heap = HeapRecord(pool, self.heap_count, heap_size, dedicated)
        pool.heaps.append(heap)
        self.peak_total = max(self.peak_total, self.total)
        return heap

    def new_ident(self) -> int:
        """The number of a new Metal buffer."""
        self.buffer_count += 1
        return self.buffer_count

    def empty_cache(self) -> None:
        """Gives back what is free."""
        for pool in self.pools:
            if self.minor >= 14:
                self.drop_heaps(pool, None)
            else:
                for buffer in pool.free():
                    self.drop(buffer, heap_too=True)

    # ---- torch 2.7 to 2.13: whole buffers -------------------------------------------------------------------------

    def find_packed(self, pool: Pool, size: int) -> Buffer | None:
        """Steps 4 and 5 of an allocation."""
        found = self.reuse(pool, size)
        if found is None and self.pressure and size < sum(b.size for b in pool.free()):
            self.collect(pool)
        if found is None:
            found = self.place(pool, size)
        if found is None:
            found = self.reuse(pool, size)
        if found is None and self.drop_fitting(pool, size):
            found = self.place(pool, size)
        if found is None:
            self.empty_cache()
            found = self.place(pool, size)
        return found

    def tightest(self, pool: Pool, size: int) -> HeapRecord | None:
        """The heap with the least available room that suffices."""
        fitting = [heap for heap in pool.heaps if heap.available() >= size]
        return min(fitting, key=lambda heap: (heap.available(), heap.number), default=None)

    def reuse(self, pool: Pool, size: int) -> Buffer | None:
        """A cached buffer, whole."""
        if self.too_much(size):
            return None
        free = pool.free()
        if not pool.small and self.low_limit is not None:
            for buffer in free:
                buffer.gc_count += 1
        fitting = [buffer for buffer in free if buffer.size >= size]
        if not fitting:
            return None
        if fitting[0].size <= size + 32 * MIB:
            return fitting[0]
        if self.tightest(pool, size) is None:
            self.drop(fitting[0], heap_too=False)
            self.pressure = False
        return None

    def place(self, pool: Pool, size: int) -> Buffer | None:
        """A new buffer in the tightest heap or in a new one."""
        if self.too_much(size):
            return None
        heap = self.tightest(pool, size) or self.make_heap(pool, size)
        if heap is None:
            return None
        offset = next(start for start, end in heap.gaps() if end - start >= size)
        buffer = Buffer(heap, offset, size, self.new_ident())
        heap.buffers.append(buffer)
        return buffer

    def drop(self, buffer: Buffer, *, heap_too: bool) -> None:
        """A free buffer goes back to its heap, and perhaps an empty heap to Metal."""
        heap = buffer.heap
        heap.buffers.remove(buffer)
        if heap_too and not heap.buffers:
            heap.pool.heaps.remove(heap)

    def drop_fitting(self, pool: Pool, size: int) -> bool:
        """One free buffer that fits, else the largest ones until they add up."""
        free = pool.free()
        fitting = [buffer for buffer in free if buffer.size >= size]
        if fitting:
            self.drop(fitting[0], heap_too=True)
            return True
        dropped = 0
        while free and dropped < size:
            buffer = free.pop()
            dropped += buffer.size
            self.drop(buffer, heap_too=True)
        return dropped >= size

    def collect(self, pool: Pool) -> None:
        """Garbage collection down to the low limit."""
        assert self.low_limit is not None
        if self.driver < self.low_limit:
            return
        target, reclaimed, freed = self.driver - self.low_limit, 0, True
        while freed and reclaimed < target and pool.free():
            candidates = pool.free()
            threshold = sum(b.gc_count for b in candidates) / len(candidates)
            freed = False
            for buffer in candidates:
                if reclaimed < target and buffer.gc_count >= threshold:
                    freed = True
                    reclaimed += buffer.size
                    self.drop(buffer, heap_too=buffer.heap.dedicated)

    # ---- torch 2.14 and 2.15: blocks are cut and merged -----------------------------------------------------------

    def find_placed(self, pool: Pool, size: int) -> Buffer | None:
        """The order of attempts of an allocation."""
        found = self.reuse_block(pool, size)
        if found is None and self.pressure and size < sum(b.size for b in pool.free()):
            assert self.low_limit is not None
            if self.driver >= self.low_limit:
                self.drop_heaps(pool, self.driver - self.low_limit)
        if found is None:
            found = self.block_of_new_heap(pool, size)
        if found is None:
            found = self.reuse_block(pool, size)
        if found is None and self.drop_heaps(pool, size) > 0:
            found = self.block_of_new_heap(pool, size)
        if found is None:
            self.empty_cache()
            found = self.reuse_block(pool, size) or self.block_of_new_heap(pool, size)
        return found

    def reuse_block(self, pool: Pool, size: int) -> Buffer | None:
        """A cached buffer without a cut, else a cut of the smallest block, else of merged neighbours."""
        if self.too_much(size):
            return None
        fitting = [block for block in pool.free() if block.size >= size]
        cached = [block for block in fitting if block.ident]
        if cached and cached[0].size - size < self.min_split(pool):
            return self.cut(cached[0], size)
        if fitting:
            return self.cut(fitting[0], size)
        for heap in pool.heaps:
            run: list[Buffer] = []
            for block in heap.buffers:
                run = [] if block.in_use else [*run, block]
                if sum(each.size for each in run) >= size:
                    merged = Buffer(heap, run[0].offset, sum(each.size for each in run))
                    at = heap.buffers.index(run[0])
                    heap.buffers[at : at + len(run)] = [merged]
                    return self.cut(merged, size)
        return None

    def min_split(self, pool: Pool) -> int:
        """The smallest remainder that becomes a block."""
        return ALIGNMENT if pool.small else MIB

    def cut(self, block: Buffer, size: int) -> Buffer:
        """The first `size` bytes of a free block, or all of it."""
        rest = block.size - size
        if rest >= self.min_split(block.heap.pool):
            blocks = block.heap.buffers
            blocks.insert(blocks.index(block) + 1, Buffer(block.heap, block.offset + size, rest))
            block.size, block.ident = size, 0
        if not block.ident:
            block.ident = self.new_ident()
        return block

    def block_of_new_heap(self, pool: Pool, size: int) -> Buffer | None:
        """A block of a new heap."""
        heap = None if self.too_much(size) else self.make_heap(pool, size)
        if heap is None:
            return None
        heap.buffers.append(Buffer(heap, 0, heap.size))
        return self.cut(heap.buffers[0], size)

    def drop_heaps(self, pool: Pool, target: int | None) -> int:
        """Releases free heaps, oldest first, until `target` bytes (all for none); returns the bytes."""
        released = 0
        for heap in list(pool.heaps):
            if (target is None or released < target) and not any(block.in_use for block in heap.buffers):
                pool.heaps.remove(heap)
                released += heap.size
        return released
