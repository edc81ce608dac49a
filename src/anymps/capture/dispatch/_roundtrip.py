"""The memory that copies to the CPU wrote, and what operators made of it, until it is copied back to mps.

The rules are those of native/recorder/roundtrip.cpp, as far as a dispatch mode sees.
"""

from __future__ import annotations

import ctypes
import json
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from anymps.capture.dispatch._tape import PythonTape, graph_task

_MOST_TRIPS = 1024
_FOLLOWED = 64  # operators after a copy to the CPU in which its values are followed
_MOST_OPERATORS = 8  # beyond that many between the copies, more than a detour is going on
_LOOKED = 64 << 10  # bytes at the beginning, in the middle and at the end that tell a change
_WIDE = (torch.float64, torch.complex128)  # what mps cannot hold


@dataclass
class _Trip:
    storage: weakref.ref[torch.UntypedStorage]  # while it lives, its address is no other's
    site: int
    print: int
    operators: list[str]  # that made these values of those that were copied


class Came(NamedTuple):
    """Where values came from mps: the line of the copy, and the operators since."""

    site: int
    operators: list[str]


class RoundTrips:
    """The trips of one recording."""

    def __init__(self, tape: PythonTape) -> None:
        self._tape = tape
        self._trips: dict[int, _Trip] = {}
        self.following = 0
        """How many more operators are looked at."""

    def left(self, host: torch.Tensor) -> None:
        """A copy from mps has written this CPU tensor."""
        if graph_task() == -1:
            self._remember(host, self._tape.sites.current(), [])
            self.following = _FOLLOWED

    def returned(self, host: torch.Tensor) -> None:
        """This CPU tensor has been copied to mps."""
        trip = self._trips and self._find(host)
        if not trip or graph_task() != -1 or trip.print != fingerprint(host.untyped_storage()):
            return  # it did not come from mps, or something that is no operator has written to it
        name = f"anymps::round_trip {json.dumps({'operators': trip.operators})}"
        self._tape.note_pair(name, self._tape.sites.current(), trip.site, moved=host.nbytes)

    def before(self, given: Iterable[torch.Tensor]) -> Came | None:
        """Where the values that an operator is given came from mps; None if they did not, or not all of them."""
        came: Came | None = None
        for tensor in given:
            trip = self._find(tensor)
            if trip is None:
                if tensor.dim():  # a number may come from anywhere
                    return None
            elif trip.print != fingerprint(tensor.untyped_storage()):
                return None  # changed by something that is no operator
            else:
                earlier = came.operators if came is not None else []
                came = Came(trip.site, list(dict.fromkeys([*earlier, *trip.operators])))
        return came

    def made(self, results: Any, came: Came, name: str) -> None:
        """An operator has made these of such values."""
        if len(came.operators) >= _MOST_OPERATORS:
            return
        for tensor in _tensors(results):
            trip = self._find(tensor)
            if trip is None or trip.print != fingerprint(tensor.untyped_storage()):  # else a view
                self._remember(tensor, came.site, [*came.operators, name])

    def end(self) -> None:
        """The recording ends."""
        self._trips.clear()
        self.following = 0

    def _find(self, tensor: torch.Tensor) -> _Trip | None:
        address = _address(tensor)
        trip = self._trips.get(address)
        if trip is not None and trip.storage() is None:
            del self._trips[address]
            return None
        return trip

    def _remember(self, host: torch.Tensor, site: int, operators: list[str]) -> None:
        address = _address(host)
        if not address or host.dtype in _WIDE:
            return
        if len(self._trips) >= _MOST_TRIPS:
            self._trips = {place: trip for place, trip in self._trips.items() if trip.storage() is not None}
        if len(self._trips) < _MOST_TRIPS:
            storage = host.untyped_storage()
            self._trips[address] = _Trip(weakref.ref(storage), site, fingerprint(storage), operators)


def fingerprint(storage: torch.UntypedStorage) -> int:
    """What tells a change of the values of a CPU storage: all bytes of a small one, some of a large one."""
    address, size = storage.data_ptr(), storage.nbytes()
    if size <= 3 * _LOOKED:
        return hash(ctypes.string_at(address, size))
    places = (address, address + size // 2, address + size - _LOOKED)
    return hash(tuple(ctypes.string_at(place, _LOOKED) for place in places))


def _address(tensor: torch.Tensor) -> int:
    """Of the memory of a CPU tensor; 0: it has none."""
    if not tensor.is_cpu or tensor.layout is not torch.strided:
        return 0
    return tensor.untyped_storage().data_ptr()


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _tensors(value)
