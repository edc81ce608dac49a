"""MPS833: code in a compiled function at which torch.compile cuts its graph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from anymps.findings._loop import MIN_STEPS, is_library, uses_mps
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.record import Noted, Recording

BREAK = Rule(
    id="MPS833",
    title="Graph break in a compiled function",
    severity=Severity.WARNING,
    why=(
        "torch.compile cuts the graph in two, on a Mac as well. Kernels on the two sides cannot be fused, the code "
        "between them runs as plain Python, and less work is queued for the GPU."
    ),
    fix=(
        "Move this line's work out of the compiled function. `TORCH_LOGS=graph_breaks` prints every break, and "
        "`torch.compile(model, fullgraph=True)` raises at the first one."
    ),
    related_as="called at",
    source="torch/_dynamo/symbolic_convert.py (log_graph_break), torch 2.11 to 2.15",
    example=Example(
        bad="""
            @torch.compile(backend="eager")
            def double(x):
                return x * 2 if x.sum() > 0 else x


            for _ in range(12):
                double(torch.ones(3, device=device))
        """,
        good="""
            @torch.compile(backend="eager")
            def double(x):
                return torch.where(x.sum() > 0, x * 2, x)


            for _ in range(12):
                double(torch.ones(3, device=device))
        """,
    ),
)

RULES = (BREAK,)

_LEAST = 10  # runs of a line that make a loop where there is no training

_FIXES: Final = (
    (
        r"\.item\(\)|tolist",
        "Keep the value a tensor in the compiled function, and read it where the function was called.",
    ),
    (r"ata-dependent", "Choose with `torch.where` instead of an `if`, or test before the compiled function is called."),
    (r"`print`|logg", "Take the output out of the compiled function; return what it prints."),
    (
        r"Dynamic shape operator|output shape depends",
        "Keep the size: zero the unwanted elements with `torch.where`, or multiply by the mask.",
    ),
    (r"`time\.|time function|clock", "Read the clock outside of the compiled function."),
)


def find(recording: Recording) -> Iterator[Finding]:
    """One finding for each line and reason; a warning where the line belongs to the loop."""
    breaks = recording.noted("graph_break")
    if breaks and uses_mps(recording):
        for broken in breaks:
            yield _finding(recording, broken)


def _finding(recording: Recording, broken: Noted) -> Finding:
    site, call = broken.occurrence.site, broken.other
    # A break inside a package is reported at the program's line that led there: nobody edits the package.
    within = is_library(site) and call.known and not is_library(call)
    runs, steps = _runs(recording, broken)
    hot, often = True, f" in {steps:,} of {recording.training_steps:,} steps"
    if recording.training_steps < MIN_STEPS:
        hot, often = runs >= _LEAST, ""
    elif steps < 2 or 2 * steps < recording.training_steps:
        hot, often = False, ""
    kind, said = str(broken.facts.get("kind", "")), str(broken.facts.get("explanation", ""))
    name = f"`{site.function}`" if site.function else "a function"
    if broken.facts.get("skipped"):
        what = f"torch.compile cannot continue after this line and runs all of {name} uncompiled{often}."
    else:
        what = f"torch.compile breaks the graph of {name} here{often}."
    return BREAK.finding(
        call if within else site,
        what=f'{what} Dynamo says: "{_sentence(said or kind)}."',
        count=steps if often else 1,
        per_step=1.0 if often else 0.0,
        fix=next((fix for pattern, fix in _FIXES if re.search(pattern, f"{kind} {said}")), ""),
        related_sites=[site] if within else [call] if call.file_line != site.file_line else [],
        related_as="broken at" if within else "",
        severity=Severity.WARNING if hot else Severity.INFO,
    )


def _runs(recording: Recording, broken: Noted) -> tuple[int, int]:
    """How often the line or its call ran anything, and in how many complete steps: a break is noted only once."""
    there = [*recording.at_line(broken.occurrence.site), *recording.at_line(broken.other)]
    count = max((occurrence.count for occurrence in there), default=0)
    steps = max((occurrence.steps for occurrence in there), default=0)
    return count, steps


def _sentence(text: str) -> str:
    """The first one."""
    return re.split(r"\.(?=\s+[A-Z]|$)", text)[0]
