"""What a plan changes in the process that it measures: sizes of batches, tensors without values, optimizers."""

from __future__ import annotations

import pytest
import torch

from anymps.plan.inside._apply import _resize
from anymps.plan.inside._hollow import LARGE, is_large
from processes import run_python, run_with_torch


@pytest.mark.parametrize(("wanted", "rows"), [(2, [0, 1]), (5, [0, 1, 2, 0, 1]), (7, [0, 1, 2, 0, 1, 2, 0])])
def test_a_batch_of_another_size_repeats_its_samples(wanted: int, rows: list[int]) -> None:
    """The first ones, and from the first on again where there are too few."""
    batch = torch.arange(3.0)[:, None].expand(3, 2)
    assert _resize(batch, 0, 3, wanted)[:, 0].tolist() == rows
    assert _resize(batch, 0, 4, wanted) is batch  # of another size: no batch
    assert _resize(batch, 2, 3, wanted) is batch


@pytest.mark.parametrize(
    ("value", "large"),
    [
        (torch.empty(LARGE // 4), True),
        (torch.empty(LARGE // 4 - 1), False),
        (torch.empty(LARGE // 2, dtype=torch.bfloat16), True),
        (torch.empty(LARGE // 4, dtype=torch.int32), False),  # an index must hold its value
        (torch.empty(LARGE // 4, device="meta"), False),
        (torch.empty(LARGE // 4).to_sparse(), False),
        ("text", False),
    ],
    ids=["of that size", "smaller", "bfloat16", "integers", "on meta", "sparse", "no tensor"],
)
def test_which_tensors_have_no_values(value: object, large: bool) -> None:
    """Of floating point, in this machine's memory, and from 4 MiB on."""
    assert is_large(value) is large


def test_large_tensors_are_made_without_values() -> None:
    """Of the size, dtype and gradient that the call asks for, however it says so; no random number is drawn.

    In a process of its own, as a plan is: nothing that another test has left stands between the mode and its calls.
    """
    result = run_python("""
import torch
from anymps.plan.inside._hollow import Hollow
generator = torch.Generator()
before = generator.get_state()
with Hollow():
    made = torch.randn(size=(2048, 1024), generator=generator, layout=torch.strided, requires_grad=True)
    small = torch.ones(4)
print(tuple(made.shape), made.dtype, made.requires_grad, torch.equal(generator.get_state(), before), small.tolist())
""")
    assert result.lines == ["(2048, 1024) torch.float32 True True [1.0, 1.0, 1.0, 1.0]"]


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
