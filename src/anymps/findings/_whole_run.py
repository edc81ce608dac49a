"""MPS003: a run that ended before the script did, so that its recording says less about a Mac."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.findings._cpu_only import rule_of_ending
from anymps.findings._endings import ending, ending_refusal
from anymps.findings._example import Example
from anymps.findings._model import Finding, Rule, Severity
from anymps.findings._placement import asked_for_cuda
from anymps.findings._processes import ended_by_sharing
from anymps.record import Recording

UNFINISHED = Rule(
    id="MPS003",
    title="The script did not finish",
    severity=Severity.WARNING,
    why="What would have come after the exception was never run, so this report says nothing about it.",
    fix="Mend the line and run the script again.",
    source="the traceback of the run",
    example=Example(
        bad="""
            x = torch.ones(8, 3, device=device)
            y = x @ torch.ones(8, 3, device=device)
        """,
        good="""
            x = torch.ones(8, 3, device=device)
            y = x @ torch.ones(3, 8, device=device)
        """,
    ),
)

RULES = (UNFINISHED,)

_CALLED: Final = ("RuntimeError", "NotImplementedError")
_OF_TORCH: Final = {"torch": (*_CALLED, "TypeError", "ValueError", "IndexError", "AssertionError"), "": _CALLED}
"""Exceptions that torch raises of itself, by who is known to have raised: its Python code, or a call from the line."""


def find(recording: Recording) -> Iterator[Finding]:
    """The finding about an exception that ended the run and that no other rule explains."""
    ended = ending(recording)
    if not ended.exception or is_explained(recording):
        return
    if ended.exception in _OF_TORCH.get(ended.raised_by, ()):
        words = f"torch raised {ended.words}. Nothing in these words is about mps"
        fix = (
            'Run the script with `device = "cpu"`: an exception there as well is the script\'s own. If it comes on mps '
            "only, do this line on the CPU."
        )
        yield UNFINISHED.finding(ended.site, what=f"{words}.", count=1, fix=fix)
    else:
        what = f"The script ended with {ended.words}. MPS did not raise it."
        yield UNFINISHED.finding(ended.site, what=what, count=1, severity=Severity.INFO)


def is_explained(recording: Recording) -> bool:
    """Whether a finding of another rule is about the exception that ended the run."""
    return (
        ending_refusal(recording) is not None
        or asked_for_cuda(recording) is not None
        or rule_of_ending(recording) is not None
        or ended_by_sharing(recording)
    )
