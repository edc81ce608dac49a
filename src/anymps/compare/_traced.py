"""One side of a comparison: a run whose calls are traced, and the trace that it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anymps._paths import package_of
from anymps.compare._trace import Trace
from anymps.record import Site
from anymps.runs import Observer, Order, run
from anymps.runs.inside import error_of, trail_of
from anymps.source import quote_file

if TYPE_CHECKING:
    from anymps.device import State

_TRACE: Final = "trace.jsonl"


@dataclass(frozen=True)
class Ran:
    """A run: its trace, exit status (None: it was cut) and what it wrote to stderr."""

    trace: Trace
    status: int | None
    errors: str


@dataclass
class Traced(Observer):
    """Traces the first `full_steps` training steps call by call.

    `names` are those of devices that mean the run's device in the script.
    """

    full_steps: int
    random_on_cpu: bool = False
    names: tuple[str, ...] = ()

    def start(self, order: Order, folder: Path, state: State | None) -> None:
        """Start tracing."""
        from anymps.compare.inside import TracedRun

        self._run = TracedRun(self, order.on, folder / _TRACE, state)
        self._run.start()

    def facts(self, ending: Mapping[str, object]) -> dict[str, object]:
        """Close the trace, which has all that is known."""
        trail = [place for place in trail_of(ending) if not package_of(place[0])]
        self._run.close(error_of(ending), _site(*trail[-1]) if trail else None)
        return {}


def trace_run(order: Order) -> Ran:
    """Run an order whose observer is `Traced`."""
    with run(order) as answer:
        trace = Trace.open(answer.folder / _TRACE)
        if answer.status is None:  # the interrupt at the time limit is not the script's error
            trace.ending = replace(trace.ending, error="", is_cut=True)
        return Ran(trace, answer.status, answer.errors)


def _site(file: str, line: int) -> Site:
    return Site(file, line, "", quote_file(file, line).source)
