"""Rules about optimizers and gradients: fused, foreach, scalers, filled with zeros, clipped."""

from __future__ import annotations

import pytest

from anymps.findings import find
from anymps.forecast import forecast
from anymps.record import Phase, Recording, RecordingBuilder, RoundKind, Wait
from rule_loops import LIBRARY, META, OPTIMIZER, Extra, ids, loop, only
from timed_steps import Steps


def zeroing(gradients: int, via: str = "torch/optim/optimizer.py:zero_grad") -> Extra:
    """Fills of gradients in every step."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        site = builder.site("train.py", 5, "main", "optimizer.zero_grad(set_to_none=False)", via)
        for number in range(gradients):
            builder.entry("aten::zero_", start_ns=time + number, site=site, phase=Phase.OTHER)

    return extra


def test_zero_filled_gradients() -> None:
    """MPS811: fills by zero_grad count from 50 a step on; fills of the program's own never do."""
    finding = only(loop(zeroing(50)))
    assert (finding.id, finding.count, finding.per_step) == ("MPS811", 500, 50.0)
    assert finding.what == "`zero_grad(set_to_none=False)` filled 50 gradients with zeros a step."
    assert finding.cost_ns == (500 * 1_200, 500 * 20_000)
    assert ids(loop(zeroing(49))) == []
    assert ids(loop(zeroing(50, via=""))) == []


def stepping(
    kernels: int, *, count: int = 1, file: str = "train.py", made: tuple[str, str] | None = None, **facts: object
) -> Extra:
    """`count` optimizers, whose steps run `kernels` operators in all; `made`: by which file and line."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        for number in range(count if step == 0 else 0):
            site = builder.site(file, 30 + number, "main", "optimizer.step()")
            other = builder.site(made[0], 7, "main", made[1]) if made is not None else 0
            known = {**OPTIMIZER, **facts}
            builder.note("optimizer", start_ns=time, site=site, other=other, phase=Phase.OPTIMIZER, **known)
        for number in range(kernels):
            builder.entry("aten::addcdiv_", start_ns=time + number, phase=Phase.OPTIMIZER)

    return extra


@pytest.mark.parametrize(("version", "expected"), [("2.12.0", []), ("2.13.0", ["MPS812"]), ("", [])])
def test_unfused_optimizer_under_a_scaler(version: str, expected: list[str]) -> None:
    """MPS812 is silent where the fused kernel would ignore the GradScaler (MPS691), or where that is not known."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        stepping(140)(builder, step, time)
        if step == 0:
            builder.note("grad_scaler", start_ns=time, site=builder.site("train.py", 3, "main", "scaler"), device="mps")

    assert ids(loop(extra, meta={**META, "torch_version": version})) == expected


FUSED = "Pass `fused=True` to the optimizer, which then checks that on the device: `AdamW(..., fused=True)`."
EMULATED = "float32 needs no GradScaler; nor does bfloat16, but this chip emulates it (MPS305)."
OTHER_DTYPE = "Train in bfloat16 or float32, which need no GradScaler."


