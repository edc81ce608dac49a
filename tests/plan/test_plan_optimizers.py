"""Another optimizer in a plan: whichever the script makes is the scenario's, with what that knows of the arguments."""

from __future__ import annotations

import pytest

from processes import run_with_torch

MADE = """
import torch
from anymps.plan import Scenario
from anymps.plan.inside import apply
before = {name: getattr(torch.optim, name) for name in ("SGD", "Adam", "AdamW")}
applied = apply(Scenario(optimizer="%s"))
weight = torch.ones(3)
for name, own in before.items():
    kind = getattr(torch.optim, name)
    made = kind([weight], lr=0.5, weight_decay=0.25, **({"momentum": 0.9} if name == "SGD" else {"eps": 1e-3}))
    group = made.param_groups[0]
    of = next(one.__name__ for one in type(made).__mro__ if one.__name__ != "Replacement")
    print(name, "own" if kind is own else "replaced", of, group["lr"], group["weight_decay"], group.get("eps"))
print(applied.optimizers)
"""


@pytest.mark.parametrize(("wanted", "kind"), [("sgd", "SGD"), ("adam", "Adam"), ("adamw", "AdamW")])
def test_optimizers_are_replaced(wanted: str, kind: str) -> None:
    """All but the wanted one, each of which is counted; its own keeps all of its arguments."""
    lines = run_with_torch(MADE % wanted).lines
    eps = None if kind == "SGD" else 1e-08
    expected = []
    for name in ("SGD", "Adam", "AdamW"):
        if name == kind:
            expected.append(f"{name} own {kind} 0.5 0.25 {None if kind == 'SGD' else 0.001}")
        else:
            expected.append(f"{name} replaced {kind} 0.5 0.25 {eps}")
    assert lines == [*expected, "3"]
