"""What findings about waits and launches cost: what a step on the recording's Mac would save without them."""

from __future__ import annotations

import pytest

from anymps import parse_mac
from anymps.cost import Happening, OperatorCall, predict_operator
from anymps.findings import Finding, Story, find
from anymps.findings._costs import FALLBACK, ITEM, LAUNCH
from anymps.findings._prices import cost_without
from anymps.forecast import forecast, with_fused_optimizer, without_fills
from anymps.record import Phase, Recording
from anymps.report._words import limits
from anymps.rules import metal_kernel_since
from timed_steps import MS, Steps


def reading(**meta: object) -> Recording:
    """Five steps: a read in the middle, whose queue is long, and an operator on the CPU at another line."""
    steps = Steps(**meta)
    read, model = steps.line, steps.builder.site("/home/me/project/model.py", 19, "forward", "u = svd(x)")
    for _ in range(5):
        steps.product(20)
        steps.line = read
        steps.item()
        steps.small(40)
        steps.line = model
        steps.fallback(80 * MS)
        steps.end()
    return steps.close()


def found(recording: Recording) -> dict[str, Finding]:
    """The findings by rule, in their order."""
    return {finding.id: finding for finding in find(recording)}


def test_a_wait_costs_what_the_step_would_save() -> None:
    """With the interval of the step, for the finding and in the table of waits alike."""
    recording = reading()
    step = forecast(recording)
    saved = {cost.place.wait.label: 1e9 * cost.seconds for cost in step.waits}
    findings = found(recording)
    for rule, wait in (("MPS201", "item"), ("MPS102", "fallback")):
        low, high = findings[rule].cost_per_step_ns
        assert low == pytest.approx(saved[wait] * step.time.low / step.time.seconds, abs=1)
        assert high == pytest.approx(saved[wait] * step.time.high / step.time.seconds, abs=1)
        (place,) = (candidate for candidate in Story.of(recording).waits if candidate.site == findings[rule].site)
        assert place.cost_per_step_ns == pytest.approx((low, high), abs=1)
    assert saved["fallback"] > 10 * saved["item"]
    assert saved["fallback"] > 39 * MS


def test_a_wait_at_an_unknown_line_has_one_cost() -> None:
    """That of the table: a thread without Python frames waits as any other."""
    steps = Steps()
    steps.line = 0
    for _ in range(6):
        steps.product(10)
        steps.item()
        steps.end()
    recording = steps.close()
    (place,) = Story.of(recording).waits
    assert not place.site.known
    assert found(recording)["MPS201"].cost_per_step_ns == pytest.approx(place.cost_per_step_ns, abs=1)


def test_more_waits_than_a_step_has_cost_no_more_than_all() -> None:
    """A typical step need not have as many as the mean of the run; half of them cost half."""
    recording = reading()
    step = forecast(recording)
    (place,) = (wait.place for wait in step.waits if wait.place.wait.label == "item")
    whole = cost_without(step, [place], 1)
    assert whole is not None
    assert cost_without(step, [place], 7) == whole
    assert cost_without(step, [place], 0.5) == pytest.approx([bound / 2 for bound in whole])
    assert cost_without(step, [place], 0) is None


def test_findings_are_sorted_by_it() -> None:
    """80 ms on the CPU come before a read, whatever the public ranges say."""
    assert [rule for rule in found(reading()) if rule in ("MPS102", "MPS201")] == ["MPS102", "MPS201"]


def test_without_a_prediction_the_public_ranges_stand() -> None:
    """And the report says what its costs are."""
    recording, unknown = reading(), reading(torch_version="")
    findings = found(unknown)
    assert findings["MPS201"].cost_ns == pytest.approx(ITEM.of(5, 20), abs=1)
    assert findings["MPS102"].cost_ns == pytest.approx(FALLBACK.of(5, 5 << 20), abs=1)
    assert limits(Story.of(unknown))[0] == (
        "Times are this machine's, not a Mac's. Costs are ranges from public measurements on Macs, without the cost of "
        "draining a long queue."
    )
    assert limits(Story.of(recording))[0] == (
        "Times are this machine's, except those marked as the M3 Pro 18GB's, which are predicted. The cost of "
        "waits and launches is what the predicted step would save without them; other costs are ranges from public "
        "measurements. "
        "The program's own code was timed here and is scaled to that Mac's CPU."
    )


COUNTER = ("float32[]", "int64[] on cpu")
FACTS: dict[str, object] = {
    "name": "AdamW", "torch": True, "tensors": 20, "on_mps": 20, "dtypes": ["float32"], "fused": ["None"],
    "foreach": ["None"], "differentiable": ["False"],
}  # fmt: skip


def adam(shape: str) -> list[tuple[str, tuple[str, ...]]]:
    """What torch's loop over the parameters calls for one of them."""
    names = ("mul_.Tensor", "lerp_.Scalar", "mul_.Tensor", "addcmul_", "sqrt", "div.Tensor", "add_.Tensor", "addcdiv_")
    return [(f"aten::{name}", (shape,)) for name in names]


def kernels(calls: list[tuple[str, tuple[str, ...]]], gap: float = 0.0) -> list[Happening]:
    """Kernels of an optimizer."""
    return [
        Happening("kernel", OperatorCall(name, inputs), host_code=gap, part=Phase.OPTIMIZER) for name, inputs in calls
    ]


