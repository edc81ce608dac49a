"""MPS806: tensors on mps that go to another process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from anymps.findings._endings import ending
from anymps.findings._example import Example
from anymps.findings._model import Finding, Rule, Severity
from anymps.record import Recording
from anymps.rules import shared_memory

SENT = Rule(
    id="MPS806",
    title="Tensor on mps sent to another process",
    severity=Severity.ERROR,
    why="Memory on mps belongs to one process. Torch shares tensors through CPU memory only, and raises.",
    fix="Send a copy on the CPU, `x.cpu()`, and move it where it arrives: `x.to(device)`.",
    source=(
        "torch/csrc/StorageSharing.cpp, torch/multiprocessing/reductions.py, torch 2.7 to 2.15; pytorch issue #87688"
    ),
    example=Example(
        bad="""
            import torch.multiprocessing as mp

            queue = mp.SimpleQueue()
            x = torch.ones(3, device=device)
            queue.put(x)
        """,
        good="""
            import torch.multiprocessing as mp

            queue = mp.SimpleQueue()
            x = torch.ones(3, device=device)
            queue.put(x.cpu())
        """,
    ),
)

RULES = (SENT,)

_SHARED: Final = re.compile("|".join(re.escape(shared_memory(it).text) for it in ("file_system", "file_descriptor")))


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about tensors on mps that go to another process."""
    if ended_by_sharing(recording):
        ended = ending(recording)
        yield SENT.finding(ended.site, what=f"torch raised {ended.words}", count=1)


def ended_by_sharing(recording: Recording) -> bool:
    """Whether the run ended as torch was to share memory on mps."""
    return bool(_SHARED.search(ending(recording).message))
