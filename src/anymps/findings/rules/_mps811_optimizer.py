"""MPS811 and MPS812: optimizers that start more kernels than they need."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from anymps._text import percent
from anymps.findings._costs import LAUNCH
from anymps.findings._loop import MIN_STEPS, by_line, is_every_step, is_library, number
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings.advice import FUSED, UserLine, could_be_fused, fused_heeds_scaler, made_at
from anymps.findings.edits import Safety
from anymps.forecast import seconds_saved, with_fused_optimizer, without_fills
from anymps.record import Flag, Optimizer, Phase, PhaseShare, Recording, RoundKind
from anymps.record.format import ON_MPS, Picked
from anymps.source import CallEdit, unpacks

_MIN_SAVED = 50
"""Kernels a step that a finding must save; below that the step does not show it."""

_MIN_SHARE = 0.2
"""Of all kernels of the step, the optimizer's: with less, one kernel instead of them hardly shortens the step."""


def _without_fills(finding: Finding, recording: Recording) -> float | None:
    return seconds_saved(recording, lambda happenings: without_fills(happenings, round(finding.per_step)))


def _with_fused(finding: Finding, recording: Recording) -> float | None:
    """Where one optimizer steps once in a step; of several it is not known what the step would do."""
    optimizers = recording.optimizers()
    if finding.per_step != 1 or len(optimizers) != 1:
        return None
    return seconds_saved(recording, lambda happenings: with_fused_optimizer(happenings, optimizers[0].name))


ZEROED = Rule(
    id="MPS811",
    title="Gradients filled with zeros in every step",
    severity=Severity.WARNING,
    needs_steps=True,
    price=_without_fills,
    edit=CallEdit(("zero_grad",), drop=("set_to_none",), order=("set_to_none",)),
    safety=Safety.PROVED,
    why="One kernel per gradient writes zeros, which backward then adds to. Without a gradient, backward just writes.",
    fix="Write `optimizer.zero_grad()`, which drops the gradients: `set_to_none=True` is the default.",
    source=f"torch/optim/optimizer.py (Optimizer.zero_grad), torch 2.7 to 2.15; {LAUNCH.source}",
    example=Example(
        bad="""
            deep = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(30)]).to(device)
            stepper = torch.optim.SGD(deep.parameters(), lr=0.1, fused=True)
            for x in batches:
                stepper.zero_grad(set_to_none=False)
                deep(x.to(device)).sum().backward()
                stepper.step()
        """,
        better={"stepper.zero_grad(set_to_none=False)": "stepper.zero_grad()"},
    ),
)

UNFUSED = Rule(
    id="MPS812",
    title="Optimizer updates parameters one by one",
    severity=Severity.WARNING,
    needs_steps=True,
    price=_with_fused,
    edit=CallEdit(("Adam", "AdamW", "SGD"), set=(("fused", "True"),), drop=("foreach",)),
    safety=Safety.PROVED,
    why=(
        "By default torch updates the parameters on mps one by one, with several small kernels for each; "
        "`foreach=True` does the same there. The fused kernel updates many at once."
    ),
    fix=f"{FUSED}.",
    related_as="stepped at",
    source=(
        "torch/utils/_foreach_utils.py (mps has fused kernels and no foreach ones), torch 2.7 to 2.15; pytorch PR "
        f"127242: 100 tensors on an M1 Max take a ninth of the time; {LAUNCH.source}"
    ),
    example=Example(
        bad="""
            deep = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(10)]).to(device)
            stepper = torch.optim.AdamW(deep.parameters())
            for x in batches:
                stepper.zero_grad()
                deep(x.to(device)).sum().backward()
                stepper.step()
        """,
        better={"AdamW(deep.parameters())": "AdamW(deep.parameters(), fused=True)"},
    ),
)

