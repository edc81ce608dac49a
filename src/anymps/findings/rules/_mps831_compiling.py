"""MPS831, MPS832 and MPS836: how `torch.compile` is asked for, and limits of Metal that its kernels exceed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.findings._endings import ending, kernel_limit
from anymps.findings._loop import is_library, uses_mps
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.record import Recording

BACKEND = Rule(
    id="MPS831",
    title="torch.compile rejects the name of its backend",
    why=(
        "A backend is a compiler, not a device: torch raises InvalidBackend at once. The default one, inductor, "
        "writes Metal kernels for tensors on mps, as a prototype since torch 2.7."
    ),
    fix="Leave `backend` out: `torch.compile(model)`.",
    source="torch/_dynamo/backends/registry.py, torch/_inductor/codegen/mps.py, torch 2.7 to 2.15",
    example=Example(
        bad="""
            model = torch.nn.Linear(4, 2).to(device)
            model = torch.compile(model, backend="mps")
        """,
        better={'model = torch.compile(model, backend="mps")': "model = torch.compile(model)"},
    ),
)

MODE = Rule(
    id="MPS832",
    title="torch.compile mode without effect on mps",
    severity=Severity.INFO,
    why=(
        "The mode chooses CUDA graphs and tuned Triton templates, and mps has neither. The compiled code is the "
        "same, and the search for the best kernel only costs time."
    ),
    fix="Leave `mode` out: `torch.compile(model)`.",
    source="torch/_inductor/codegen/mps.py, torch/_inductor/__init__.py (list_mode_options), torch 2.13",
    example=Example(
        bad="""
            model = torch.nn.Linear(4, 2).to(device)
            model = torch.compile(model, mode="reduce-overhead")
        """,
        better={'model = torch.compile(model, mode="reduce-overhead")': "model = torch.compile(model)"},
    ),
)

_NOT_BACKENDS: Final = ("mps", "metal")
_GPU_MODES: Final = ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

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
    """Findings about compiled code."""
    yield from _asked(recording)
    yield from _kernel_limits(recording)


def _asked(recording: Recording) -> Iterator[Finding]:
    """Findings about how a model is compiled."""
    for compiled in recording.noted("compile"):
        site, count = compiled.occurrence.site, compiled.occurrence.count
        backend, mode = str(compiled.facts.get("backend")), str(compiled.facts.get("mode"))
        if is_library(site):
            continue
        if backend in _NOT_BACKENDS:
            yield BACKEND.finding(site, what=f'`torch.compile` was given `backend="{backend}"`.', count=count)
        elif mode in _GPU_MODES and backend == "inductor" and uses_mps(recording):
            yield MODE.finding(site, what=f'`torch.compile` was given `mode="{mode}"`.', count=count)


def _kernel_limits(recording: Recording) -> Iterator[Finding]:
    """The finding about the exception that ended the run, if it is about such a kernel."""
    ended = ending(recording)
    if said := kernel_limit(ended.message):
        yield KERNEL.finding(ended.site, what=f"Metal refused a kernel: {said}.", count=1)
