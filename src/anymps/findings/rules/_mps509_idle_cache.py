"""MPS509: memory that the allocator keeps after a training, while what follows needs little of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps._text import percent
from anymps.findings._loop import MIN_STEPS, is_library
from anymps.findings._memory_limits import memory_limits
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.record import Recording
from anymps.rules.texts import format_size

IDLE = Rule(
    id="MPS509",
    title="The allocator keeps a training's memory that what follows does not need",
    severity=Severity.INFO,
    needs_steps=True,
    why=(
        "What tensors free stays in the allocator's cache. Other programs and the rest of the script share the Mac's "
        "one memory with it, and macOS pages where it does not suffice."
    ),
    fix="Call `torch.mps.empty_cache()` before this line, after a `del` of what is no longer needed.",
    source=(
        "aten/src/ATen/mps/MPSAllocator.mm, torch 2.7 to 2.15; aedocw/epub2tts-chatterbox PR 20: 32 GB of the driver "
        "for 3.3 GB in tensors on an M4 Pro, 6.4 GB after `empty_cache()`"
    ),
    example=Example(
        bad="""
            for x in batches:
                scores = torch.empty(2 << 30, dtype=torch.uint8, device=device)
                scores[0] = 1
                del scores
                train(x)
            for x in torch.rand(20, 8, 4):
                model(x.to(device))
        """,
        better={"for x in torch.rand": "torch.mps.empty_cache()\nfor x in torch.rand"},
    ),
)

_LEAST: Final = 1 << 30  # bytes that are kept for nothing
_MANY: Final = 20  # buffers that make a phase of its own: a few are the end of the script


def find(recording: Recording) -> Iterator[Finding]:
    """One finding, at the first line of the script after its last training step, if tensors need half of the heaps."""
    if recording.training_steps < MIN_STEPS:
        return
    last = max(step.step for step in recording.steps() if step.complete)
    later = [one for one in recording.memory_story.allocations if one.born and one.step > last]
    places = [one.site for one in later if one.site.known and not is_library(one.site)]
    if len(later) < _MANY or not places:
        return
    live, kept = max(one.allocated for one in later), min(one.reserved for one in later)
    if kept - live < _LEAST or kept < 2 * live:
        return
    limits = memory_limits(recording)
    share = f", {percent(kept / limits.working_set)} of the working set of {limits.mac.name}" if limits else ""
    yield IDLE.finding(
        places[0],
        what=(
            f"After the last training step tensors never held more than {format_size(live)}, and the allocator kept "
            f"{format_size(kept)}{share}."
        ),
        count=1,
    )
