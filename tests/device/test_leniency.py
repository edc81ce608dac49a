"""Random calls, a bounded set of them: mps takes none that the CPU refuses, unless a source says so."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from leniency.__main__ import hunt
from leniency.calls import Call, Described
from leniency.known import KNOWN, find
from leniency.sides import run

# Operators that the native core computes by kernels, checks or ways of its own, and some beside them.
OVERLOADS = """
    addbmm. addmm. addr. addr_. arange. baddbmm. bernoulli. bernoulli_. cat. copy_. exponential_. gather. index_add.
    index_copy. index_fill. index_put. index_select. linear. masked_fill. masked_scatter. max_pool2d. multinomial.
    native_dropout. normal. randperm. scatter. softmax. take_along_dim. uniform_. where.
"""
OPERATORS = "addr bernoulli gather multinomial polar linalg.householder_product nn.functional.grid_sample"


@pytest.mark.parametrize(
    ("source", "names"), [("random", OVERLOADS), ("samples", OPERATORS)], ids=["random", "samples"]
)
def test_whatever_only_mps_takes_has_a_source(source: str, names: str) -> None:
    """In another process, as a CPU kernel may fall. Longer hunts: `python -m tests.leniency --seed 7 --calls 100`."""
    told = list(hunt(source, 0, 10, names.split()))
    made, refused = (sum(each.get(what, 0) for each in told) for what in ("made", "refused"))
    assert [each for each in told if "crash" in each] == []
    assert [find for each in told for find in each.get("found", []) if not find["why"]] == []
    assert 0.1 * made < refused < 0.95 * made  # the calls are neither all right nor all wrong


@pytest.mark.usefixtures("virtual_device")
def test_a_lenient_call_is_noticed() -> None:
    """A function that raises on the CPU alone is one; what torch raises on both devices is none."""

    def picky(tensor: torch.Tensor) -> None:
        if tensor.is_cpu:
            raise ValueError("not here")

    three = Described((3,), torch.float32)
    assert run(Call("picky", picky, (three,), {})).lenient
    assert run(Call("picky", picky, (three,), {})).why == ""
    late = Call("gather", torch.gather, (three, 0, Described((3,), torch.int64, seed=3)), {})
    outcome = run(late)
    assert outcome.cpu is not None and outcome.mps is not None


def of(device: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=device)


HALF, BOOL, BYTE = torch.float16, torch.bool, torch.uint8
# Operators of dtypes that the CPU lacks, in calls that are wrong by more than that.
WRONG: dict[str, Callable[[str], object]] = {
    "result type": lambda device: of(device, 2, dtype=BOOL).fmod_(2.5),
    "result type of out": lambda device: torch.ops.aten.huber_loss.out(
        of(device, 2, dtype=BOOL), of(device, 2, dtype=torch.int64), out=of(device, 0, dtype=BOOL)
    ),
    "overlap": lambda device: torch.ops.aten.glu.out(
        of(device, 2, 2, dtype=BYTE), -1, out=of(device, 1, 1, dtype=BYTE).expand(2, 1)
    ),
    "promoted": lambda device: torch.nn.functional.huber_loss(
        of(device, 2, dtype=torch.int8), of(device, 2, dtype=torch.int64)
    ),
    "polar": lambda device: torch.polar(of(device, 2, dtype=HALF), of(device, 2)),
    "householder": lambda device: torch.linalg.householder_product(of(device, 2, 2, dtype=HALF), of(device, 2)),
    "cdist": lambda device: torch.cdist(of(device, 2, 2, dtype=HALF), of(device, 2, 2)),
    "grid_sample": lambda device: torch.nn.functional.grid_sample(
        of(device, 1, 1, 2, 2, dtype=HALF), of(device, 1, 2, 2, 2), align_corners=False
    ),
    "lstm": lambda device: torch.lstm(
        of(device, 2, 1, 1), [of(device, 2, 1, 1)] * 2, [of(device, 4, 1)] * 4, False, 2, 2.0, True, False, False
    ),
}


@pytest.mark.usefixtures("virtual_device")
@pytest.mark.parametrize("name", list(WRONG))
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
def test_checks_that_torch_makes_on_every_device(name: str) -> None:
    """A wider type, in which the device computes what the CPU lacks, gets round none of them."""
    with pytest.raises(Exception) as on_cpu:
        WRONG[name]("cpu")
    with pytest.raises(type(on_cpu.value)) as on_mps:
        WRONG[name]("mps")
    assert str(on_cpu.value) == str(on_mps.value)


@pytest.mark.usefixtures("virtual_device")
def test_several_draws_of_no_category() -> None:
    """The kernel selects the last sum of the weights, and there is none."""
    with pytest.raises(IndexError) as raised:
        torch.multinomial(torch.ones(2, 0, device="mps"), 3, replacement=True)
    assert str(raised.value) == "select(): index -1 out of range for tensor of size [2, 0] at dimension 1"


@pytest.mark.usefixtures("virtual_device")
def test_reasons() -> None:
    """Lists of dtypes, torch's own composite code and the table of known calls explain what they are about."""
    ints = Described((2, 3), torch.int32)
    everything = torch.ops.aten
    reasons = {
        "dtype that only mps has": Call("floor", everything.lerp.Scalar, (ints, ints, 0.5), {}),
        "made of other operators on mps": Call(
            "all", everything.all.dims_out, (ints, [0]), {"out": Described((3,), torch.float16)}
        ),
        "the range of q is looked at on the CPU only": Call(
            "quantile", torch.quantile, (Described((1,), torch.float32), torch.tensor([2.0])), {}
        ),
    }
    assert {why: why for why in reasons} == {why: run(call).why for why, call in reasons.items()}


def test_the_table() -> None:
    """Each row has a source, and is found by the names that both kinds of calls have."""
    assert all(row.names and row.why and row.source and re.compile(row.text) for row in KNOWN)
    assert find("aten.quantile.out", "q values must be in the range [0, 1]") is not None
    assert find("nn.functional.max_pool1d", "\"max_pool1d_impl\" not implemented for 'Long'") is not None
    assert find("aten.median.default", "q values must be in the range [0, 1]") is None
