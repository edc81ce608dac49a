"""Models that nobody here wrote train and answer on mps as on the CPU, or raise what a Mac raises."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from integration.models import CASES, OPTIMIZERS, Case, floats_of, loss_of, on_device, train
from processes import run_python
from torch import Tensor, nn

from anymps.rules import missing_operator

pytestmark = [
    pytest.mark.integration,
    # The libraries' own business.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
TESTS = str(Path(__file__).parents[1])


def require(package: str) -> None:
    """Skips the test without `package`, saying what brings it."""
    if package:
        pytest.importorskip(package, reason=f"{package} is not installed; the `integration` extra brings it")


def by_name(cases: dict[str, Case]) -> pytest.MarkDecorator:
    """Parametrises over models."""
    return pytest.mark.parametrize("case", cases.values(), ids=cases)


# --- training and answering ---


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@by_name(CASES)
def test_losses_are_those_of_the_cpu(case: Case, optimizer: str) -> None:
    """Three steps on mps give the CPU's losses; all parameters, gradients and buffers stay on mps."""
    require(case.package)
    built = case()
    on_cpu, _ = train(built, "cpu", optimizer)
    on_mps, model = train(built, "mps", optimizer)
    assert on_mps == pytest.approx(on_cpu, rel=1e-4)
    assert on_mps[0] != on_mps[2]
    places = {tensor.device for tensor in [*model.parameters(), *model.buffers()]}
    gradients = {parameter.grad.device for parameter in model.parameters() if parameter.grad is not None}
    assert places == gradients == {torch.device("mps:0")}


@by_name(CASES)
def test_gradients_are_those_of_the_cpu(case: Case) -> None:
    """After one backward the same parameters have a gradient, and each is the CPU's."""
    require(case.package)
    built = case()
    gradients = []
    for device in ("cpu", "mps"):
        model, batch = on_device(built, device)
        loss_of(model(**batch)).backward()
        gradients.append({name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None})
    cpu, mps = gradients
    assert cpu.keys() == mps.keys()
    assert cpu
    for name in cpu:
        torch.testing.assert_close(mps[name], cpu[name], rtol=1e-3, atol=1e-5, msg=lambda text: f"{name}: {text}")


@by_name(CASES)
def test_answers_are_those_of_the_cpu(case: Case) -> None:
    """In eval mode without gradients, where attention takes another kernel, every output is the CPU's."""
    require(case.package)
    built = case()
    outputs = []
    for device in ("cpu", "mps"):
        model, batch = on_device(built, device)
        with torch.no_grad():
            outputs.append(floats_of(model.eval()(**batch)))
    cpu, mps = outputs
    assert len(cpu) == len(mps) > 0
    for expected, actual in zip(cpu, mps, strict=True):
        assert actual.device == torch.device("mps:0")
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-5)


# --- what needs the CPU fallback ---

TRAIN_LACKING = f"""
import json, warnings
import sys; sys.path.insert(0, {TESTS!r})
from processes import MAC
import torch, anymps
anymps.enable(MAC)
from integration.models import LACKING, train
torch.set_num_threads(1)
outcomes = {{}}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for name in NAMES:
        try:
            losses, _ = train(LACKING[name].case(), "mps", "adamw")
            outcomes[name] = {{"losses": losses}}
        except NotImplementedError as error:
            outcomes[name] = {{"error": str(error)}}
texts = [str(warning.message) for warning in caught if "on the MPS backend" in str(warning.message)]
print(json.dumps({{"outcomes": outcomes, "warnings": texts}}))
"""


class Outcome(NamedTuple):
    """What came of the models in `LACKING`, by name, and the backend's warnings of that process."""

    outcomes: dict[str, dict[str, Any]]
    warnings: list[str]


@pytest.fixture(scope="module", params=["without fallback", "with fallback"])
def process(request: pytest.FixtureRequest) -> tuple[bool, Outcome]:
    """A process that trained all models of `LACKING` on mps; the variable is read when torch is loaded."""
    names = [name for name, lacking in LACKING.items() if not lacking.case.package or find_spec(lacking.case.package)]
    fallback = request.param == "with fallback"
    result = run_python(f"NAMES = {names}\n{TRAIN_LACKING}", {FALLBACK: "1"} if fallback else {})
    return fallback, Outcome(**json.loads(result.lines[-1]))


@pytest.mark.parametrize("lacking", LACKING.values(), ids=LACKING)
def test_models_that_need_the_cpu_fallback(lacking: Lacking, process: tuple[bool, Outcome]) -> None:
    """Without the variable the missing operator raises MPS's own text; with it the losses are the CPU's."""
    require(lacking.case.package)
    fallback, (outcomes, _) = process
    outcome = outcomes[lacking.case.name]
    if fallback or (lacking.native_since is not None and lacking.native_since <= RELEASE):
        losses, _ = train(lacking.case(), "cpu", "adamw")
        assert outcome == {"losses": pytest.approx(losses, rel=1e-4)}
    else:
        assert outcome == {"error": MISSING.format(operator=lacking.operator, commit=torch.version.git_version)}


def test_only_the_first_fallback_is_named(process: tuple[bool, Outcome]) -> None:
    """One warning a process, whatever operators fall back after the first one; none without the variable."""
    fallback, (outcomes, warnings) = process
    falling = [LACKING[name] for name in outcomes if LACKING[name].native_since is None or LACKING[name].native_since > RELEASE]
    expected = [WARNING.format(operator=falling[0].operator)] if fallback else []
    assert [text.partition(" (Triggered internally at ")[0] for text in warnings] == expected


def test_an_encoder_with_a_padding_mask_trains_but_does_not_answer() -> None:
    """In eval mode nn.TransformerEncoder asks an operator without an MPS kernel whether the mask is padding."""
    result = run_python(
        """
        from processes import ENABLE
        exec(ENABLE)
        from torch import nn
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 1).to("mps")
        source = torch.randn(2, 3, 8, device="mps")
        mask = torch.tensor([[False, False, False], [False, False, True]], device="mps")
        encoder(source, src_key_padding_mask=mask).sum().backward()
        print("trained")
        try:
            encoder.eval()(source, src_key_padding_mask=mask)
        except NotImplementedError as error:
            print(error)
        """,
        {"PYTHONPATH": os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")])},
    )
    operator = "aten::_nested_tensor_from_mask_left_aligned"
    assert result.lines == ["trained", MISSING.format(operator=operator, commit=torch.version.git_version)]
