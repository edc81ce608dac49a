"""Known faults of MPS without the native core: which calls meet one, told from the same rows as the native core's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload

from anymps.capture.dispatch._hazard_checks import CHECKS, Seen
from anymps.rules import CoreRow, Family, Trait
from anymps.rules.faults import Check, Hazard, Outcome

_DIRE = frozenset({Outcome.ABORTS, Outcome.MAY_ABORT, Outcome.HANGS, Outcome.MAY_HANG})

_CALLED_BY = {
    "aten::_lstm_mps": "aten::lstm.input",
    "aten::_scaled_dot_product_attention_math_for_mps": "aten::scaled_dot_product_attention",
}
"""Kernels of mps that a composite operator leaves for, whose faults the rows name by that operator. The arguments that
the checks ask for have the same names and places. Source: torch 2.13, RNN.cpp and attention.cpp."""

_NOT_HERE = "aten::scaled_dot_product_attention"
"""It meets its faults in the kernel that it leaves for, and only where it does."""


class _Met(NamedTuple):
    hazard: Hazard
    applies: Callable[[Seen], bool]
    places: tuple[int, ...]
    name: str
    """Of the operator in the mark."""


class OperatorHazards:
    """The faults in force that concern one overload."""

    def __init__(self, func: OpOverload, places: dict[str, int], met: Sequence[_Met]) -> None:
        self._met = met
        self._places = places
        self._only_host_scalars = all(it.hazard.check is Check.CPU_SCALAR_VIEW for it in met)
        self._defaults = [argument.default_value for argument in func._schema.arguments]

    def may_meet(self, tensors: Iterable[tuple[int, torch.Tensor]]) -> bool:
        """Whether a call with these tensors has to be looked at: additions and the like rarely have to."""
        return not self._only_host_scalars or any(not it.is_mps and it.storage_offset() for _, it in tensors)

    def met_by(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[Hazard, str]]:
        """The faults that a call with these arguments meets, each with the operator's name."""
        given: list[Any] = [*args, *self._defaults[len(args) :]]
        for name, value in kwargs.items():
            given[self._places[name]] = value
        return [(it.hazard, it.name) for it in self._met if it.applies(Seen(it.hazard, it.places, given))]


class KnownFaults:
    """The faults in force on the device that is recorded."""

    def __init__(self, known: Iterable[Hazard]) -> None:
        self._known = [hazard for hazard in known if hazard.check in CHECKS]
        self._events = {hazard.check: hazard for hazard in known}

    def of(self, func: OpOverload, name: str, row: CoreRow | None) -> OperatorHazards | None:
        """Those of an overload, `aten::mm.out`, with its row in the rules if it has one; None: there are none."""
        met: list[_Met] = []
        places = {argument.name: place for place, argument in enumerate(func._schema.arguments)}
        for called in (name, _CALLED_BY.get(name, "")):
            if not called or called == _NOT_HERE == name:
                continue
            base = called.partition("::")[2].partition(".")[0]
            for hazard in self._known:
                concerned = base in hazard.operators if hazard.family is None else _of_family(row, hazard.family)
                if concerned and not any(it.hazard is hazard for it in met):
                    applies, roles = CHECKS[hazard.check]
                    met.append(_Met(hazard, applies, tuple(_place(places, names) for names in roles), called))
        return OperatorHazards(func, places, met) if met else None

    def of_event(self, check: Check) -> Hazard | None:
        """The fault of events that is recognised by a check, if it is in force."""
        return self._events.get(check)


def is_dire(hazard: Hazard) -> bool:
    """Whether the process may not live to tell of the call."""
    return hazard.outcome in _DIRE


def mark_of(hazard: Hazard, operator: str) -> str:
    """The name of a fault's mark on the tape."""
    return f"anymps::hazard.{hazard.id} {operator}"


def _of_family(row: CoreRow | None, family: Family) -> bool:
    return row is not None and row[2] == int(family) and bool(Trait(row[3]) & Trait.DENSE)


def _place(places: dict[str, int], names: Sequence[str]) -> int:
    """The place of the first of these arguments that the operator has, -1 if it has none."""
    return next((places[name] for name in names if name in places), -1)


class Event:
    """What is known of an event: as in native/device/events.cpp. `timing` is None for one older than the recording."""

    __slots__ = ("measured", "recorded", "site", "synchronized", "timing")

    def __init__(self, timing: bool | None) -> None:
        self.timing = timing
        self.recorded: int | None = None  # how many copies had started then
        self.measured = self.synchronized = False
        self.site = 0  # where it was recorded last

    def record(self, copies: int) -> None:
        """It is recorded (again)."""
        self.recorded = copies
        self.measured = self.synchronized = False

    def check(self) -> Check | None:
        """How measuring up to it would be recognised as a fault, if at all."""
        if self.timing is None:
            return Check.EVENT_HANGS if self.measured else None
        if not self.timing or self.recorded is None or self.measured:
            return Check.EVENT_HANGS
        return Check.EVENT_MAY_HANG if self.synchronized else None
