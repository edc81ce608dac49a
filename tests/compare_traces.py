"""Hand-made traces for tests of the comparison of two runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from anymps.compare import Bound, Comparison, Ending, Read, Sketch, Trace, TracedCall, Value, compare_traces
from anymps.record import Site

SUM = Bound("sum", 64 * 2.0**-24, 1e-38, 62, False, 3e-5, 1e-4)
EXACT = Bound("exact", 0.0, 0.0, 1, False, 3e-5, 1e-4)
FILE = "/home/me/train.py"


def sketch(values: Sequence[float], dtype: str = "float32", shape: tuple[int, ...] | None = None) -> Sketch:
    """Of so many numbers; the digest is made of them."""
    rms = (sum(value * value for value in values) / len(values)) ** 0.5
    digest = f"{dtype}{tuple(values)}"
    low, high = min(values), max(values)
    return Sketch(dtype, shape or (len(values),), digest, 0, 0, low, high, sum(values), rms, tuple(values))


class Tracing:
    """Makes a trace call by call."""

    def __init__(self, device: str = "cpu", kernels: str = "") -> None:
        self.trace = Trace({"device": device, "torch": "2.13.0", "mac": "M3 Pro 18GB" if device == "mps" else ""})
        self.trace.facts |= {"kernels_torch": kernels, "used": "1"}
        self.trace.traced_steps = [0, 1, 2, 3]
        self.step = 0

    def call(
        self,
        operator: str,
        line: int,
        inputs: Sequence[Sketch] = (),
        results: Sequence[Sketch] = (),
        *,
        bound: Bound = SUM,
        autocast: str = "",
        backward: bool = False,
        random: bool = False,
        by_kernel: bool = False,
        numbers: Sequence[float] = (),
        faults: Sequence[str] = (),
        memory: Mapping[Sketch, int] | None = None,
    ) -> Tracing:
        """Add a call. `memory` has the addresses of tensors, for those that have one."""
        number = len(self.trace.calls)
        site = Site(FILE, line, "main", f"line {line}")
        address = dict(memory or {})
        values = tuple(tuple(Value(it, address.get(it, 0)) for it in side) for side in (inputs, results))
        name = f"aten.{operator}.default"
        given = (bound, random, False, autocast, by_kernel, tuple(numbers), tuple(faults))
        self.trace.calls.append(TracedCall(number, name, site, self.step, backward, values[0], values[1], *given))
        return self

    def loss(self, value: float) -> Tracing:
        """End a step with a loss."""
        self.trace.losses.append(
            Read(len(self.trace.calls), Site(FILE, 90, "main", "loss.backward()"), self.step, value)
        )
        self.step += 1
        return self

    def read(self, line: int, value: float) -> Tracing:
        """The program reads a number."""
        site = Site(FILE, line, "main", "value = loss.item()")
        self.trace.reads.append(Read(len(self.trace.calls), site, self.step, value))
        return self

    def end(self, error: str = "", line: int = 0) -> Trace:
        """The whole trace."""
        site = Site(FILE, line, "main", "x.double()") if line else Site("", 0)
        self.trace.ending = Ending(error, site, False, self.step)
        return self.trace


def compared(
    make: Callable[[Tracing, bool], Tracing],
    names: tuple[str, str] = ("cpu", "mps"),
    error: str = "",
    *,
    used: bool = True,
    **ending: object,
) -> Comparison:
    """The comparison of two traces that `make` makes; True is for the second, which fails with `error`."""
    left = make(Tracing(names[0]), False).end()
    right = make(Tracing(names[1]), True).end(error, 12 if error else 0)
    for trace in (left, right):
        trace.facts["used"] = "1" if used else ""
        trace.ending = replace(trace.ending, **ending)  # type: ignore[arg-type]
    return compare_traces("train.py", names, left, right)
