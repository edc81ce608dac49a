"""A launch under the checker: on copies of the buffers, surrounded by empty memory; then reports what was found."""

from __future__ import annotations

import ctypes
import json
import re
import threading
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from anymps.metal._arguments import PADDING, Constant
from anymps.metal._device import Device
from anymps.metal._launch import Launch
from anymps.metal._runtime import KernelEntry, Report, Triple, runtime
from anymps.metal.checking._arguments import argument_faults, unset_faults
from anymps.metal.checking._events import MOST_EVENTS, Area, Event, Kind, checker
from anymps.metal.checking._messages import Launched, ShaderFault, describe
from anymps.metal.checking._sample import Sample

_MARK = "anymps::shader"
_NUMBER = re.compile(r"(?<!argument )(?<!\w)-?\d[\d,]*")  # sizes, indices and threads
_KEPT = 1000  # faults that nobody has read

_Place = tuple[int, int]  # an area's index, and how far behind its start

_turn = threading.Lock()  # the checker follows one launch at a time
_turn_of = 0  # the thread that has it
_told: dict[tuple[Path, str, int, str, int], ShaderFault] = {}
_untaken: deque[ShaderFault] = deque(maxlen=_KEPT)


class ShaderFaultWarning(RuntimeWarning):
    """What the checker found in a kernel while nothing was recorded."""


def take_shader_faults() -> list[ShaderFault]:
    """What was found in this process since the last call: each fault of each launch."""
    taken = []
    while _untaken:
        taken.append(_untaken.popleft())
    return taken


@dataclass
class CheckedLaunch:
    """What the checker does with one launch of a compiled source. The results are there once it has run."""

    source: str
    library: Path
    sample: Sample
    faults: list[ShaderFault] = field(default_factory=list)
    why: str = ""
    """Why it was stopped, if the checker knows."""
    stray: tuple[int, int, int, int] | None = None
    """What a group that was not checked wrote beside a buffer: argument, first byte, how many, bytes of the buffer."""

    def run(self, launch: Launch, plain: KernelEntry, report: Report) -> None:
        """Run it: the groups of the sample under the checker, the others in the `plain` form."""
        memory = _memory_of(launch)
        found = self._run(launch, plain, memory, report)
        launched = Launched(launch.kernel, self.source, self.library, memory.names, launch.missing, self.sample)
        self.faults = [*argument_faults(launch), *unset_faults(launch, self.source), *describe(found, launched)]
        ending = next((fault for fault in reversed(self.faults) if fault.kind in ("wild", "division")), None)
        if ending is not None and report.signal:
            self.why = f"anymps: {ending.what} On a Mac this is not caught, and the result is undefined"
        if not any(event.kind == Kind.OUTSIDE for event in found):
            self.stray = memory.stray()

    def _run(self, launch: Launch, plain: KernelEntry, memory: _Memory, report: Report) -> list[Event]:
        """Has the checker follow a launch. Returns what it found."""
        global _turn_of
        events = (Event * MOST_EVENTS)()
        if _turn.locked() and _turn_of == threading.get_ident():
            raise RuntimeError(
                f"anymps: a signal handler launched the Metal kernel '{launch.kernel}' while another one was checked: "
                "the checker follows one at a time"
            )
        with _turn:
            _turn_of = threading.get_ident()
            areas = memory.areas()
            if checker().anymps_check_begin(areas, len(areas), len(areas) - 1, launch.entry.thread):
                raise MemoryError(f"anymps: not enough memory to check the Metal kernel '{launch.kernel}'")
            try:
                pointers = memory.pointers(_buffer_count(launch))
                grid, group = Triple(*launch.grid), Triple(*launch.group)
                for first, count, checked in self.sample.parts():
                    entry, workers = (launch.entry, 1) if checked else (plain, torch.get_num_threads())
                    checker().anymps_check_pause()
                    runtime().anymps_rt_launch_groups(
                        entry, pointers, grid, group, first, count, workers, ctypes.byref(report)
                    )
                    if report.signal:
                        break
            finally:
                found = checker().anymps_check_end(events, MOST_EVENTS)
                _turn_of = 0
        return events[:found]

    def report(self, device: Device) -> None:
        """Note what was found: as marks at the running line while something records, else as warnings."""
        _untaken.extend(self.faults)
        recorded = device.shaders_by_operator()
        site = device.current_site() if recorded else 0
        for fault in self.faults:
            key = (self.library, fault.kind, fault.line, _without_numbers(fault), site)
            first = _told.setdefault(key, fault)  # in its words, so that the same is the same
            if recorded:
                facts = {"kind": first.kind, "kernel": first.kernel, "line": first.line, "what": first.what}
                device.note_pair(f"{_MARK} {json.dumps(facts, sort_keys=True)}", site, 0)
            else:
                warnings.warn(first.what, ShaderFaultWarning, stacklevel=4)


