"""MPS305 to MPS307: training in half precision: dtypes that suit the chip, scaled gradients, Adam's eps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.findings._loop import MIN_STEPS, is_every_step, is_library, number
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings.advice import emulates_bfloat16, has_half_parameters, made_at
from anymps.record import Occurrence, Optimizer, Phase, Recording, Site

EMULATED = Rule(
    id="MPS305",
    title="bfloat16 is slow on M1 and M2",
    severity=Severity.WARNING,
    why=(
        "The GPUs of M1 and M2 have no bfloat16 arithmetic: matrix products reach 0.43 of the float32 peak on an "
        "M1 Pro. M3 and later have it."
    ),
    fix='On M1 and M2 use float16 with `torch.amp.GradScaler("mps")`, or float32.',
    source="torch.mm with torch 2.7 on an M1 Pro (zzc0721/torch-performance-test-data issue 191)",
    example=Example(
        bad="""
            weight = torch.rand(4, 4, device=device, dtype=torch.bfloat16)
            for x in batches:
                weight = weight @ weight
        """,
        better={"bfloat16": "float16"},
        mac="M1 16GB",
    ),
)

UNSCALED = Rule(
    id="MPS306",
    title="float16 gradients vanish without a GradScaler",
    severity=Severity.WARNING,
    wrong=True,
    needs_steps=True,
    why=(
        "Below 6e-8 a float16 number is zero, so small gradients are silently lost. A GradScaler multiplies the loss "
        "to keep them above that."
    ),
    fix='Use `torch.amp.GradScaler("mps")`, or on M3 and later `dtype=torch.bfloat16`, which has the range of float32.',
    source=(
        "torch/amp/grad_scaler.py (on mps from torch 2.8 on); IEEE 754 binary16. The default dtype of "
        '`torch.autocast("mps")` is float16 (torch 2.13)'
    ),
    example=Example(
        bad="""
            for x in batches:
                optimizer.zero_grad()
                with torch.autocast("mps"):
                    loss = model(x.to(device)).square().mean()
                loss.backward()
                optimizer.step()
        """,
        better={'with torch.autocast("mps"):': 'with torch.autocast("mps", dtype=torch.bfloat16):'},
    ),
)

EPSILON = Rule(
    id="MPS307",
    title="Adam's eps is zero in float16",
    severity=Severity.WARNING,
    wrong=True,
    why=(
        "The optimizer computes in the dtype of the parameters. In float16 its eps of 1e-8 rounds to zero, and so does "
        "the square of a gradient below 2e-4: the update then divides by zero, and the parameter becomes inf or NaN."
    ),
    fix='Keep the parameters in float32 and compute under `torch.autocast("mps")`, or pass `eps=1e-4`.',
    source="torch/optim/adam.py (_single_tensor_adam), torch 2.7 to 2.15; IEEE 754 binary16",
    example=Example(
        bad="""
            half = torch.nn.Linear(4, 2).to(device, torch.float16)
            stepper = torch.optim.Adam(half.parameters())
            half(torch.rand(8, 4, device=device, dtype=torch.float16)).sum().backward()
            stepper.step()
        """,
        better={"half.parameters())": "half.parameters(), eps=1e-4)"},
    ),
)

_PRODUCTS: Final = ("aten::addmm", "aten::baddbmm", "aten::bmm", "aten::linear", "aten::linear_backward", "aten::mm")
_UNSCALE: Final = ("aten::_amp_foreach_non_finite_check_and_unscale_",)
_ADAMS: Final = ("Adam", "AdamW", "NAdam", "RAdam")
_IN_FLOAT32: Final = (
    'Keep the parameters in float32 and compute under `torch.autocast("mps")` with a `torch.amp.GradScaler("mps")`: '
    "it refuses gradients of float16 parameters."
)
_LEAST_HALF: Final = 2.0**-25
"""What is not above half of the least positive float16 number rounds to zero."""


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about precision."""
    yield from _emulated(recording)
    yield from _unscaled(recording)
    for optimizer in recording.optimizers():
        if _divides_by_zero(optimizer):
            what = f"`{optimizer.name}` updates float16 parameters with an eps that is zero in float16."
            yield EPSILON.finding(made_at(optimizer), what=what, count=optimizer.occurrence.count)


def _emulated(recording: Recording) -> Iterator[Finding]:
    family = emulates_bfloat16(recording)
    if not family:
        return
    products = [use for use in recording.with_dtype("bfloat16") if use.operator in _PRODUCTS]
    count = sum(use.count for use in products)
    if count >= MIN_STEPS:
        per_step = sum(use.per_step for use in products)
        often = f"{number(per_step)} a step" if per_step else f"{count} in all"
        yield EMULATED.finding(
            _place(recording, "bfloat16", products),
            what=f"Matrix products in bfloat16 on a chip of Metal's {family} family: {often}.",
            count=count,
            per_step=per_step,
            fix=_IN_FLOAT32 if has_half_parameters(recording, "bfloat16") else "",
        )


def _unscaled(recording: Recording) -> Iterator[Finding]:
    if recording.uses_of(_UNSCALE):
        return
    gradients = [
        use
        for use in recording.with_dtype("float16")
        if use.phases == (Phase.BACKWARD,) and is_every_step(recording, use)
    ]
    if gradients:
        per_step = sum(use.per_step for use in gradients)
        yield UNSCALED.finding(
            _place(recording, "float16", gradients),
            what=f"Backward computed with {number(per_step)} operators in float16 a step, and no gradient was scaled.",
            count=sum(use.count for use in gradients),
            per_step=per_step,
            fix=_IN_FLOAT32 if has_half_parameters(recording) else "",
        )


def _place(recording: Recording, dtype: str, uses: list[Occurrence]) -> Site:
    """The line that chose the dtype, if it is known; else the program's own line that computes in it most often."""
    for note in recording.noted("autocast"):
        if is_library(note.occurrence.site):
            continue  # an installed package's own casts are not the user's
        if note.facts.get("dtype") == dtype and note.facts.get("device") == "mps":
            return note.occurrence.site
    own = (use.site for use in uses if use.site.known and not is_library(use.site))
    return next(own, uses[0].site)


def _divides_by_zero(optimizer: Optimizer) -> bool:
    if optimizer.name not in _ADAMS or "float16" not in optimizer.dtypes or optimizer.fused == ("True",):
        return False  # how the fused kernel computes inside is its own
    return any(_number(text) <= _LEAST_HALF for text in optimizer.eps)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0  # a tensor
