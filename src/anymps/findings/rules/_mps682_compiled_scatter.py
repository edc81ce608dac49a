"""MPS682: kernels of torch.compile in which every thread of a reduction adds its result to a tensor."""

from __future__ import annotations

from collections.abc import Iterator

from anymps.findings._example import Example
from anymps.findings._model import Finding, Rule, Severity
from anymps.record import Recording

SCATTER = Rule(
    id="MPS682",
    title="torch.compile adds a reduction's result many times",
    severity=Severity.ERROR,
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
        good="""
            @torch.compile
            def collect(x, index):
                return torch.zeros(3, device=device).index_add(0, index, x[:, 0])


            collect(torch.ones(2, 40, device=device), torch.tensor([0, 2], device=device))
        """,
    ),
)

RULES = (SCATTER,)


def find(recording: Recording) -> Iterator[Finding]:
    """One finding for each kernel and line."""
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
