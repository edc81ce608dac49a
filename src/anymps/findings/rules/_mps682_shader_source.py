"""MPS682 and MPS683: what a Metal shader's source shows to come out wrong, by Inductor's fault or Apple's."""

from __future__ import annotations

from collections.abc import Iterator

from anymps.findings._model import Example, Finding, Rule
from anymps.record import Recording

SCATTER = Rule(
    id="MPS682",
    title="torch.compile adds a reduction's result many times",
    wrong=True,
    why=(
        "When Inductor fuses a reduction with an indexed addition, every thread of the group adds the result, "
        "instead of one thread. The gradient of a position embedding is then too large by a factor of the batch "
        "size. There is no error, and the wrong number is computed here too."
    ),
    fix=(
        "Read positions without an index: `table.weight[:length]`. Keep any other `embedding`, `x[index]`, "
        "`index_add` or `scatter_add` uncompiled: call it in a function with `@torch.compiler.disable`."
    ),
    related_as="run at",
    source=(
        "torch/_inductor/codegen/mps.py (MetalKernel.store with atomic_add), torch 2.11 to 2.15; run with 2.11, 2.13 "
        "and 2.15: sums over 40 numbers came out 40 times too large, longer ones 1024 times"
    ),
    example=Example(
        bad="""
            @torch.compile
            def collect(x, index):
                return torch.zeros(3, device=device).index_add(0, index, x.sum(-1))


            collect(torch.ones(2, 40, device=device), torch.tensor([0, 2], device=device))
        """,
        better={"x.sum(-1)": "x[:, 0]"},
    ),
)

REMAINDER = Rule(
    id="MPS683",
    title="Apple's compiler computes a remainder wrong",
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
        better={"x[i] = (i / 65536) % 6;": "volatile uint q = i / 65536;\n  x[i] = q % 6;"},
    ),
)


def find(recording: Recording) -> Iterator[Finding]:
    """One finding for each kernel and line, and for each expression and line that compiles it."""
    for noted in recording.noted("miscompiled"):
        yield REMAINDER.finding(
            noted.occurrence.site,
            what=f"A Metal shader that is compiled here has `{noted.facts.get('expression')}`.",
            count=noted.occurrence.count,
        )
    for scatter in recording.noted("repeated_scatter"):
        site, call = scatter.occurrence.site, scatter.other
        threads, kernel = scatter.facts.get("threads"), scatter.facts.get("kernel")
        count = f"{threads:,}" if isinstance(threads, int) and threads > 1 else "all"
        factor = f" {count} times too large" if count != "all" else " too large"
        yield SCATTER.finding(
            site,
            what=(
                f"torch.compile made `{kernel}` for this line. In it {count} threads add the same sum, so what it adds "
                f"is{factor}."
            ),
            count=scatter.occurrence.count,
            related_sites=[call] if call.file_line != site.file_line else [],
        )
