"""MPS508: the variables that move the allocator's limit."""

from __future__ import annotations

from collections.abc import Iterator

from anymps.findings._memory_limits import ended_by_watermark, first_allocation
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.record import Recording
from anymps.rules.variables import HIGH_WATERMARK, LOW_WATERMARK, WATERMARKS, explain_watermark, watermark_ratio

WATERMARK = Rule(
    id="MPS508",
    title="Watermark variable that removes the limit, or that torch rejects",
    severity=Severity.WARNING,
    explains=ended_by_watermark,
    why=(
        "Without a limit macOS itself runs out of memory, which can end other programs or stop the Mac. Text that is "
        "not a number is read as 0, which means no limit. A ratio that torch rejects makes every allocation raise."
    ),
    fix=f"Unset {HIGH_WATERMARK}; if you need it, set it to a ratio from 1.4 to 2.",
    source="aten/src/ATen/mps/MPSAllocator.mm, torch 2.7 to 2.15",
    example=Example(
        bad=f"""
            import os

            os.environ["{HIGH_WATERMARK}"] = "off"
            x = torch.ones(4, device=device)
        """,
        better={'"off"': '"1.5"'},
    ),
)


def find(recording: Recording) -> Iterator[Finding]:
    """A finding for each variable that takes the limit away or that torch refuses."""
    variables = recording.run.environment
    for name in WATERMARKS:
        if name not in variables:
            continue
        text, wrong = explain_watermark(name, variables)
        if not wrong and not (name == HIGH_WATERMARK and watermark_ratio(name, variables) == 0):
            continue
        what, fix = f"{name}={variables[name]}: {text}.", _watermark_fix(name, text)
        yield WATERMARK.finding(first_allocation(recording), what=what, count=1, fix=fix)


def _watermark_fix(name: str, text: str) -> str:
    if name == LOW_WATERMARK:
        return f"Unset {name}; if you need it, set it to a ratio from 0 to 1.4."
    _, _, needed = text.partition(f"; set {LOW_WATERMARK} to ")
    return f"Set {LOW_WATERMARK} to {needed}, or unset {name}." if needed else ""