@pytest.mark.parametrize(
    ("meta", "facts", "fix"),
    [
        ({}, {}, FUSED),
        ({}, {"torch": False, "name": "Lion"}, OTHER_DTYPE),
        ({"torch_version": "2.12.0"}, {}, OTHER_DTYPE),
        ({"torch_version": "2.12.0", "mac": "M2 16GB"}, {}, EMULATED),
        ({"mac": ""}, {"name": "Adagrad"}, OTHER_DTYPE),
    ],
)
def test_the_read_of_a_scaler(meta: dict[str, object], facts: dict[str, object], fix: str) -> None:
    """MPS201: a fused optimizer needs no read where it heeds the scaler; else another dtype that the chip has."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        stepping(0, **facts)(builder, step, time)
        site = builder.site("train.py", 30, "main", "scaler.step(optimizer)", "torch/amp/grad_scaler.py:<genexpr>")
        builder.entry("aten::_local_scalar_dense", start_ns=time + 1, phase=Phase.OPTIMIZER, site=site, wait=Wait.ITEM)

    finding = only(loop(extra, meta={**META, **meta}))
    assert (finding.id, finding.what) == ("MPS201", "GradScaler read whether a gradient was infinite once a step.")
    assert finding.fix == fix


@pytest.mark.parametrize(
    ("source", "facts", "fix"),
    [
        (
            "optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)", {},
            "Write `torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)`.",
        ),
        (
            "return {'optimizer': AdamW(self.parameters(), foreach=True, fused=None)}", {"foreach": ["True"]},
            "Write `AdamW(self.parameters(), fused=True)`, in place of `foreach=True`.",
        ),
        (
            "optimizer = torch.optim.AdamW(groups, lr=1e-3, **extra_args)", {},
            "Put `fused=True` into `extra_args`.",
        ),
        ("optimizer = torch.optim.AdamW(", {}, "Pass `fused=True` to the optimizer."),
        ("optimizer = KINDS[name](net.parameters())", {}, "Pass `fused=True` to the optimizer."),
    ],
)  # fmt: skip
def test_unfused_optimizer_where_it_is_made(source: str, facts: dict[str, object], fix: str) -> None:
    """MPS812 stands at the line to change, and writes it anew where that holds the whole call."""
    finding = only(loop(stepping(140, made=("model.py", source), **facts)))
    assert (finding.site.file, finding.site.line, finding.fix) == ("model.py", 7, fix)
    assert [site.line for site in finding.related_sites] == [30]


def test_unfused_optimizer_made_in_a_package() -> None:
    """MPS812 then stands at the step, and is silent where that is in a package, too."""
    made = (LIBRARY, "self.optimizer = AdamW(parameters)")
    assert only(loop(stepping(140, made=made))).site.line == 30
    assert ids(loop(stepping(140, made=made, file=LIBRARY))) == []


def test_foreach_optimizer() -> None:
    """MPS812: `foreach=True` is named, as it brings nothing on mps."""
    finding = only(loop(stepping(140, foreach=["True"])))
    assert finding.what == (
        "`AdamW`, with `foreach=True`, ran 140 kernels a step for 10 parameters, 99 % of all kernels of the step."
    )
    assert finding.fix == "Pass `fused=True` to the optimizer, in place of `foreach=True`."


@pytest.mark.parametrize(
    "extra",
    [
        stepping(49),
        stepping(140, fused=["True"]),
        stepping(140, name="RMSprop"),
        stepping(140, torch=False),
        stepping(140, on_mps=9),
        stepping(140, dtypes=["complex64"]),
        stepping(140, differentiable=["True"]),
        stepping(140, file=LIBRARY),
        stepping(140, count=2),
    ],
    ids=["few", "fused", "no kernel", "own class", "on the CPU", "complex", "differentiable", "library", "whose"],
)
def test_optimizers_that_are_as_they_should_be(extra: Extra) -> None:
    """MPS812 is silent where the fused kernel is used, is not there, or would save little."""
    assert ids(loop(extra)) == []


def test_two_optimizers() -> None:
    """MPS812 tells each by the line that steps it, and is silent of those that share one."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        lines = {"optimizer_g.step()": (30, 112), "optimizer_d.step()": (40, 63), "other.step()": (50, 25)}
        for source, (line, kernels) in lines.items():
            site = builder.site("train.py", line, "main", source)
            for count in range((step == 0) * (2 if line == 50 else 1)):
                builder.note("optimizer", start_ns=time, site=site, phase=Phase.OPTIMIZER, **OPTIMIZER, number=count)
            for number in range(kernels):
                builder.entry("aten::addcdiv_", start_ns=time + line * 10 + number, site=site, phase=Phase.OPTIMIZER)

    found = list(find(loop(extra)))
    assert [(finding.id, finding.site.line) for finding in found] == [("MPS812", 30), ("MPS812", 40)]
    assert [finding.what for finding in found] == [
        "`AdamW` ran 112 kernels a step for 10 parameters, 55 % of all kernels of the step.",
        "`AdamW` ran 63 kernels a step for 10 parameters, 31 % of all kernels of the step.",
    ]


