"""What a recording says of its run: the one definition of these facts, and how JSON is read as their types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin, get_type_hints

from anymps._errors import MacError
from anymps._numbers import digits
from anymps.mac import Mac, parse_mac
from anymps.record._facts import Site
from anymps.record.format import MOST

_WIRED: Final = re.compile(r"iogpu\.wired_limit_mb=(\d+)")
NOWHERE: Final = Site("", 0)

_Line = Annotated[int, lambda line: line > 0]
_Count = Annotated[int, lambda count: count > 0]
_Seconds = Annotated[float | int, lambda seconds: 0 <= seconds <= MOST]
_Speed = Annotated[float, lambda speed: 0.0 < speed < 100.0]


def _is_look(row: tuple[Any, ...]) -> bool:
    begin, end, lost, *_ = row
    return bool(begin <= end and lost >= 0)


Look = Annotated[tuple[int, int, int, _Speed, _Speed], _is_look]
"""Begin and end in ns; what earlier versions noted, the us in which the thread had no core; two speeds."""


@dataclass(frozen=True)
class SourcePlace:
    """A line of code, and whether it chose the device."""

    file: str = ""
    line: _Line = 0
    function: str = ""
    source: str = ""
    first: _Line = 0
    around: str = ""
    chosen: bool = False

    @property
    def site(self) -> Site:
        """The same as a site; an unknown one without a line."""
        if not self.line:
            return NOWHERE
        return Site(self.file, self.line, self.function, self.source, first=self.first or self.line, around=self.around)


@dataclass(frozen=True)
class EndingFacts:
    """How the run ended: its `status`, and where they apply the exception, or `how` (a signal's name or `os._exit`).

    `process` is the name of the one whose exception made the script fail, `compared` the comparison of devices that the
    script raised by.
    """

    status: int | None = None
    how: str = ""
    exception: str = ""
    message: str = ""
    raised_by: str = ""
    place: SourcePlace = SourcePlace()
    process: str = ""
    compared: str = ""


@dataclass(frozen=True)
class Part:
    """One process of a joined recording: `begin_ns` is where it begins on the clock of the whole.

    `complete` is false if its recording stopped in the middle. `card` is the NVIDIA GPU that computed, such as
    `cuda:0, NVIDIA H100 80GB HBM3`; empty for the CPU.
    """

    name: str
    begin_ns: int
    complete: bool
    card: str = ""
    ending: EndingFacts = EndingFacts()


@dataclass(frozen=True)
class NumbersChecked:
    """What the check of numbers compared, and what it left out by reason."""

    compared: int
    operators: int
    wrong: int
    left_out: Mapping[str, _Count]


@dataclass(frozen=True)
class ExpectedError:
    """A line whose errors all tests expect, and why."""

    file: str = ""
    line: int = 0
    why: str = ""


@dataclass(frozen=True)
class Suite:
    """The tests of a session: how many ran, failed and were excused. `own` are the packages of the project."""

    tests: int = 0
    failed: int = 0
    excused: int = 0
    expected: tuple[ExpectedError, ...] = ()
    own: tuple[str, ...] = ()


@dataclass(frozen=True)
class Meta:
    """The facts about a run, as `docs/architecture/recording-file.md` explains them; unknown ones are empty or None."""

    schema_version: int = 0
    complete: bool = False
    anymps_version: str = ""
    torch_version: str = ""
    python_version: str = ""
    platform: str = ""
    machine: str = ""
    started: str = ""
    script: str = ""
    arguments: tuple[str, ...] = ()
    directory: str = ""
    process: int = 0
    threads: int = 0
    card: str = ""
    virtual: bool | None = None
    mac: str = ""
    mac_details: str = ""
    fallback: bool | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    times_of: str = ""
    faults: tuple[str, ...] = ()
    source: str = ""
    rounds: bool | None = None
    steps: tuple[int, int] | None = None
    steps_seen: int | None = None
    begin_ns: int = 0
    loop: str = ""
    wall_seconds: _Seconds | None = None
    core_speed: _Speed | None = None
    compute_speed: _Speed | None = None
    looks: tuple[Look, ...] = ()
    allocations_dropped: bool | int = False
    real_calls: Mapping[str, _Count] | None = None
    kernels_torch: str = ""
    numbers: NumbersChecked | None = None
    suite: Suite | None = None
    parts: tuple[Part, ...] = ()
    ending: EndingFacts = EndingFacts()
    used_by_children: bool = False
    device_choice: SourcePlace | None = None

    @classmethod
    def read(cls, stored: Mapping[str, object]) -> Meta:
        """The facts from JSON, without those that no field is for. Raises UnfitError with the name of a wrong one."""
        found = {}
        for key, kind in hints(cast(Any, cls)).items():
            if key in stored:
                try:
                    found[key] = read(kind, stored[key])
                except UnfitError:
                    raise UnfitError(key) from None
                if found[key] is None:  # what is not known is not there
                    raise UnfitError(key)
        return cls(**found)

    @property
    def known_mac(self) -> Mac | None:
        """The Mac that the run names: its details have the GPU cores and a raised limit. None for one unknown here."""
        wired = _WIRED.search(self.mac_details)
        for text in (self.mac_details.partition(":")[0], self.mac):
            with suppress(MacError):
                return parse_mac(text, wired_limit_mb=digits(wired[1]) if wired else 0)
        return None

    @property
    def on_mac(self) -> bool:
        """Whether a Mac's own device was recorded."""
        return self.virtual is False


class UnfitError(Exception):
    """A value is not of the type."""


def read(kind: Any, value: Any) -> Any:
    """The JSON value as one of `kind`. Raises UnfitError if it is none.

    A `kind` is a text, truth or number, a tuple or mapping of kinds, a dataclass, a union, or one of these `Annotated`
    with conditions. Of an object, members that its dataclass lacks are passed over; those with a default may be absent.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        found = read(inside[0], value)
        if all(condition(found) for condition in inside[1:]):
            return found
    elif origin in (Union, UnionType):
        for one in inside:
            with suppress(UnfitError):
                return read(one, value)
    elif origin is tuple:
        if isinstance(value, list) and inside[1:] == (...,):
            return tuple(read(inside[0], each) for each in value)
        if isinstance(value, list) and len(value) == len(inside):
            return tuple(map(read, inside, value))
    elif isinstance(value, dict):
        if origin is not None:
            return {key: read(inside[1], each) for key, each in value.items()}
        if hasattr(kind, "__dataclass_fields__"):
            found = {name: read(hint, value[name]) for name, hint in hints(kind).items() if name in value}
            with suppress(TypeError):  # one without a default is missing
                return kind(**found)
    elif type(value) is kind and (kind is not int or abs(value) <= MOST):
        return value
    raise UnfitError


@cache
def hints(kind: Any) -> dict[str, Any]:
    """The kind of each field of a dataclass."""
    return get_type_hints(kind, include_extras=True)
