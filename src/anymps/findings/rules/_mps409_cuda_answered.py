"""MPS409 and MPS410: what `--cuda-as-mps` answered, and what it refused as no Mac has it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from anymps._errors import UnsupportedTorchError
from anymps.findings._example import Example
from anymps.findings._loop import is_library
from anymps.findings._model import Finding, Rule, Severity
from anymps.findings.advice import portable, without_comment
from anymps.record import Recording
from anymps.rules import parse_torch_version

_CHOSEN = "device = torch.accelerator.current_accelerator()"
_SHARED = f"Make `{_CHOSEN}` once; here"
_MEMORY_SINCE = (2, 9)  # torch.accelerator.memory_allocated and the like

ANSWERED = Rule(
    id="MPS409",
    title="CUDA, answered by mps",
    severity=Severity.WARNING,
    why="Only `--cuda-as-mps` lets this line use the Mac's GPU. Without it the line raises, or chooses the CPU.",
    fix=(
        "Choose the device once, `device = torch.accelerator.current_accelerator()`, and use it everywhere: "
        "`.to(device)`, `device=device`. It is CUDA's there and mps on a Mac."
    ),
    source="torch/cuda/__init__.py (_lazy_init) and torch/accelerator/__init__.py, torch 2.7 to 2.15",
    example=Example(
        bad="""
            x = torch.ones(3).cuda()
        """,
        good="""
            x = torch.ones(3).to(torch.accelerator.current_accelerator())
        """,
        cuda_as_mps=True,
    ),
)

REFUSED = Rule(
    id="MPS410",
    title="CUDA's own, which no Mac has",
    severity=Severity.ERROR,
    refusal=True,
    why="It belongs to NVIDIA's hardware or libraries. `--cuda-as-mps` refuses it, as nothing of mps does the same.",
    fix="Use what the finding names, or leave the call out where `torch.cuda.is_available()` is False.",
    source="torch/cuda/graphs.py, nccl.py, memory.py, torch 2.7 to 2.15; developer.apple.com/metal/pytorch",
    example=Example(
        bad="""
            graph = torch.cuda.CUDAGraph()
        """,
        good="""
            x = torch.ones(3, device=device) * 2
        """,
        cuda_as_mps=True,
    ),
)

RULES = (ANSWERED, REFUSED)


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about lines of the program that asked for CUDA and were answered or refused."""
    memory = _has_accelerator_memory(recording)
    for note in recording.noted("cuda_answered"):
        site = note.occurrence.site
        if not site.known or is_library(site):
            continue
        yield ANSWERED.finding(
            site,
            what="This line asks for CUDA, and mps answered.",
            count=note.occurrence.count,
            fix=_fix(without_comment(site.source).strip(), memory),
        )
    for note in recording.noted("cuda_refused"):
        sentence = str(note.facts.get("sentence", ""))
        what, _, instead = sentence.partition("; ")
        yield REFUSED.finding(
            note.occurrence.site,
            what=f"{what}, and was refused.",
            count=note.occurrence.count,
            fix=f"{instead[:1].upper()}{instead[1:]}." if instead else "",
        )


def _fix(source: str, accelerator_memory: bool) -> str:
    """What to write instead; `device` is used only where it is made."""
    if source and "cuda" not in source.lower():
        return f"`{source}` can stay. Its device was chosen elsewhere: write `{_CHOSEN}` there."
    line = portable(source, accelerator_memory=accelerator_memory)
    if not line:
        return ""
    uses = re.search(r"(?<![\w.])device(?!\w|\s*=)", line)
    return f"{_SHARED}, write `{line}`." if uses else f"Write `{line}`."


def _has_accelerator_memory(recording: Recording) -> bool:
    try:
        return parse_torch_version(str(recording.meta.get("torch_version", ""))).release[:2] >= _MEMORY_SINCE
    except UnsupportedTorchError:
        return False
