"""Operators without a kernel: the error, the CPU fallback with its one warning, what a fallback copies and returns."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from anymps.rules.texts import (
    distributed_operator,
    fallback_warning,
    float64_allocation,
    missing_operator,
    view_fallback_warning,
)
from device.compare import text_of, values
from processes import ENABLE, run_with_torch

pytestmark = pytest.mark.usefixtures("mps_device")

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
GIT = str(torch.version.git_version)
ON = {"PYTORCH_ENABLE_MPS_FALLBACK": "1"}

MISSING = {
    "aten::mode": lambda x: x.mode(1),
    "aten::_pdist_forward": lambda x: torch.pdist(x),
    "aten::fractional_max_pool2d.output": lambda x: torch.nn.functional.fractional_max_pool2d(x[None], 2, (1, 1)),
    "aten::special_ndtri.out": lambda x: torch.special.ndtri(x),
    "aten::multi_margin_loss": lambda x: torch.nn.functional.multi_margin_loss(
        x, torch.tensor([0, 1, 2], device=x.device)
    ),
}
"""Operators that no release up to 2.15 has a kernel for, by the name that the error gives."""


@pytest.mark.parametrize("name", list(MISSING))
def test_a_missing_operator_raises_the_backends_text(name: str) -> None:
    """Without the variable an operator without a kernel is a NotImplementedError that names the overload."""
    assert text_of(NotImplementedError, MISSING[name], values(3, 4).to("mps")) == missing_operator(name, GIT).text


def test_the_overload_that_is_dispatched_is_named() -> None:
    """Up to 2.14 these are refused by the name of the out= variant where they are made of it; 2.15 has kernels."""
    x = torch.ones(3, device="mps")
    for name, call in (
        ("aten::heaviside.out", lambda: torch.heaviside(x, x)),
        ("aten::logspace.out", lambda: torch.logspace(0, 1, 3, device="mps")),
        ("aten::take", lambda: torch.take(x, torch.tensor([0], device="mps"))),
        ("aten::put_", lambda: x.put_(torch.tensor([0], device="mps"), x[:1].clone())),
        ("aten::frexp.Tensor_out", lambda: torch.frexp(x)),
    ):
        if RELEASE >= (2, 15):
            assert isinstance(call(), (torch.Tensor, tuple))
        else:
            assert text_of(NotImplementedError, call) == missing_operator(name, GIT).text


def test_a_refused_operator_changes_nothing() -> None:
    """After the error the tensors are as before."""
    x = torch.zeros(3, device="mps")
    index = torch.tensor([0], device="mps")
    out = torch.ones(2, device="mps")
    for call in (lambda: torch.special.ndtri(x, out=out), lambda: torch.pdist(x[None].expand(2, 3).contiguous())):
        with pytest.raises(NotImplementedError):
            call()
    assert ([0.0] * 3, [1.0, 1.0], [0]) == (x.tolist(), out.tolist(), index.tolist())


SCRIPT = """
import json, os, warnings
import numpy as np
def told(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
        except Exception as error:
            result = [type(error).__name__, str(error)]
        return result, [[w.category.__name__, str(w.message).split(" (Triggered")[0]] for w in caught]
def show(**facts):
    print(json.dumps(facts))
"""


def facts(code: str, env: dict[str, str]) -> dict[str, Any]:
    """What a script of its own shows, with `told` and `show` at hand."""
    found: dict[str, Any] = json.loads(run_with_torch(SCRIPT + ENABLE + code, env).lines[-1])
    return found


def test_the_warning_comes_once_for_all_operators() -> None:
    """The first fallback of a process is named in a UserWarning, later ones are silent unless warn_always is set."""
    found = facts(
        """
x = torch.tensor([[3., 1., 1.], [2., 2., 5.]], device="mps")
first, warned = told(lambda: x.mode(1))
_, second = told(lambda: torch.pdist(x))
torch.set_warn_always(True)
_, third = told(lambda: torch.pdist(x))
os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "0"
_, late = told(lambda: x.mode(1))
show(values=first.values.tolist(), device=str(first.values.device), warned=warned, second=second, third=third,
     late=late)
""",
        ON,
    )
    assert ([1.0, 2.0], "mps:0") == (found["values"], found["device"])
    assert [list(fallback_warning("aten::mode"))] == found["warned"]
    assert [] == found["second"]
    assert [list(fallback_warning("aten::_pdist_forward"))] == found["third"]
    assert [list(fallback_warning("aten::mode"))] == found["late"]


def test_what_a_fallback_returns_and_writes() -> None:
    """Results go to the first tensor's device, in-place and out= write back, gradients flow, views are copies."""
    answer = run_with_torch(
        SCRIPT
        + ENABLE
        + """
library = torch.library.Library("probe", "DEF")
for schema, body in (
    ("look(Tensor(a) x) -> Tensor(a)", lambda x: x[1:]),
    ("scale_(Tensor(a!) x, Tensor y) -> Tensor(a!)", lambda x, y: x.mul_(y)),
    ("grow.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", lambda x, out: out.resize_(2, 3).fill_(7)),
    ("many(Tensor[] xs, Tensor? y=None) -> Tensor[]", lambda xs, y=None: [x + 1 for x in xs]),
    ("wide(Tensor x) -> Tensor", lambda x: x.double()),
    ("make(int n, *, Device device) -> Tensor", lambda n, device: torch.arange(n, device=device)),
    ("pair(Tensor x, Tensor y) -> (Tensor, Tensor)", lambda x, y: (x + y, x - y)),
    ("count(Tensor x) -> int", lambda x: x.numel()),
):
    library.define(schema)
    library.impl(schema.split("(")[0], body, "CPU")
library.define("nowhere(Tensor x) -> Tensor")
ops = torch.ops.probe
x, c = torch.arange(3., device="mps"), torch.ones(3)
look = ops.look(x)
view = torch.zeros(3, 2, device="mps")
same = ops.scale_(x, x)
ops.scale_(view.fill_(2)[:, 0], x)
out = torch.zeros(1, device="mps")
grown = ops.grow(x, out=out)
many = ops.many([x, x[:1]], c)
wide, _ = told(lambda: ops.wide(x))
leaf = torch.tensor([[3., 1., 1.], [2., 2., 5.]], device="mps", requires_grad=True)
torch.pdist(leaf).sum().backward()
here = torch.tensor([[3., 1., 1.], [2., 2., 5.]], requires_grad=True)
torch.pdist(here).sum().backward()
first, second = ops.pair(c, x)
there = ops.pair(x, c)[0]
show(
    look=[look.tolist(), str(look.device), look.data_ptr() == x[1:].data_ptr()],
    same=same is x, x=x.tolist(), view=view.tolist(), grown=[grown is out, out.tolist(), str(out.device)],
    many=[[m.tolist(), str(m.device)] for m in many], wide=wide,
    grad=torch.allclose(leaf.grad.cpu(), here.grad), devices=[str(first.device), str(second.device), str(there.device)],
    count=ops.count(x), nowhere=told(lambda: ops.nowhere(x))[0],
)
""",
        ON,
    )
    found = json.loads(answer.lines[-1])
    assert [[1.0, 2.0], "mps:0", False] == found["look"]
    assert view_fallback_warning("probe::look").text in answer.err  # torch.ops prints warnings itself
    assert found["same"]
    assert [0.0, 1.0, 4.0] == found["x"]
    assert [[0.0, 2.0], [2.0, 2.0], [8.0, 2.0]] == found["view"]
    assert [True, [[7.0] * 3] * 2, "mps:0"] == found["grown"]
    assert [[[1.0, 2.0, 5.0], "mps:0"], [[1.0], "mps:0"]] == found["many"]
    assert list(float64_allocation()) == found["wide"]
    assert found["grad"]
    assert ["cpu", "cpu", "mps:0"] == found["devices"]
    assert 3 == found["count"]
    assert found["nowhere"][0] == "NotImplementedError"  # without a kernel for the CPU it still raises
    assert found["nowhere"][1].startswith("Could not run 'probe::nowhere' with")


def test_small_work_runs_on_the_calling_thread_alone() -> None:
    """Threads that spin would take other programs' time for work; the CPU's own calls have all threads."""
    found = facts(
        """
library = torch.library.Library("probe", "DEF")
def threads(x):
    if not x.numel():
        raise ValueError("nothing")
    seen.append(torch.get_num_threads())
    return x + 1
def number(call):
    seen.clear()
    told(call)
    return [*seen, torch.get_num_threads()]
library.define("threads(Tensor x) -> Tensor")
library.impl("threads", threads, "CPU")
torch.set_num_threads(3)
seen = []
call = torch.ops.probe.threads
show(
    small=number(lambda: call(torch.ones(512, 512, device="mps"))),
    large=number(lambda: call(torch.ones(512, 513, device="mps"))),
    raised=number(lambda: call(torch.ones(0, device="mps"))),
    host=number(lambda: call(torch.ones(1))),
)
""",
        ON,
    )
    assert {"small": [1, 3], "large": [3, 3], "raised": [3], "host": [3, 3]} == found


def test_distributed_operators_never_fall_back() -> None:
    """An operator of namespace c10d is refused with a text of its own, whatever the variable says."""
    found = facts(
        """
library = torch.library.Library("c10d", "FRAGMENT")
library.define("probe(Tensor x) -> Tensor")
library.impl("probe", lambda x: x, "CPU")
answer, _ = told(lambda: torch.ops.c10d.probe(torch.ones(1, device="mps")))
show(answer=answer)
""",
        ON,
    )
    assert list(distributed_operator("c10d::probe", GIT)) == found["answer"]


@pytest.mark.parametrize("setting", ["0", None])
def test_some_operators_always_fall_back(setting: str | None) -> None:
    """embedding_renorm_ runs on the CPU with the warning also where the variable is 0 or unset."""
    found = facts(
        """
table = torch.nn.Embedding(2, 3, max_norm=1.0, device="mps")
_, warned = told(lambda: table(torch.tensor([0], device="mps")))
missing, _ = told(lambda: torch.ones(2, 2, device="mps").mode(1))
show(warned=warned, missing=missing[0])
""",
        {} if setting is None else {"PYTORCH_ENABLE_MPS_FALLBACK": setting},
    )
    assert [list(fallback_warning("aten::embedding_renorm_"))] == found["warned"]
    assert found["missing"] == "NotImplementedError"


def test_a_setting_that_is_no_number_is_refused() -> None:
    """The variable is an integer; anything else stops with one line that says so."""
    answer = run_with_torch(ENABLE, {"PYTORCH_ENABLE_MPS_FALLBACK": "yes"})
    assert answer.status != 0
    if "EnableError" in answer.err:  # a real torch stops in its own words
        assert (
            "anymps: PYTORCH_ENABLE_MPS_FALLBACK='yes' is not a number; torch reads it as an integer and fails; "
            "use 1 or 0" in answer.err
        )


def test_the_decision_is_made_once() -> None:
    """enable(fallback=True) after the device is on is refused."""
    import anymps

    if not anymps.is_virtual():
        pytest.skip("the fallback of a real device is decided when torch is loaded")
    assert text_of(anymps.EnableError, anymps.enable, fallback=True) == (
        "anymps: the CPU fallback was decided when the device was switched on, as on a Mac; "
        "set PYTORCH_ENABLE_MPS_FALLBACK or enable(fallback=...) before"
    )
