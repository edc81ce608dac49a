"""MPS814: scatters that add to few places, whose additions wait for each other on M1 and M2 up to torch 2.13."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import fsum
from typing import Final

from anymps._text import duration, percent
from anymps.cost import OperatorCall, conflict_time, read_tensor
from anymps.findings._loop import by_line, is_every_step, is_library
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings._prices import interval_ns, step_on_mac
from anymps.forecast import Forecast
from anymps.record import Recording

_LEAST_SHARE: Final = 0.05  # of the predicted step
_MANY_TIMES: Final = 10  # as long as the predicted step, if all indices name one place

_SCATTERS: Final = tuple(
    f"aten::{name}{form}{overload}"
    for name, overload in (("index_add", ""), ("scatter_add", ""), ("scatter_reduce", ".two"))
    for form in ("", "_")
)

FEW_PLACES: Final = Rule(
    id="MPS814",
    title="Adding scatter whose additions wait for each other",
    severity=Severity.WARNING,
    until=(2, 13),
    needs_steps=True,
    why=(
        "MPSGraph adds to one cache line at a time on M1 and M2: about 5 us for each addition. So the fewer places the "
        "indices name, the longer a scatter takes: a million rows onto ten places take 19 s on an M1 Pro. "
        "`scatter_add` and `scatter_reduce` run on MPSGraph up to torch 2.12, `index_add` up to 2.13."
    ),
    fix=(
        "Upgrade to torch 2.14, whose own kernels add without such waits. From torch 2.9 on, such a kernel also does "
        "`result.index_put_((index,), source, accumulate=True)`. For a few places, a product does as well: "
        "`one_hot(index, places).T.to(source.dtype) @ source`."
    ),
    source="mlx issue 506 (times on an M1 Pro); pytorch pull requests 184057 and 187109 (the kernels that replace it)",
    example=Example(
        bad="""
            embed = torch.nn.Linear(8, 8).to(device)
            stepper = torch.optim.SGD(embed.parameters(), lr=0.1)
            graph = torch.arange(20000, device=device) % 4
            for x in [torch.rand(20000, 8, device=device)] * 5:
                pooled = torch.zeros(4, 8, device=device).index_add(0, graph, embed(x))
                pooled.square().mean().backward()
                stepper.step()
        """,
        better={".index_add(0, graph, embed(x))": ".index_put((graph,), embed(x), accumulate=True)"},
        mac="M1 16GB",
    ),
)


def find(recording: Recording) -> Iterator[Finding]:
    """The line with most of these scatters, with their price where the places are few, or how long they may take."""
    uses = [use for use in recording.uses_of(_SCATTERS) if is_every_step(recording, use)]
    lines = sorted(by_line(uses), key=lambda line: -line.per_step)
    step = step_on_mac(recording) if lines and FEW_PLACES.applies(recording.run.torch_version) else None
    if step is None or is_library(lines[0].site):
        return
    scatters = [one.call for one in step.happenings if one.call is not None and one.call.operator in _SCATTERS]
    calls = [call for call in scatters if conflict_time(call, step.mac, step.torch)]
    seconds, least, longest = step.time.seconds, _together(calls, step), _together(map(_onto_one_place, calls), step)
    if least >= _LEAST_SHARE * seconds:
        told = f"Its additions wait for each other, which takes {percent(least / seconds)} of the predicted step."
    elif longest >= _MANY_TIMES * seconds:
        told = (
            "How many of these its indices name was not recorded, and all are assumed. With fewer, more additions wait "
            f"for each other: up to {duration(1e9 * longest)} a step, if all go to one place."
        )
        least = 0.0
    else:
        return
    line = lines[0]
    largest = max(calls, key=lambda call: _along(call, 1))
    steps, (low, high) = line.count / line.per_step, interval_ns(step, least)
    yield line.finding(
        FEW_PLACES,
        what=f"`{largest.name}` adds {_along(largest, 1):,} times to {_along(largest, 0):,} places. {told}",
        cost_ns=(steps * low, steps * high),
        related_sites=[other.site for other in lines[1:]],
        related_as="also at",
    )


def _together(calls: Iterable[OperatorCall], step: Forecast) -> float:
    """The seconds that additions of these calls take that wait for each other."""
    return fsum(conflict_time(call, step.mac, step.torch) for call in calls)


def _along(call: OperatorCall, which: int) -> int:
    """The size of an input along the axis: that of the table is the number of places, that of the index how often."""
    shape = read_tensor(call.inputs[which]).shape
    return shape[(call.axis or 0) % len(shape)] if shape else 1


def _onto_one_place(call: OperatorCall) -> OperatorCall:
    """The call as it is if all its indices are equal."""
    table, axis = read_tensor(call.inputs[0]), call.axis or 0
    sizes = [1 if at == axis % len(table.shape) else size for at, size in enumerate(table.shape)]
    return replace(call, inputs=(f"{table.dtype}[{', '.join(map(str, sizes))}]", *call.inputs[1:]))