def test_an_optimizer_that_steps_several_times_a_step() -> None:
    """MPS812 tells the kernels of one update, and how many there are for each of the other optimizer."""
    critic, generator = ("optimizer_d.step()", 30, 70), ("optimizer_g.step()", 40, 60)

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        for source, line, _ in (critic, generator) if step == 0 else ():
            site = builder.site("train.py", line, "main", source)
            builder.note("optimizer", start_ns=time, site=site, phase=Phase.OPTIMIZER, **OPTIMIZER)
        for source, line, kernels in (*[critic] * 5, generator):
            site = builder.site("train.py", line, "main", source)
            for number in range(kernels):
                builder.entry("aten::addcdiv_", start_ns=time + number, site=site, phase=Phase.OPTIMIZER)
            time += 100
            builder.round(RoundKind.OPTIMIZER, start_ns=time - 99, end_ns=time - 1, site=site, key=line)

    found = list(find(loop(extra)))
    assert [(finding.site.line, finding.count, finding.per_step) for finding in found] == [(30, 50, 5.0), (40, 10, 1.0)]
    assert [finding.what for finding in found] == [
        "`AdamW` ran 70 kernels 5 times a step for 10 parameters, 85 % of all kernels of the step.",
        "`AdamW` ran 60 kernels a step for 10 parameters, 15 % of all kernels of the step.",
    ]


@pytest.mark.parametrize(("forward", "expected"), [(558, ["MPS812"]), (560, [])])
def test_unfused_optimizer_of_a_long_step(forward: int, expected: list[str]) -> None:
    """MPS812 is silent where the optimizer's kernels are less than a fifth of the step's: 140 of 700."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        stepping(140)(builder, step, time)
        for number in range(forward):
            builder.entry("aten::gelu", start_ns=time + 200 + number, phase=Phase.FORWARD)

    assert ids(loop(extra)) == expected


def test_unfused_optimizer_needs_a_loop() -> None:
    """MPS812 needs three steps."""
    assert ids(loop(stepping(140), steps=2)) == []


def clipping(torch: str, weights: str = "float32[4096, 1024]") -> Recording:
    """Five steps with the norms of two gradients at line 36 and of a small tensor at line 12."""
    steps = Steps(torch_version=torch)
    small = steps.builder.site("/home/me/project/train.py", 12, "main", "norm = w.norm()")
    for _ in range(5):
        steps.product(4)
        for line, tensor in ((steps.line, weights), (steps.line, weights), (small, "float32[8]")):
            steps.entry("aten::linalg_vector_norm", 1000, inputs=(tensor,), outputs=("float32[]",), site=line)
        steps.end()
    return steps.close()


@pytest.mark.parametrize(
    ("torch", "weights", "expected"),
    [
        ("2.11.0", "float32[4096, 1024]", []),
        ("2.12.0", "float32[4096, 1024]", ["MPS813"]),
        ("2.14.1", "float32[4096, 1024]", ["MPS813"]),
        ("2.15.0", "float32[4096, 1024]", []),
        ("2.13.0", "float32[64]", []),
    ],
)
def test_norms_on_one_core(torch: str, weights: str, expected: list[str]) -> None:
    """MPS813 from a twentieth of the predicted step on, in the releases without another kernel."""
    assert ids(clipping(torch, weights)) == expected


def test_what_norms_on_one_core_cost() -> None:
    """MPS813: what the step would save with sums in their place."""
    recording = clipping("2.13.0")
    finding = only(recording)
    saved = forecast(recording).time.seconds - forecast(clipping("2.15.0")).time.seconds
    low, high = finding.cost_per_step_ns
    assert low < 1e9 * saved < high
    assert 2 * 1.9e-9 * 4096 * 1024 == pytest.approx(saved, rel=0.2)
    assert (finding.site.line, [site.line for site in finding.related_sites], finding.per_step) == (36, [12], 2.0)
    assert finding.what.endswith("of the predicted step.")
