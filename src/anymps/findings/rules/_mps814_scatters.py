"""MPS814: scatters that add to few places, whose additions wait for each other on M1 and M2 up to torch 2.13."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps._text import duration, percent
from anymps.findings._loop import by_line, is_every_step, is_library
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings._prices import interval_ns, over_run, step_on_mac
from anymps.forecast import SCATTERS, scatters_of
from anymps.record import Recording

_LEAST_SHARE: Final = 0.05  # of the predicted step
_MANY_TIMES: Final = 10  # as long as the predicted step, if all indices name one place

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
    source=(
        "ml-explore/mlx issue 506 (times on an M1 Pro); pytorch pull requests 184057 and 187109 (the kernels that "
        "replace it)"
    ),
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
    uses = [use for use in recording.uses_of(SCATTERS) if is_every_step(recording, use)]
    lines = sorted(by_line(uses), key=lambda line: -line.per_step)
    step = step_on_mac(recording) if lines and FEW_PLACES.applies(recording.run.torch_version) else None
    scatters = scatters_of(step) if step is not None and not is_library(lines[0].site) else None
    if step is None or scatters is None:
        return
    line, cost = lines[0], (0.0, 0.0)
    if scatters.seconds >= _LEAST_SHARE * step.time.seconds:
        share = percent(scatters.seconds / step.time.seconds)
        told = f"Its additions wait for each other, which takes {share} of the predicted step."
        cost = over_run(line, interval_ns(step, scatters.seconds))
    elif scatters.longest >= _MANY_TIMES * step.time.seconds:
        told = (
            "How many of these its indices name was not recorded, and all are assumed. With fewer, more additions wait "
            f"for each other: up to {duration(1e9 * scatters.longest)} a step, if all go to one place."
        )
    else:
        return
    yield line.finding(
        FEW_PLACES,
        what=f"`{scatters.name}` adds {scatters.times:,} times to {scatters.places:,} places. {told}",
        cost_ns=cost,
        related_sites=[other.site for other in lines[1:]],
        related_as="also at",
    )
