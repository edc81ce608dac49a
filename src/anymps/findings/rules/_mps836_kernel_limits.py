"""MPS836: a Metal kernel, mostly one that torch.compile fused, that takes more than a GPU of Apple's has."""

from __future__ import annotations

from collections.abc import Iterator

from anymps.findings._endings import ending, kernel_limit
from anymps.findings._model import Example, Finding, Rule
from anymps.record import Recording

KERNEL = Rule(
    id="MPS836",
    title="Kernel exceeds a Metal limit",
    explains=lambda recording: bool(kernel_limit(ending(recording).message)),
    why=(
        "A Metal kernel may use 31 buffers, and 32 KiB of threadgroup memory. Inductor's fusion ignores both limits: "
        "a sum of many tensors becomes one kernel with a buffer for each."
    ),
    fix=(
        "Fuse less: `torch._inductor.config.max_fusion_size = 2` before compiling, or put the code with so many "
        "inputs into a function with `@torch.compiler.disable`."
    ),
    source=(
        "torch/_inductor/codegen/mps.py, torch 2.11 to 2.15; Metal Feature Set Tables; pytorch issue 141287 (the text "
        "of Metal's compiler for a kernel of torch.compile)"
    ),
    example=Example(
        bad="""
            @torch.compile
            def add(*tensors):
                return sum(tensors)


            add(*torch.ones(40, 8, device=device).unbind())
        """,
        better={"add(*torch.ones(40, 8, device=device).unbind())": "add(*torch.ones(20, 8, device=device).unbind())"},
    ),
)


def find(recording: Recording) -> Iterator[Finding]:
    """The finding about the exception that ended the run, if it is about such a kernel."""
    ended = ending(recording)
    if said := kernel_limit(ended.message):
        yield KERNEL.finding(ended.site, what=f"Metal refused a kernel: {said}.", count=1)