@pytest.mark.parametrize(
    ("name", "calls", "counters", "lists"),
    [
        ("AdamW", [*adam("float32[8]"), *adam("float32[8]")], 2, 4),
        ("Adam", [("aten::add_.Tensor", COUNTER), *adam("float32[8]"), *adam("float32[8]")], 2, 4),
        ("SGD", [("aten::add_.Tensor", ("float32[8]", "float32[8]"))] * 2, 0, 2),
        (
            "SGD",
            [("aten::mul_.Tensor", ("float32[8]",)), *[("aten::add_.Tensor", ("float32[8]", "float32[8]"))] * 2] * 2,
            0,
            3,
        ),
    ],
    ids=["AdamW", "Adam with counters", "SGD", "SGD with momentum"],
)
def test_the_fused_kernel_stands_where_the_optimizer_was(
    name: str, calls: list[tuple[str, tuple[str, ...]]], counters: int, lists: int
) -> None:
    """One call with all lists of tensors, after Adam's counters; what comes before and after stays."""
    before = Happening("kernel", OperatorCall("aten::mm", ()), part=Phase.BACKWARD)
    after = Happening("wait", waits=True)
    found = with_fused_optimizer([before, *kernels(calls, gap=2e-6), after], name)
    assert found is not None
    assert (found[0], found[-1]) == (before, after)
    *counts, kernel = found[1:-1]
    assert [happening.call for happening in counts] == [OperatorCall("aten::add_.Tensor", COUNTER)] * counters
    assert kernel.call == OperatorCall(f"aten::_fused_{name.lower()}_", ("float32[8]",) * 2 * lists)
    assert [happening.host_code for happening in found[1:-1]] == [2e-6] + [0.0] * counters


def test_an_optimizer_that_is_not_known() -> None:
    """Another kind, or one without a parameter to be seen: the public range stands."""
    assert with_fused_optimizer(kernels(adam("float32[8]")), "Adagrad") is None
    assert with_fused_optimizer(kernels([("aten::sqrt", ("float32[8]",))]), "AdamW") is None
    assert with_fused_optimizer([], "SGD") is None


def test_fills_are_left_out_in_a_row() -> None:
    """So many of them, with the code between; a single fill elsewhere stays."""
    fill = Happening("kernel", OperatorCall("aten::zero_", ("float32[8]",)), host_code=1e-6)
    view, other = Happening("view"), Happening("kernel", OperatorCall("aten::relu", ("float32[8]",)))
    assert without_fills([fill, other, fill, view, fill, other], 2) == [fill, other, view, other]
    assert without_fills([fill, other, fill], 2) is None


def training(**meta: object) -> Recording:
    """Five steps that launches bind: fills of 60 gradients, small calls, and AdamW for 20 parameters."""
    steps = Steps(**meta)
    via = "torch/optim/optimizer.py:zero_grad"
    zeroed = steps.builder.site("/home/me/project/train.py", 30, "main", "optimizer.zero_grad(False)", via)
    stepped = steps.builder.site("/home/me/project/train.py", 40, "main", "optimizer.step()")
    for number in range(5):
        if not number:
            steps.builder.note("optimizer", start_ns=0, site=stepped, phase=Phase.OPTIMIZER, **FACTS)
        for _ in range(60):
            steps.entry("aten::zero_", 1000, inputs=("float32[64]",), site=zeroed, phase=Phase.OTHER)
        steps.small(50)
        for name, inputs in adam("float32[64]") * 20:
            outputs = inputs if name in ("aten::sqrt", "aten::div.Tensor") else ()
            steps.entry(name, 1000, inputs=inputs, outputs=outputs, site=stepped, phase=Phase.OPTIMIZER)
        steps.end()
    return steps.close()


def test_launches_cost_what_the_step_would_save() -> None:
    """Fills and an unfused optimizer of a step that launches bind: what their dispatch takes, with the interval."""
    recording = training()
    step = forecast(recording)
    assert step.bound == "launches"
    findings = found(recording)
    # In torch 2.13 fills are kernels of PyTorch's own, as six of AdamW's calls; `addcmul_` and `addcdiv_` are graphs.
    own, graph = (
        predict_operator(OperatorCall(name, ("float32[64]",)), parse_mac("M3 Pro 18GB"), "2.13").host
        for name in ("aten::zero_", "aten::addcmul_")
    )
    kernels = [metal_kernel_since(name.rpartition("::")[2].partition(".")[0].rstrip("_")) for name, _ in adam("")]
    graphs = sum(since is None or since > (2, 13) for since in kernels)
    assert (graphs, len(kernels)) == (2, 8)
    for rule, seconds in (("MPS811", 60 * own), ("MPS812", 20 * (graphs * graph + (8 - graphs) * own) - 21 * own)):
        low, high = findings[rule].cost_per_step_ns
        saved = 1e9 * seconds
        assert low == pytest.approx(saved * step.time.low / step.time.seconds, rel=0.1)
        assert high == pytest.approx(saved * step.time.high / step.time.seconds, rel=0.1)


def test_launches_without_a_prediction() -> None:
    """The public range for each kernel stands."""
    findings = found(training(torch_version=""))
    assert findings["MPS811"].cost_ns == pytest.approx(LAUNCH.of(300), abs=1)
