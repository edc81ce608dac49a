"""MPS105 to MPS107: arguments and values that MPS refuses, at the call or at a later wait."""

from __future__ import annotations

from collections.abc import Iterator

from anymps.findings._model import Example, Finding, Rule, at
from anymps.findings._refusals import Refused, refused_as, told_as_raised
from anymps.findings.advice import ON_THE_CPU
from anymps.record import Recording, RefusalKind

ARGUMENT = Rule(
    id="MPS105",
    title="Argument that the MPS kernel does not support",
    refusal=True,
    why="Some MPS kernels have fewer options, or smaller limits, than those of the CPU.",
    fix=f"{ON_THE_CPU} Or choose arguments that MPS supports.",
    source="C strings of libtorch_cpu.dylib in the macOS wheels, torch 2.11 to 2.15",
    example=Example(
        bad="""
            x = torch.rand(1, 3, 7, 7).to(device)
            torch.nn.functional.adaptive_avg_pool2d(x, 3)
        """,
        better={"x = torch.rand(1, 3, 7, 7).to(device)": "x = torch.rand(1, 3, 6, 6).to(device)"},
    ),
)

INDEX = Rule(
    id="MPS106",
    title="Bad index raises at a later line",
    refusal=True,
    related_as="raised at",
    why=(
        "MPS kernels detect a bad index or value while they run, so the exception is raised at the next wait, on "
        "another line."
    ),
    fix="Check the values before this call. While debugging, call `torch.mps.synchronize()` right after it.",
    source="c10/metal/error.h, aten/src/ATen/mps/MPSStream.mm, torch 2.11 to 2.15",
    example=Example(
        bad="""
            x = torch.rand(4).to(device)
            y = x[torch.tensor([0, 4]).to(device)]
            y.cpu()
        """,
        better={"y = x[torch.tensor([0, 4]).to(device)]": "y = x[torch.tensor([0, 3]).to(device)]"},
    ),
)

DETERMINISM = Rule(
    id="MPS107",
    title="Operator raises under use_deterministic_algorithms(True)",
    refusal=True,
    why="`torch.use_deterministic_algorithms(True)` is on, and the order in which the MPS kernel adds varies.",
    fix="Use `torch.use_deterministic_algorithms(True, warn_only=True)`, or run this call on the CPU.",
    source="callers of alertNotDeterministic in libtorch_cpu.dylib of the macOS wheels, torch 2.11 to 2.15",
    example=Example(
        bad="""
            torch.use_deterministic_algorithms(True, warn_only=False)
            x = torch.rand(4).to(device)
            torch.kthvalue(x, 2)
        """,
        better={"True, warn_only=False": "False"},
    ),
)


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about arguments and values that MPS refuses."""
    yield from told_as_raised(recording, RefusalKind.ARGUMENT, ARGUMENT)
    yield from told_as_raised(recording, RefusalKind.DETERMINISM, DETERMINISM)
    for refused in refused_as(recording, RefusalKind.INDEX):
        yield refused.finding(INDEX, what=_late(refused))


def _late(refused: Refused) -> str:
    reported = f"`{refused.operator}` reported: {refused.message or 'an assertion without a message'}"
    if refused.origin.known:
        return f"{reported}; {refused.error} was raised at {at(refused.origin)}, the next wait."
    return f"{reported}; no exception was raised for it: another error came first, or nothing waited."
