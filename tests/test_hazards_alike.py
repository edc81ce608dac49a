"""Known faults are recognised alike by the native core and without it: asked for random calls of every operator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._ops import OpOverload

import anymps
from anymps.capture.dispatch._hazard_checks import CHECKS
from anymps.capture.dispatch._hazards import KnownFaults
from anymps.device import composite_rows, enforce_hazards, known_hazards, native
from anymps.device._real_mac import hazards_of
from anymps.mac import parse_mac
from anymps.rules import core_table, parse_torch_version
from anymps.rules.faults import Check, Hazard, Outcome, all_hazards

pytestmark = pytest.mark.usefixtures("virtual_device")

CALLS = 300
"""Of each operator."""

SIZES = (1, 1, 2, 2, 3, 3, 4, 19)
LARGE = (16, 17, 18)
DTYPES = (torch.float32, torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.uint8, torch.bool)
HOST_DTYPES = (*DTYPES, torch.float64, torch.complex128)
OVERLOADS = (
    "copy_", "add.Tensor", "add_.Tensor", "mul.Tensor", "div.out", "mm", "mm.out", "addmm", "linear", "linear_backward",
    "bmm", "baddbmm", "addbmm", "addcmul", "convolution", "convolution_backward", "native_batch_norm",
    "native_batch_norm_backward", "native_layer_norm_backward", "avg_pool2d", "_adaptive_avg_pool2d",
    "max_pool2d_with_indices", "lstm.input", "_scaled_dot_product_attention_math_for_mps", "index_select", "cat",
    "col2im", "masked_fill_.Scalar", "index_add_", "embedding_dense_backward", "_softmax_backward_data", "_fused_sgd_",
)  # fmt: skip
# The native core knows these faults by the composite operator, whose first arguments are the same.
COMPOSITE = {"aten::_scaled_dot_product_attention_math_for_mps": "aten::scaled_dot_product_attention"}


def smaller(hazard: Hazard) -> Hazard:
    """The fault with limits that small tensors reach."""
    low = {32767: 16, 256: 3}.get(hazard.low, 18 if hazard.low else 0)
    return replace(hazard, low=low, high=17 if hazard.high else 0)


@pytest.fixture(autouse=True)
def small_limits(virtual_device: torch.device) -> Iterator[tuple[Hazard, ...]]:
    """All faults of all releases in force, with small limits; afterwards those of before."""
    before = known_hazards()
    known = tuple(map(smaller, all_hazards()))
    enforce_hazards(known)
    yield known
    enforce_hazards(before)


def tensor(choose: random.Random) -> torch.Tensor:
    """Any dtype, device, rank and layout: whole, permuted, sliced, expanded, channels_last, a view behind a start."""
    on_mps = choose.random() < 0.7
    dtype = choose.choice(DTYPES if on_mps else HOST_DTYPES)
    sizes, ranks = choose.choice(((SIZES, (0, 1, 2, 3, 3, 4, 4, 4, 5)), (LARGE, (2, 2, 3))))
    shape = [choose.choice(sizes) for _ in range(choose.choice(ranks))]
    made = torch.zeros(shape, dtype=dtype, device="mps" if on_mps else "cpu")
    if made.dim() == 4 and choose.random() < 0.4:
        made = made.to(memory_format=torch.channels_last)
    how = choose.choice(("whole", "whole", "permuted", "sliced", "expanded", "behind", "behind", "gaps"))
    if made.dim() == 0:
        made = torch.zeros(3, dtype=dtype, device=made.device)[1] if how == "behind" else made
    elif how == "permuted":
        made = made.permute(choose.sample(range(made.dim()), made.dim()))
    elif how == "sliced":
        made = made.narrow(choose.randrange(made.dim()), 0, 1)
    elif how == "expanded":
        made = made[:1].expand(choose.choice(SIZES), *made.shape[1:])
    elif how == "behind":
        made = torch.zeros(made.numel() + 1, dtype=dtype, device=made.device)[1:].view(made.shape)
    elif how == "gaps":
        made = made[..., ::2]
    return made.requires_grad_() if dtype.is_floating_point and choose.random() < 0.3 else made


def argument(choose: random.Random, kind: str) -> Any:
    """A value for an argument of that type in a schema."""
    if kind.startswith("Optional["):
        return None if choose.random() < 0.2 else argument(choose, kind.removeprefix("Optional[").removesuffix("]"))
    if kind.startswith("List["):
        inner = kind.removeprefix("List[").removesuffix("]")
        return [argument(choose, inner) for _ in range(3)]
    values = {
        "Tensor": lambda: tensor(choose),
        "bool": lambda: choose.random() < 0.5,
        "int": lambda: choose.choice((0, 1, 1, 2, 3)),
        "SymInt": lambda: choose.choice((0, 1, 1, 2, 3)),
        "float": lambda: choose.choice((0.0, 0.5)),
        "number": lambda: choose.choice((0.0, 1)),
    }
    return values[kind]() if kind in values else None


def overload(name: str) -> OpOverload:
    """`mm` or `mm.out` as an object."""
    base, _, variant = name.partition(".")
    found = getattr(getattr(torch.ops.aten, base), variant or "default")
    assert isinstance(found, OpOverload)
    return found


def arguments(choose: random.Random, func: OpOverload) -> list[Any]:
    """All arguments of a call; every other time tensors are like others, so that conditions on two can be met."""
    given = [argument(choose, str(one.type)) for one in func._schema.arguments]
    tensors = [place for place, value in enumerate(given) if isinstance(value, torch.Tensor)]
    if len(tensors) > 1 and choose.random() < 0.5:
        first, second = choose.sample(tensors, 2)
        like = given[second]
        given[first] = torch.empty_strided(
            like.shape, like.stride(), dtype=choose.choice((like.dtype, torch.float16)), device=given[first].device.type
        ) if like.dtype not in (torch.float64, torch.complex128) else given[first]  # fmt: skip
    return given


class Asked:
    """One overload, and both that can be asked about its calls."""

    def __init__(self, name: str, known: tuple[Hazard, ...]) -> None:
        self.func = overload(name)
        self.name = str(self.func.name())  # type: ignore[no-untyped-call]
        row = next((row for row in (*core_table(), *composite_rows()) if row[0] == self.name), None)
        self.found = KnownFaults(known).of(self.func, self.name, row)

    def native(self, given: list[Any]) -> list[str]:
        """What the native core says of a call."""
        told = native().hazards_of(self.name, tuple(given))
        if self.name in COMPOSITE:
            told += native().hazards_of(COMPOSITE[self.name], tuple(given[:6]))
        return sorted(told)

    def without(self, given: list[Any]) -> list[str]:
        """What is said of it without the native core."""
        return sorted(hazard.id for hazard, _ in (self.found.met_by(given, {}) if self.found is not None else ()))


def test_random_calls(small_limits: tuple[Hazard, ...]) -> None:
    """Both answer alike for each call, and each condition has been met and has not been met."""
    choose = random.Random(0)
    met: dict[str, int] = {}
    try:
        for name in OVERLOADS:
            asked = Asked(name, small_limits)
            for _ in range(CALLS):
                torch.use_deterministic_algorithms(choose.random() < 0.2, warn_only=True)
                given = arguments(choose, asked.func)
                on_native = asked.native(given)
                described = [(one.shape, one.stride(), one.dtype, one.device.type) if isinstance(one, torch.Tensor)
                             else one for one in given]  # fmt: skip
                assert asked.without(given) == on_native, (name, described)
                for identity in on_native:
                    met[identity] = met.get(identity, 0) + 1
    finally:
        torch.use_deterministic_algorithms(False)
    assert set(met) == {hazard.id for hazard in small_limits if hazard.check in CHECKS}
    assert all(0 < count < CALLS * len(OVERLOADS) for count in met.values())


def test_every_check_is_there() -> None:
    """Each condition of the native core has one here, apart from those that no operator meets."""
    of_no_operator = {
        Check.ZERO_DIVISORS,
        Check.EVENT_HANGS,
        Check.EVENT_MAY_HANG,
        Check.THREADS,
        Check.COMPILED_LAYER_NORM,
    }
    assert set(Check) - set(CHECKS) == of_no_operator


def test_kernels_that_a_composite_operator_leaves_for() -> None:
    """On a Mac an LSTM and attention come by as kernels of their own; their faults are those of the operator's rows."""

    def names(name: str) -> set[tuple[str, str]]:
        func = overload(name)
        full = str(func.name())  # type: ignore[no-untyped-call]
        found = KnownFaults(all_hazards()).of(func, full, None)
        return set() if found is None else {(one.hazard.id, one.name) for one in found._met}

    lstm, attention = "aten::lstm.input", "aten::scaled_dot_product_attention"
    assert names("_lstm_mps") == {("MPS631", lstm), ("MPS632", lstm), ("MPS633", lstm)}
    assert names("_scaled_dot_product_attention_math_for_mps") == {
        ("MPS641", attention),
        ("MPS642", attention),
        ("MPS643", "aten::_scaled_dot_product_attention_math_for_mps"),
    }
    assert names("scaled_dot_product_attention") == set()


