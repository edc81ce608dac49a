"""Launches that need no second check: everything that decides what the kernel touches is as in a clean one.

Which buffers decide by their contents is found from the source (`analysis/_deciding_buffers.py`). The rest is the grid,
and of each argument how large it is, where in its storage it begins, and which others share that.

Whether threads that race write the same value is up to the data, too. So a launch in which that is all there is to find
is looked at again, at distances that double.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from anymps.metal._arguments import Constant
from anymps.metal._launch import Launch
from anymps.metal.analysis import Program, SimilarGroups, deciding_buffers
from anymps.metal.checking._arguments import argument_faults, unset_faults
from anymps.metal.checking._launch import CheckedLaunch
from anymps.metal.checking._messages import ShaderFault
from anymps.metal.checking._parts import clean_by_parts
from anymps.metal.compilation import without_macros

_MOST_KEPT = 4096  # launches of one source
_MOST_READ = 1 << 20  # bytes of a buffer whose contents decide
_MOST_APART = 64  # launches from one look at a race of same values to the next
_SAME_VALUE = "same_value"
_DIVIDES, _SHIFTS = b"__ubsan_handle_divrem_overflow", b"__ubsan_handle_shift_out_of_bounds"


@dataclass
class _Known:
    """What was found in a launch: nothing, or races of threads that all wrote the same."""

    faults: list[ShaderFault]
    apart: int = 1  # launches from the last look to the next one
    left: int = 0  # launches before that

    def may_pass(self) -> bool:
        """Whether the next launch needs no look."""
        if not self.faults:
            return True
        self.left -= 1
        return self.left >= 0


class CleanLaunches:
    """The clean launches of the kernels of one source, by all that decides what they touch."""

    def __init__(self, source: str, library: Path) -> None:
        self._source = source
        self._library = library
        self._clean: dict[Hashable, _Known] = {}

    @functools.cached_property
    def _program(self) -> Program:
        text = without_macros(self._source)
        return Program("" if text is None else text)

    @functools.cached_property
    def _similar(self) -> SimilarGroups:
        return SimilarGroups(self._program)

    @functools.cached_property
    def _deciding(self) -> Mapping[str, frozenset[int]]:
        code = self._library.read_bytes()  # what its compiler could not rule out, it has a call for
        return deciding_buffers(self._program, divides=_DIVIDES in code, shifts=_SHIFTS in code)

    def key(self, launch: Launch) -> Hashable | None:
        """What decides what a launch touches; None if that is not known."""
        deciding = self._deciding.get(launch.kernel)
        if deciding is None or launch.errors is not None:
            return None
        places: dict[int, int] = {}  # of storages, by address
        written: set[int] = set()
        read: list[tuple[int, int]] = []
        parts: list[Hashable] = [launch.kernel, launch.grid, launch.group]
        rest = iter(launch.tensors)
        for index, slot in enumerate(launch.bound.slots):
            if isinstance(slot, Constant):
                parts.append((slot.letter, slot.data if index in deciding else len(slot.data)))
                continue
            if not isinstance(slot, torch.Tensor):
                return None
            tensor = next(rest)
            storage = tensor.untyped_storage()
            start, size = storage.data_ptr(), storage.nbytes()
            place = places.setdefault(start, index)
            layout = (slot.dtype, slot.shape, slot.stride())
            parts.append((place, size, tensor.data_ptr() - start, layout))
            if launch.entry.written >> index & 1:
                written.add(start)
            if index in deciding:
                read.append((start, size))
        for start, size in read:
            if start in written or size > _MOST_READ:
                return None
            content = (ctypes.c_char * size).from_address(start) if size else b""
            parts.append(hashlib.blake2b(content, digest_size=16).digest())
        return tuple(parts)

    def has(self, key: Hashable | None, launch: Launch) -> bool:
        """Whether such a launch was clean, and this one's arguments are."""
        if key is None or key not in self._clean:
            return False
        # Numbers may not fit, and may be the strides that excuse a tensor.
        by_layout = all(isinstance(slot, torch.Tensor) and slot.is_contiguous() for slot in launch.bound.slots)
        fits = by_layout or next(argument_faults(launch), None) is None
        return fits and self._clean[key].may_pass()

    def by_parts(self, key: Hashable | None, check: CheckedLaunch, launch: Launch) -> bool:
        """Whether a launch is clean, by a look at one of all groups that do the same; it is kept then."""
        if key is None or next(unset_faults(launch, self._source), None) or next(argument_faults(launch), None):
            return False
        if not clean_by_parts(self._similar, self._deciding[launch.kernel], check, launch):
            return False
        self.add(key, [])
        return True

    def faults(self, key: Hashable | None) -> list[ShaderFault]:
        """What was found when such a launch was looked at, and is to be told again."""
        return self._clean[key].faults

    def add(self, key: Hashable | None, faults: list[ShaderFault]) -> None:
        """A launch was looked at. It was clean if it has no faults, or only those of threads that wrote the same."""
        if key is None:
            return
        before = self._clean.pop(key, None)
        if any(fault.kind != _SAME_VALUE for fault in faults):
            return
        apart = 1 if before is None or not before.faults else min(2 * before.apart, _MOST_APART)
        if len(self._clean) >= _MOST_KEPT:
            del self._clean[next(iter(self._clean))]
        self._clean[key] = _Known(faults, apart, apart - 1)
