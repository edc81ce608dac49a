"""Predicts a step with other kernels: without the fills of gradients, with a fused optimizer, with sums for norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anymps.cost import Happening, OperatorCall
from anymps.record import Phase

_FILLS: Final = ("aten::zero_", "aten::fill_.Scalar")
_COUNT: Final = OperatorCall("aten::add_.Tensor", ("float32[]", "int64[] on cpu"))
"""Adam counts its steps for each parameter, fused or not: torch/optim/adamw.py, torch 2.7 to 2.15."""

NORMS: Final = ("aten::linalg_vector_norm", "aten::norm.Scalar", "aten::norm.ScalarOpt_dim")
"""Norms, which take a tensor and give one number unless they are told the dimensions."""


def without_fills(happenings: Sequence[Happening], number: int) -> list[Happening] | None:
    """The step without the first so many fills in a row, and without the code between them; None if it has none."""
    row: list[int] = []
    for place, happening in enumerate(happenings):
        if (
            happening.kind == "kernel"
            and happening.call is not None
            and happening.call.operator in _FILLS
            and not happening.waits
        ):
            row.append(place)
            if len(row) == number:
                gone = set(row)
                return [kept for place, kept in enumerate(happenings) if place not in gone]
        elif happening.kind != "view":
            row.clear()
    return None


def with_fused_optimizer(happenings: Sequence[Happening], name: str) -> list[Happening] | None:
    """The step with the fused kernel of Adam, AdamW or SGD in place of the optimizer's kernels.

    The code before the first of them stays: it is the program's own. None where the parameters cannot be told.
    """
    optimizer = [place for place, happening in enumerate(happenings) if _of_optimizer(happening)]
    kernels = [happenings[place].call for place in optimizer if happenings[place].kind == "kernel"]
    calls = _Calls([call for call in kernels if call is not None])
    if name in ("Adam", "AdamW"):
        parameters, lists = calls.first("aten::addcdiv_"), 4
        counts = len(parameters)
    elif name == "SGD":
        written, decayed = calls.first("aten::add_.Tensor"), calls.first("aten::mul_.Tensor")
        # With momentum a buffer is scaled, the gradient is added to it, and it is added to the parameter.
        momentum = bool(decayed) and len(written) == 2 * len(decayed)
        parameters, lists, counts = (written[1::2], 3, 0) if momentum else (written, 2, 0)
    else:
        return None
    if not parameters:
        return None
    kernel = OperatorCall(f"aten::_fused_{name.lower()}_", tuple(parameters) * lists)
    start = happenings[optimizer[0]]
    instead = [start._replace(kind="kernel", call=_COUNT, host_code=0.0, moved=0)] * counts
    instead.append(start._replace(kind="kernel", call=kernel, host_code=0.0, moved=0))
    instead[0] = instead[0]._replace(host_code=start.host_code)
    gone = set(optimizer)
    after = [happening for place, happening in enumerate(happenings) if place not in gone]
    before = sum(1 for place in range(optimizer[0]) if place not in gone)
    return [*after[:before], *instead, *after[before:]]


def with_sums(happenings: Sequence[Happening]) -> list[Happening] | None:
    """The step with the sum of a tensor in place of each norm of a whole one; None without norms."""
    instead = [
        happening._replace(call=OperatorCall("aten::sum", call.inputs, call.outputs))
        if (call := happening.call) is not None and call.operator in NORMS and call.outputs[0].endswith("[]")
        else happening
        for happening in happenings
    ]
    return instead if instead != list(happenings) else None


def _of_optimizer(happening: Happening) -> bool:
    return happening.part == Phase.OPTIMIZER and happening.kind in ("kernel", "view") and not happening.waits


@dataclass(frozen=True)
class _Calls:
    calls: Sequence[OperatorCall]

    def first(self, operator: str) -> list[str]:
        """The first input of each call of an operator, which one in place writes. Counters are left out."""
        same = (call for call in self.calls if call.operator == operator and call.inputs)
        return [call.inputs[0] for call in same if call.inputs != _COUNT.inputs]
