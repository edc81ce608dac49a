"""MPS5xx: memory."""

from __future__ import annotations

from collections.abc import Iterator

from anymps.findings._example import Example
from anymps.findings._model import Finding, Rule, Severity
from anymps.findings._refusals import refused_as
from anymps.record import Recording, RefusalKind

OUT_OF_MEMORY = Rule(
    id="MPS501",
    title="Out of memory",
    severity=Severity.ERROR,
    why="The allocator stops at a share of the Mac's working set (1.7 times it by default).",
    fix="Use a smaller batch with gradient accumulation, shorter sequences, or activation checkpointing.",
    source="aten/src/ATen/mps/MPSAllocator.mm, torch 2.7 to 2.15",
    example=Example(
        bad="""
            x = torch.empty(64, 1024, 1024, 128, device=device)  # 32 GiB
        """,
        good="""
            for _ in range(64):
                x = torch.empty(1, 1024, 1024, 128, device=device)
        """,
    ),
)

RULES = (OUT_OF_MEMORY,)


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about memory."""
    for refused in refused_as(recording, RefusalKind.MEMORY):
        yield OUT_OF_MEMORY.finding(
            refused.site,
            what=f"`{refused.operator}` raised {refused.error}: {refused.message}",
            count=refused.count,
        )
