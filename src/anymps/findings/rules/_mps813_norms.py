"""MPS813: norms of whole tensors, which one GPU core computes up to torch 2.14."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps._text import percent
from anymps.findings._loop import by_line, is_every_step, is_library, number
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings._prices import interval_ns, over_run, step_on_mac
from anymps.forecast import NORMS, seconds_saved, with_sums
from anymps.record import Recording

_LEAST_SHARE: Final = 0.05  # of the predicted step


ONE_CORE = Rule(
    id="MPS813",
    title="Norm of a whole tensor on one GPU core",
    severity=Severity.WARNING,
    since=(2, 12),
    until=(2, 14),
    needs_steps=True,
    why=(
        "Up to torch 2.14, one threadgroup computes the norm of a whole tensor, so one GPU core reads it: about 2 ns a "
        "number on any Mac. `clip_grad_norm_` takes such a norm of each gradient."
    ),
    fix=(
        "Upgrade to torch 2.15, whose kernel uses all cores. Until then, take the norm from sums and clip with it, to "
        "the limit that you have: `grads = [p.grad for p in model.parameters() if p.grad is not None]`, "
        "`norm = torch.stack([grad.square().sum() for grad in grads]).sum().sqrt()`, then "
        "`torch.nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, norm)`."
    ),
    source=(
        "names of the kernels in the macOS wheels: norm_float_float alone in torch 2.12 to 2.14, "
        "norm_l2_reduction_flat_float_float since 2.15; public times of trainings on M4 and M4 Max"
    ),
    example=Example(
        bad="""
            wide = torch.nn.Linear(512, 512).to(device)
            stepper = torch.optim.SGD(wide.parameters(), lr=0.1)
            for x in [torch.rand(8, 512, device=device)] * 5:
                wide(x).square().mean().backward()
                torch.nn.utils.clip_grad_norm_(wide.parameters(), 1.0)
                stepper.step()
        """,
        better={
            "torch.nn.utils.clip_grad_norm_(wide.parameters(), 1.0)": (
                "norm = torch.stack([p.grad.square().sum() for p in wide.parameters()]).sum().sqrt()\n"
                "    torch.nn.utils.clip_grads_with_norm_(wide.parameters(), 1.0, norm)"
            )
        },
    ),
)


def find(recording: Recording) -> Iterator[Finding]:
    """The line that takes most of these norms, where they are a twentieth of the predicted step or more."""
    norms = [norm for norm in recording.uses_of(NORMS) if is_every_step(recording, norm)]
    lines = sorted(by_line(norms), key=lambda line: -line.per_step)
    step = step_on_mac(recording) if lines and ONE_CORE.applies(recording.run.torch_version) else None
    saved = seconds_saved(recording, with_sums) if step is not None else None
    if step is None or saved is None or saved < _LEAST_SHARE * step.time.seconds or is_library(lines[0].site):
        return
    line = lines[0]
    yield line.finding(
        ONE_CORE,
        what=(
            f"{number(line.per_step)} norms a step, each by one GPU core, take {percent(saved / step.time.seconds)} of "
            "the predicted step."
        ),
        cost_ns=over_run(line, interval_ns(step, saved)),
        related_sites=[other.site for other in lines[1:]],
        related_as="also at",
    )