def _without_numbers(fault: ShaderFault) -> str:
    """What a fault has in common with the same one of other launches: which argument, of which type, at which line."""
    return _NUMBER.sub("", fault.what.partition(f" at line {fault.line}, ")[0] if fault.line else fault.what)


def _buffer_count(launch: Launch) -> int:
    """How many buffers a launch needs a place for."""
    errors = 0 if launch.errors is None else launch.errors[0] + 1
    return max(int(launch.entry.buffers), len(launch.bound.slots), errors, 1)


def _memory_of(launch: Launch) -> _Memory:
    memory = _Memory()
    rest = iter(launch.tensors)
    for index, slot in enumerate(launch.bound.slots):
        name = f"argument {index}"
        if isinstance(slot, Constant):
            data = ctypes.create_string_buffer(slot.data, len(slot.data))
            memory.places[index] = memory.add(name, ctypes.addressof(data), len(slot.data) - PADDING, data)
        elif isinstance(slot, torch.Tensor):
            memory.places[index] = memory.add_tensor(name, next(rest), not launch.entry.written >> index & 1)
        else:
            memory.places[index] = memory.add_table(name, [next(rest) for _ in slot])
    if launch.errors is not None:
        index, errors = launch.errors
        memory.places[index] = memory.add("the error buffer", ctypes.addressof(errors), ctypes.sizeof(errors), errors)
    memory.add("threadgroup memory", None, int(launch.entry.shared_bytes()), None)
    return memory


class _Memory:
    """The areas of a launch: each storage once, however many tensors show parts of it."""

    def __init__(self) -> None:
        self.names: list[tuple[str, int]] = []
        self.places: dict[int, _Place] = {}  # of the arguments
        self._hosts: list[int | None] = []
        self._keep: list[object] = []
        self._storages: dict[int, int] = {}
        self._fixed: dict[int, bool] = {}
        self._tables: list[tuple[int, ctypes.Array[ctypes.c_void_p], list[_Place]]] = []
        self._areas: ctypes.Array[Area]

    def add(self, name: str, host: int | None, size: int, keep: object) -> _Place:
        self.names.append((name, size))
        self._hosts.append(host)
        self._keep.append(keep)
        return len(self.names) - 1, 0

    def add_tensor(self, name: str, tensor: torch.Tensor, fixed: bool = False) -> _Place:
        """The area of a tensor; `fixed`: the kernel only reads it there."""
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        if start not in self._storages or not start:
            self._storages[start], _ = self.add(name, start or None, storage.nbytes() if start else 0, storage)
        index = self._storages[start]
        self._fixed[index] = self._fixed.get(index, True) and fixed
        return index, tensor.data_ptr() - start if start else 0

    def add_table(self, name: str, tensors: Sequence[torch.Tensor]) -> _Place:
        table = (ctypes.c_void_p * len(tensors))()
        place = self.add(name, ctypes.addressof(table), ctypes.sizeof(table), table)
        self._tables.append((place[0], table, [self.add_tensor(name, tensor) for tensor in tensors]))
        return place

    def areas(self) -> ctypes.Array[Area]:
        """The areas, to which the checker gives their starts."""
        self._areas = (Area * len(self.names))()
        for area, host, (_, size) in zip(self._areas, self._hosts, self.names, strict=True):
            area.host, area.bytes = host, size
        for index, fixed in self._fixed.items():
            self._areas[index].fixed = fixed
        return self._areas

    def pointers(self, count: int) -> ctypes.Array[ctypes.c_void_p]:
        """Where each of `count` buffers is, and in the tables each of their tensors."""
        for index, table, places in self._tables:
            table[:] = [self._address(*place) for place in places]
            ctypes.memmove(self._areas[index].start, table, ctypes.sizeof(table))
        found = (ctypes.c_void_p * count)()
        for argument, place in self.places.items():
            found[argument] = self._address(*place)
        return found

    def stray(self) -> tuple[int, int, int, int] | None:
        """What was written beside an argument: its index, the first byte, how many, and the bytes of its buffer."""
        for argument, (index, _) in self.places.items():
            area = self._areas[index]
            if area.strays:
                return argument, int(area.stray), int(area.strays), int(area.bytes)
        return None

    def _address(self, index: int, offset: int) -> int:
        return int(self._areas[index].start or 0) + offset
