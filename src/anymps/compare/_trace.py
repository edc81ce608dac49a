"""A trace: the calls of one run with sketches of their inputs and results, its losses, and how it ended.

The file has one JSON object a line, written during the run, so that a run that is cut short keeps its trace so far.
Lines of the program, operators and sketches are written once, and referred to by number afterwards.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Final

from anymps.record import Site

NOWHERE: Final = Site("", 0)
"""The line of a call whose line is not known."""

ELEMENTS: Final = 16
"""Elements of a tensor that a sketch keeps, at places spread evenly over it."""


def places(count: int) -> list[int]:
    """The places of the elements that a sketch keeps, of `count` in order."""
    kept = min(count, ELEMENTS)
    return [place * (count - 1) // max(kept - 1, 1) for place in range(kept)]


@dataclass(frozen=True, slots=True)
class Sketch:
    """What is kept of a tensor: its dtype and shape, a digest of its bytes, and numbers as float64.

    `nans` and `infinities` are counted; `low`, `high` (the smallest and largest number), `total` (the sum) and `rms`
    (root mean square) are of the finite numbers, those of complex ones of their absolute values. `elements` are up to
    `ELEMENTS` of them at fixed places. Without a `digest` nothing was read.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: str = ""
    nans: int = 0
    infinities: int = 0
    low: float = 0.0
    high: float = 0.0
    total: float = 0.0
    rms: float = 0.0
    elements: tuple[float, ...] = ()

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def size(self) -> float:
        """The largest absolute finite value."""
        return max(abs(self.low), abs(self.high))

    @property
    def is_floating(self) -> bool:
        """Whether its values are rounded."""
        return "float" in self.dtype or "complex" in self.dtype


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that a call read or produced: its sketch, and its memory address, which identifies it in later calls."""

    sketch: Sketch
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Bound:
    """How far a result may lie from the exact one; see `anymps.numerics.Bound`. `kind` is its `Kind`'s value.

    `limit` and `least` are the relative and the absolute distance that nothing may pass: those of PyTorch's own tests.
    """

    kind: str = "tested"
    relative: float = 0.0
    absolute: float = 0.0
    terms: int = 1
    of_input: bool = False
    limit: float = 0.0
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One operator call. `number` counts from 0 in the run, `step` the training steps before it.

    `results` are the tensors that it returned, then those that it wrote. `autocast` is the dtype of the autocast that
    was on, empty for none. `by_kernel` says that PyTorch's own kernels computed it. `is_random` says that it draws from
    a generator, `with_generator` that the program gave one. `numbers` are the numbers of Python that it was given,
    `faults` the known bugs of mps whose conditions it meets, by id.
    """

    number: int
    operator: str
    site: Site
    step: int
    in_backward: bool
    inputs: tuple[Value, ...]
    results: tuple[Value, ...]
    bound: Bound
    is_random: bool = False
    with_generator: bool = False
    autocast: str = ""
    by_kernel: bool = False
    numbers: tuple[float, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The operator without namespace, overload and the underscore of in-place: `aten.add_.Tensor` is `add`."""
        name = self.operator.split(".")[1] if "." in self.operator else self.operator
        return name.rstrip("_") or name


@dataclass(frozen=True, slots=True)
class Read:
    """A value that the program read, or a loss, which backward was called on, and the number of calls before it."""

    calls: int
    site: Site
    step: int
    value: float


@dataclass(frozen=True)
class Lists:
    """Whose autocast lists an operator is on, by the kernels that the installed torch registers: `mps`, `cuda`."""

    devices: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class Ending:
    """How a run ended: `error` in one line, empty if there was none; `site` is the program's line of it.

    `is_cut` says that the trace ends before the run did, `steps` are the training steps, `left_out` calls that were not
    traced.
    """

    error: str = ""
    site: Site = NOWHERE
    is_cut: bool = True
    steps: int = 0
    left_out: int = 0


@dataclass
class Trace:
    """What is known of one run. `facts` are the device, torch's version and the like, by name."""

    facts: dict[str, str] = field(default_factory=dict)
    calls: list[TracedCall] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    losses: list[Read] = field(default_factory=list)
    lists: dict[str, Lists] = field(default_factory=dict)
    traced_steps: list[int] = field(default_factory=list)
    ending: Ending = field(default_factory=Ending)

    @classmethod
    def open(cls, path: Path) -> Trace:
        """Read a file as far as it was written; an empty trace where there is none."""
        trace = cls()
        reader = _Reader(trace)
        if path.exists():
            with path.open(encoding="utf-8") as file:
                for line in file:
                    if not line.endswith("\n"):
                        break  # the process was ended while it wrote
                    reader.take(json.loads(line))
        return trace


_NUMBERED: Final[Mapping[str, Callable[..., Any]]] = {"site": Site, "operator": str, "bound": Bound, "k": Sketch}
"""Rows that others refer to, by their number among those of the kind."""


class _Reader:
    """Takes the rows of a file into a trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._numbered: dict[str, list[Any]] = {kind: [] for kind in _NUMBERED} | {"site": [NOWHERE]}

    def take(self, row: Mapping[str, Any]) -> None:
        trace, sites = self._trace, self._numbered["site"]
        kind, value = next(iter(row.items()))
        if kind in _NUMBERED:
            fields = map(_frozen, value) if isinstance(value, list) else (value,)
            self._numbered[kind].append(_NUMBERED[kind](*fields))
        elif kind == "c":
            trace.calls.append(self._call(value))
        elif kind in ("read", "loss"):
            calls, site, step, number = value
            (trace.reads if kind == "read" else trace.losses).append(Read(calls, sites[site], step, number))
        elif kind == "lists":
            name, whole, devices = value
            trace.lists[name] = Lists(tuple(devices), whole)
        elif kind == "traced":
            trace.traced_steps.append(value)
        elif kind == "facts":
            trace.facts.update(value)
        elif kind == "end":
            error, site, *more = value
            trace.ending = Ending(error, Site(*site), *more)

    def _call(self, value: Any) -> TracedCall:
        number, operator, site, step, backward, inputs, results, bound, *more = value
        known = self._numbered
        given, made = (tuple(Value(known["k"][at], memory) for at, memory in side) for side in (inputs, results))
        called = number, known["operator"][operator], known["site"][site], step, backward
        return TracedCall(*called, given, made, known["bound"][bound], *map(_frozen, more))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class TraceWriter:
    """Appends rows; from any thread."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)  # by rows: the process may be killed
        os.register_at_fork(after_in_child=self._forget)
        self._lock = threading.RLock()
        self._numbers: dict[str, dict[Any, int]] = {"site": {NOWHERE: 0}, "operator": {}, "bound": {}, "k": {}}

    def _forget(self) -> None:
        """In a process that is forked, such as a loader's worker: nothing of it goes to the file."""
        if not self._file.closed:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())
            os.close(nowhere)

    def row(self, kind: str, value: Any) -> None:
        """Append one row."""
        text = json.dumps({kind: value}, separators=(",", ":")) + "\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(text)

    def number(self, kind: str, value: Any) -> int:
        """The number of a `site`, an `operator`, a `bound` or a sketch (`k`), which is written once."""
        key = (value.dtype, value.shape, value.digest) if isinstance(value, Sketch) else value
        with self._lock:
            known = self._numbers[kind]
            if key not in known:
                known[key] = len(known)
                self.row(kind, value if isinstance(value, str) else astuple(value))
            return known[key]

    def known(self, dtype: str, shape: tuple[int, ...], digest: str) -> int | None:
        """The number of a sketch that has been written before."""
        return self._numbers["k"].get((dtype, shape, digest)) if digest else None

    def close(self, ending: Ending) -> None:
        """Write how the run ended, and close the file."""
        self.row("end", astuple(ending))
        with self._lock:
            self._file.close()