_ZERO = ("aten::zero_", "aten::fill_.Scalar", "aten::_foreach_zero_")
_KERNELS: Final = Picked(condition=f"{ON_MPS} AND phase = {Phase.OPTIMIZER:d} AND NOT flags & {Flag.VIEW:d}")
"""What an optimizer ran in kernels on mps."""
_ZERO_GRAD = ("torch/optim/optimizer.py:zero_grad", "torch/nn/modules/module.py:zero_grad")


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about optimizers."""
    yield from _zeroed(recording)
    if recording.training_steps >= MIN_STEPS:
        yield from _unfused(recording)


def _zeroed(recording: Recording) -> Iterator[Finding]:
    fills = [fill for fill in recording.uses_of(_ZERO) if fill.site.via in _ZERO_GRAD]
    for line in by_line(fill for fill in fills if is_every_step(recording, fill)):
        if line.per_step >= _MIN_SAVED and not is_library(line.site):
            yield line.finding(
                ZEROED,
                what=f"`zero_grad(set_to_none=False)` filled {number(line.per_step)} gradients with zeros a step.",
                cost_ns=LAUNCH.of(line.count),
            )


def _unfused(recording: Recording) -> Iterator[Finding]:
    optimizers = recording.optimizers()
    if recording.noted("grad_scaler") and not fused_heeds_scaler(recording):
        return  # with the fused kernel the training would be wrong (MPS691)
    shares = {share.phase: share for share in recording.step_table().median}
    if Phase.OPTIMIZER not in shares:
        return
    whole = max(sum(share.on_mps - share.views for share in shares.values()), 1)
    ran = [
        (optimizer, kernels)
        for optimizer, kernels in _kernels(recording, optimizers, shares[Phase.OPTIMIZER])
        if could_be_fused(optimizer) and not is_library(made_at(optimizer)) and kernels >= _MIN_SAVED
    ]
    if sum(kernels for _, kernels in ran) < _MIN_SHARE * whole:
        return
    called, steps = optimizer_calls(recording), recording.training_steps
    for optimizer, kernels in ran:
        site, step = made_at(optimizer), optimizer.occurrence.site
        name, tensors = optimizer.name, optimizer.tensors
        foreach = ", with `foreach=True`," if optimizer.foreach == ("True",) else ""
        calls = max(called.get(step.file_line, 0), steps)
        each = round(calls / steps)  # a critic is stepped several times for each step of its generator
        often = "a step" if each == 1 else f"{each:,} times a step"
        yield UNFUSED.finding(
            site,
            what=(
                f"`{name}`{foreach} ran {kernels / each:,.0f} kernels {often} for {tensors} parameters, "
                f"{percent(kernels / whole)} of all kernels of the step."
            ),
            count=calls,
            per_step=float(each),
            cost_ns=LAUNCH.of(round(kernels * steps)),
            fix=_otherwise(site.source) + (", in place of `foreach=True`." if foreach else "."),
            written="Write `{new}`" + (", in place of `foreach=True`." if foreach else "."),
            related_sites=[step] if step != site else [],
        )


def _kernels(
    recording: Recording, optimizers: Sequence[Optimizer], share: PhaseShare
) -> Iterator[tuple[Optimizer, float]]:
    """Each optimizer with its kernels of a typical step: those of the line that steps it, if it is alone there."""
    kernels = share.on_mps - share.views
    if len(optimizers) == 1:
        yield optimizers[0], kernels
        return
    at_line: Counter[tuple[str, int]] = Counter()
    for ran in recording.occurrences(_KERNELS):
        at_line[ran.site.file_line] += ran.count
    places = [optimizer.occurrence.site.file_line for optimizer in optimizers]
    for optimizer, place in zip(optimizers, places, strict=True):
        if places.count(place) == 1 and at_line[place]:
            yield optimizer, kernels * at_line[place] / at_line.total()


def _otherwise(source: str) -> str:
    """What to do where the call cannot be written anew: perhaps its options hold `fused` already."""
    for call in UserLine.of(source).parsed.calls:
        if unpacks(call):
            options = next(ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg is None)
            return f"Put `fused=True` into `{options}`"
    return FUSED


def optimizer_calls(recording: Recording) -> Counter[tuple[str, int]]:
    """How often each line (file and number) stepped an optimizer in the whole run; empty if no loop was watched."""
    calls: Counter[tuple[str, int]] = Counter()
    for (site,) in recording.stream(f"SELECT site FROM rounds WHERE kind = {RoundKind.OPTIMIZER:d}"):
        calls[recording.site(site).file_line] += 1
    return calls
