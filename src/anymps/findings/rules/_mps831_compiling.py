"""MPS831 and MPS832: `torch.compile` as it is asked for on mps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

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


def find(recording: Recording) -> Iterator[Finding]:
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
