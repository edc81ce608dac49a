"""What a recording knows about optimizers: where each was made, and whether mps has a fused kernel for it."""

from __future__ import annotations

from anymps.findings._loop import is_library
from anymps.findings._release import known_fault, release_of
from anymps.record import Noted, Recording, Site
from anymps.rules.faults import Check

_FUSED = ("Adam", "AdamW", "SGD")
_FUSED_DTYPES = {"float32", "float16", "bfloat16"}


def made_at(optimizer: Noted) -> Site:
    """The line that made an optimizer or a loader; where that is in a package or unknown, the line of its first use."""
    made = optimizer.other
    return made if made.known and not is_library(made) else optimizer.occurrence.site


def fused_heeds_scaler(recording: Recording) -> bool:
    """Whether the fused kernels of the recording's torch look at what a GradScaler found (MPS691: some do not)."""
    return release_of(recording) is not None and known_fault(recording, Check.GRAD_SCALER) is None


def could_be_fused(optimizer: Noted) -> bool:
    """Whether it is one of torch's that mps has a fused kernel for, with parameters that the kernel takes."""
    facts = optimizer.facts
    dtypes = facts.get("dtypes")
    return (
        bool(facts.get("torch"))
        and facts.get("name") in _FUSED
        and facts.get("tensors") == facts.get("on_mps")
        and isinstance(dtypes, list)
        and _FUSED_DTYPES.issuperset(dtypes)
        and "True" not in (facts.get("fused") or [])  # type: ignore[operator]
        and "True" not in (facts.get("differentiable") or [])  # type: ignore[operator]
    )
