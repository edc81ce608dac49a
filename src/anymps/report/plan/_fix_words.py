"""What a plan advises to change first and what its what-ifs change, in words, with what was measured of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from anymps._text import duration
from anymps.mac import Mac
from anymps.plan import RANK, Fix, FixKind, MacOutcome, MacTime, Plan, Verdict
from anymps.report import _text as text
from anymps.report.document import Column, Table
from anymps.report.plan import _words as words
from anymps.rules.variables import HIGH_WATERMARK

EACH_ALONE: Final = "each change alone, measured in the same way"

_FIXES: Final = {
    FixKind.BATCH: "Halve the batch, and accumulate gradients over two of them: the same training with less memory.",
    FixKind.SEQUENCE: "Shorten the sequences or shrink the images: activations grow with them, attention scores with "
    "their square.",
    FixKind.KEPT: "Remove what is kept by accident: a loss added up with its graph (use loss.detach()), outputs "
    "stored in a list.",
    FixKind.CHECKPOINT: "Recompute activations (torch.utils.checkpoint, gradient_checkpointing_enable()): a third "
    "more work.",
    FixKind.PRECISION: "Lower the precision: torch.autocast('mps', dtype=torch.bfloat16) from M3 on, float16 with a "
    "GradScaler before.",
    FixKind.WATERMARK: f"As a last resort, set {HIGH_WATERMARK}=0.0: it lifts torch's limit, not the memory's, and "
    "can take the whole system down.",
}


_ADAPTERS: Final = f", with LoRA adapters of rank {RANK} on %s and all other weights frozen"


@dataclass(frozen=True)
class FixWords:
    """One change: what to do, what is known of it here, and whether to begin with it."""

    text: str
    here: str
    begin: bool
    applies: bool | None


def fixes(plan: Plan) -> tuple[FixWords, ...]:
    """What to change first, in its order."""
    return tuple(FixWords(_FIXES[fix.kind], _here(fix, plan), fix.begin, fix.applies) for fix in plan.fixes)


def _here(fix: Fix, plan: Plan) -> str:
    """What the measurement says about a change to this script."""
    kind = fix.kind
    if kind is FixKind.BATCH:
        if plan.base.batch == 1:
            return "The batch is 1 already."
        if fix.peak is not None and plan.base.batch is not None and fix.applies:
            before = text.size(plan.base.story.peak_reserved)
            return f"Batch {plan.base.batch // 2} needs {text.size(fix.peak)} instead of {before}."
        return "Little of the peak grows with the batch." if fix.applies is False else ""
    if kind is FixKind.SEQUENCE:
        if fix.applies is False:
            return "Little of the peak grows with them."
        return f"They are {plan.base.sequence} tokens long." if plan.base.sequence is not None else ""
    if kind is FixKind.KEPT:
        if not fix.applies:
            return "Nothing grows from step to step." if plan.base.steps >= 3 else ""
        places = ", ".join(text.place(site, os.getcwd()) for site in fix.sites)
        return f"Each step leaves {text.size(fix.growth)} more" + (f"; look at {places}." if places else ".")
    if kind is FixKind.CHECKPOINT:
        return f"Activations are {text.percent(fix.share, 1) or '0 %'} of the peak."
    if kind is FixKind.PRECISION and fix.applies is not True:
        return (
            "Autocast leaves weights, gradients and optimizer state as they are; a model made in bfloat16, SGD or LoRA "
            "makes those smaller."
        )
    if kind is FixKind.WATERMARK and not fix.applies:
        return "Torch's limit is not the one reached here."
    return ""


def change_table(plan: Plan) -> Table:
    """What each change would do; without rows where none was tried."""
    tensors = plan.base.peak.allocated
    macs = list(dict.fromkeys(one.mac for change in plan.changes for one in change.times if one.time is not None))
    as_written = (text.size(tensors), text.size(plan.base.story.peak_reserved), "")
    rows = [("as written", *as_written, *_steps(plan.times, macs), "")]
    for change in plan.changes:
        if change.problem:
            rows.append((change.scenario.label, "", "", "", *_steps((), macs), text.clean(change.problem)))
            continue
        said = ", ".join(f"{_verdict(outcome)} on {outcome.mac.name}" for outcome in change.outcomes)
        said += _ADAPTERS % text.plural(change.adapters, "linear layer") if change.adapters else ""
        ratio = f"{change.peak_allocated / max(1, tensors):.2f}x"
        sizes = (text.size(change.peak_allocated), text.size(change.peak_reserved))
        rows.append((change.scenario.label, *sizes, ratio, *_steps(change.times, macs), said))
    columns = (
        Column("change", wraps=True),
        Column("tensors", "number"),
        Column("heaps", "number"),
        Column("", "number"),
        *(Column(mac.name, "number", left_out=place) for place, mac in enumerate(macs)),
        Column("", "remark", wraps=True),
    )
    caption = f"{EACH_ALONE[0].upper()}{EACH_ALONE[1:]}"
    rest = "Below a Mac's name is the predicted time of a step there." if macs else ""
    return Table("change-table", columns, tuple(rows) if plan.changes else (), caption=caption, rest=rest)


def _steps(times: Sequence[MacTime], macs: Sequence[Mac]) -> Iterator[str]:
    """The predicted step on each Mac, or what is known in its place."""
    known = {one.mac: one for one in times}
    for mac in macs:
        if mac not in known:
            yield ""
        elif (time := known[mac].time) is not None:
            yield duration(1e9 * time.seconds)
        else:
            yield "unknown" if known[mac].verdict.has_room else known[mac].verdict.value


def _verdict(outcome: MacOutcome) -> str:
    """The verdict without its place."""
    return outcome.verdict.value if outcome.verdict is Verdict.FAILS else words.verdict(outcome)
