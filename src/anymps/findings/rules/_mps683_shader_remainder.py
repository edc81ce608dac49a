"""MPS683: an expression in a Metal shader that Apple's compiler is known to compute wrong."""

from __future__ import annotations

from collections.abc import Iterator

from anymps.findings._example import Example
from anymps.findings._model import Finding, Rule, Severity
from anymps.record import Recording

REMAINDER = Rule(
    id="MPS683",
    title="Apple's compiler computes a remainder wrong",
    severity=Severity.ERROR,
    wrong=True,
    why=(
        "Apple's Metal compiler makes one operation of an integer's division by 65536 and the remainder that follows. "
        "The result is wrong where the second divisor is no power of two: `(i / 65536) % 6` is not 0 for all i below "
        "65536. There is no error. The value here is right."
    ),
    fix=(
        "Keep the two apart: `volatile uint q = i / 65536;` and then `q % 6`, or `c10::metal::safe_mod(i / 65536, 6)` "
        "of `<c10/metal/utils.h>`."
    ),
    source=(
        "pytorch pull request 175481, a program for Metal alone included (February 2026; no fixed macOS is named); "
        "torch/_inductor/codegen/mps.py and c10/metal/utils.h of torch 2.11 to 2.15 keep torch.compile from writing it"
    ),
    example=Example(
        bad='''
            library = torch.mps.compile_shader("""
            kernel void f(device int* x, uint i [[thread_position_in_grid]]) {
              x[i] = (i / 65536) % 6;
            }
            """)
            library.f(torch.empty(64, dtype=torch.int32, device=device))
        ''',
        good='''
            library = torch.mps.compile_shader("""
            kernel void f(device int* x, uint i [[thread_position_in_grid]]) {
              volatile uint q = i / 65536;
              x[i] = q % 6;
            }
            """)
            library.f(torch.empty(64, dtype=torch.int32, device=device))
        ''',
    ),
)

RULES = (REMAINDER,)


def find(recording: Recording) -> Iterator[Finding]:
    """One finding for each expression and line that compiles it."""
    for noted in recording.noted("miscompiled"):
        yield REMAINDER.finding(
            noted.occurrence.site,
            what=f"A Metal shader that is compiled here has `{noted.facts.get('expression')}`.",
            count=noted.occurrence.count,
        )
