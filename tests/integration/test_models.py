"""Models that nobody here wrote train and answer on mps as on the CPU, or raise what a Mac raises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from anymps.rules.texts import missing_operator
from integration.models import CASES, OPTIMIZERS, Case, floats_of, loss_of, on_device, train
from processes import ENABLE, run_python

pytestmark = [
    pytest.mark.integration,
    # The libraries' own business.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def require(package: str) -> None:
    """Skips the test without `package`, saying what brings it."""
    if package:
        pytest.importorskip(package, reason=f"{package} is not installed; the `integration` extra brings it")


def by_name(cases: dict[str, Case]) -> pytest.MarkDecorator:
    """Parametrises over models."""
    return pytest.mark.parametrize("case", cases.values(), ids=cases)


# --- training and answering ---


@by_name(CASES)
def test_losses_are_those_of_the_cpu(case: Case) -> None:
    """Three steps on mps give the CPU's losses; all parameters, gradients and buffers stay on mps."""
    require(case.package)
    built = case()
    on_cpu, _ = train(built, "cpu", "adamw")
    on_mps, model = train(built, "mps", "adamw")
    assert on_mps == pytest.approx(on_cpu, rel=1e-4)
    assert on_mps[0] != on_mps[2]
    places = {tensor.device for tensor in [*model.parameters(), *model.buffers()]}
    gradients = {parameter.grad.device for parameter in model.parameters() if parameter.grad is not None}
    assert places == gradients == {torch.device("mps:0")}


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


# --- what has no kernel ---

EVALUATE_MASKED = f"""
{ENABLE}
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
"""


def test_an_encoder_with_a_padding_mask_trains_but_does_not_answer() -> None:
    """In eval mode nn.TransformerEncoder asks whether padding is on the right, which has no MPS kernel."""
    missing = missing_operator("aten::_nested_tensor_from_mask_left_aligned", str(torch.version.git_version))
    assert run_python(EVALUATE_MASKED).lines == ["trained", missing.text]


# --- lower precision ---

HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])


@HALVES
@by_name({name: CASES[name] for name in ("gpt2", "llama", "convnext", "unet2d_condition", "lstm_tagger")})
def test_autocast_trains(case: Case, dtype: torch.dtype) -> None:
    """Under autocast with a gradient scaler the losses are near those in float32, and parameters stay float32."""
    require(case.package)
    built = case()
    exact, _ = train(built, "mps", "sgd")
    model, batch = on_device(built, "mps")
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    scaler = torch.amp.GradScaler("mps", init_scale=64.0, enabled=dtype is torch.float16)  # 2**16 skips steps
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("mps", dtype):
            loss = loss_of(model(**batch))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1e6)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses == pytest.approx(exact, rel=2e-2)
    assert losses != exact
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@HALVES
@by_name({name: CASES[name] for name in ("bert", "llama", "mamba", "vit", "unet2d_condition")})
def test_models_in_half_precision_answer(case: Case, dtype: torch.dtype) -> None:
    """With weights in half precision the loss is near the one in float32."""
    require(case.package)
    built = case()
    model, batch = on_device(built, "mps")
    with torch.no_grad():
        exact = loss_of(model.eval()(**batch)).item()
        halved = {key: value.to(dtype) if is_float(value) else value for key, value in batch.items()}
        output = model.to(dtype)(**halved)
    assert {tensor.dtype for tensor in floats_of(output)} <= {dtype, torch.float32}
    assert loss_of(output).item() == pytest.approx(exact, rel=2e-2)


def is_float(value: Any) -> bool:
    """Whether it is a tensor of floating-point numbers."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


# --- generating ---


GENERATING = {
    "greedy": {},
    "beams": {"num_beams": 3, "no_repeat_ngram_size": 2},
    "static cache": {"cache_implementation": "static", "disable_compile": True},
}


@pytest.mark.parametrize(
    ("name", "method"),
    # Mamba has a state in place of a cache of keys, which knows neither beams nor a fixed size.
    [(name, method) for name in ("gpt2", "llama", "t5") for method in GENERATING] + [("mamba", "greedy")],
)
def test_generated_tokens_are_those_of_the_cpu(name: str, method: str) -> None:
    """generate() without sampling chooses the same tokens, with beams and with a cache of fixed size."""
    require("transformers")
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, **GENERATING[method]}
    model, batch = CASES[name]()
    prompt = batch["input_ids"]
    chosen = []
    for device in ("cpu", "mps"):
        model.eval().to(device)
        chosen.append(model.generate(prompt.to(device), **options))
    assert chosen[1].device == torch.device("mps:0")
    assert torch.equal(chosen[0], chosen[1].cpu())


# --- pipelines ---

SCHEDULERS = (
    "DDIMScheduler",
    "DPMSolverMultistepScheduler",
    "EulerAncestralDiscreteScheduler",
    "EulerDiscreteScheduler",
    "HeunDiscreteScheduler",
    "LMSDiscreteScheduler",
    "UniPCMultistepScheduler",
)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_text_to_image_pipeline_draws_what_the_cpu_draws(scheduler: str) -> None:
    """With noise from a CPU generator, as diffusers advises for mps, three steps give the CPU's picture."""
    diffusers = pytest.importorskip("diffusers", reason="the `integration` extra brings diffusers")
    unet, autoencoder = (CASES[name]()[0].eval() for name in ("unet2d_condition", "autoencoder"))
    prompt, nothing = torch.randn(1, 5, 16), torch.zeros(1, 5, 16)
    schedule = getattr(diffusers, scheduler)()
    parts = (autoencoder, None, None, unet, schedule, None, None)
    pipeline = diffusers.StableDiffusionPipeline(*parts, requires_safety_checker=False)
    pipeline.set_progress_bar_config(disable=True)
    pictures = []
    for device in ("cpu", "mps"):
        pipeline.to(device)
        drawn = pipeline(
            prompt_embeds=prompt.to(device),
            negative_prompt_embeds=nothing.to(device),
            num_inference_steps=3,
            generator=torch.Generator().manual_seed(5),
            height=16,
            width=16,
            output_type="pt",
        ).images
        assert drawn.device.type == device
        pictures.append(drawn.cpu())
    torch.testing.assert_close(pictures[1], pictures[0], rtol=1e-3, atol=1e-4)


# --- saving and loading ---


def test_weights_survive_safetensors(tmp_path: Path) -> None:
    """save_pretrained from mps, then from_pretrained straight to mps, through a device map, and in half precision."""
    require("transformers")
    require("safetensors")
    require("accelerate")  # transformers needs it for device_map
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM

    model, _ = on_device(CASES["llama"](), "mps")
    model.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"]
    expected = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
    for options in ({"device_map": "mps"}, {"device_map": "auto"}, {"device_map": {"": "mps"}, "dtype": torch.float16}):
        copy = AutoModelForCausalLM.from_pretrained(tmp_path, **options)
        assert copy.device == torch.device("mps:0")
        for name, tensor in copy.state_dict().items():
            assert torch.equal(tensor.cpu(), expected[name].to(tensor.dtype))
    tensors = load_file(tmp_path / "model.safetensors", device="mps")
    assert {tensor.device for tensor in tensors.values()} == {torch.device("mps:0")}
    save_file(tensors, tmp_path / "again.safetensors")
    again = load_file(tmp_path / "again.safetensors")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in again.items())