@pytest.mark.parametrize(
    ("mac", "macos", "identities"),
    [
        ("M1 8GB, macOS 15.0", "15.0.1", {"MPS611", "MPS621", "MPS625", "MPS601"}),
        ("M3 Pro 18GB, macOS 26.4", "26.4", {"MPS621", "MPS601"}),
        (None, "14.7.1", {"MPS625", "MPS601"}),
        (None, "", {"MPS601"}),
    ],
)
def test_the_faults_of_a_real_mac(mac: str | None, macos: str, identities: set[str]) -> None:
    """By its own GPU and macOS; of an unknown one only what all GPUs, or all versions of macOS, have."""
    known = hazards_of(parse_mac(mac) if mac is not None else None, macos, parse_torch_version("2.13.0"))
    asked = {"MPS611", "MPS621", "MPS625", "MPS601"}
    assert {hazard.id for hazard in known} & asked == identities


@pytest.mark.parametrize("outcome", [Outcome.ABORTS, Outcome.WRONG])
def test_a_call_that_may_end_the_process_is_saved_before_it_runs(outcome: Outcome, tmp_path: Path) -> None:
    """The mark of a call that a Mac may not survive is in the file when the call begins, once a line."""
    fault = next(hazard for hazard in all_hazards() if hazard.check is Check.INTEGERS)
    enforce_hazards((replace(fault, outcome=outcome, operators=("exp",)),))
    x = torch.ones(3, dtype=torch.int32, device="mps")
    saved: list[str] = []
    with anymps.record(tmp_path / "run.anymps", source="dispatch") as capture:
        flush = capture.core.save
        capture.core.save = lambda: (saved.append("saved"), flush())
        for _ in range(3):
            x.exp()
    assert saved == (["saved"] if outcome is Outcome.ABORTS else [])
    (found,) = capture.recording.hazards()
    assert (found.operator, found.count) == (f"anymps::hazard.{fault.id} aten::exp", 3)
