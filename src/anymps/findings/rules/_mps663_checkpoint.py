"""MPS663: a checkpoint that draws other random numbers when it is computed again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from anymps.findings._loop import by_line, times
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.record import Phase, Recording

CHECKPOINT = Rule(
    id="MPS663",
    title="Checkpointed block draws different random numbers when it is recomputed",
    severity=Severity.WARNING,
    wrong=True,
    why=(
        "`torch.utils.checkpoint` restores the random state of the CPU only: it looks for `torch.mps._initialized`, "
        "which does not exist, so preserve_rng_state does nothing for mps. Dropout has a different mask in the "
        "recomputation than in the forward pass, and the gradients belong to a loss that was never computed."
    ),
    fix=(
        "Leave dropout and other random operators outside the checkpointed block, or draw the mask once and pass it in"
        " as an argument."
    ),
    source="torch/utils/checkpoint.py, torch 2.11 to 2.15; pytorch issue 127676",
    since=(2, 11),
    until=(2, 15),
    example=Example(
        bad="""
            from torch.utils.checkpoint import checkpoint

            block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).to(device)
            x = torch.rand(8, 4).to(device)
            checkpoint(block, x, use_reentrant=False).sum().backward()
        """,
        better={
            ", torch.nn.Dropout(0.5)).to(device)": ").to(device)\ndropout = torch.nn.Dropout(0.5)",
            "checkpoint(block, x, use_reentrant=False)": "dropout(checkpoint(block, x, use_reentrant=False))",
        },
    ),
)

# Operators that draw from the device's generator and that models call between their layers.
DRAWS: Final = (
    "aten::bernoulli",
    "aten::bernoulli.p",
    "aten::bernoulli_.Tensor",
    "aten::bernoulli_.float",
    "aten::exponential_",
    "aten::multinomial",
    "aten::native_dropout",
    "aten::normal.Tensor_Tensor",
    "aten::normal.Tensor_float",
    "aten::normal.float_Tensor",
    "aten::normal_",
    "aten::random_",
    "aten::random_.from",
    "aten::random_.to",
    "aten::uniform_",
)


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about results that are wrong without an error."""
    draws = recording.uses_of(DRAWS)
    forward = [draw for draw in draws if Phase.FORWARD in draw.phases]
    lines = {(draw.operator, draw.site) for draw in forward}
    # A recomputation runs in a thread of autograd, where torch's own modules have no line of the user's.
    modules = {(draw.operator, module): draw.site for draw in forward for module in draw.modules}
    again = []
    for draw in draws:
        if Phase.BACKWARD not in draw.phases:
            continue
        sites = [modules[draw.operator, module] for module in draw.modules if (draw.operator, module) in modules]
        if (draw.operator, draw.site) in lines:
            again.append(draw)
        elif not draw.site.known and sites:
            again.append(replace(draw, site=sites[0]))
    for line in by_line(again):
        names = ", ".join(f"`{name}`" for name in line.operators)
        place = f" in module {', '.join(line.modules)}" if line.modules else ""
        yield line.finding(
            CHECKPOINT,
            what=(
                f"{names}{place} drew in the forward pass and again, different numbers, in backward "
                f"({times(line.count)} in all)."
            ),
        )
