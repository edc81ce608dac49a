"""Models that nobody here wrote train and answer on mps as on the CPU, or raise what a Mac raises."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from integration.models import CASES, LACKING, OPTIMIZERS, Case, Lacking, floats_of, loss_of, on_device, train
from processes import ENABLE, run_python

pytestmark = [
    pytest.mark.integration,
    # The libraries' own business.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


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


# --- what needs the CPU fallback ---

FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
# torch 2.11 to 2.15, aten/src/ATen/mps/MPSFallback.mm
MISSING = (
    "The operator '{operator}' is not currently implemented for the MPS device. If you want this op to be considered "
    "for addition please comment on https://github.com/pytorch/pytorch/issues/141287 and mention use-case, that "
    "resulted in missing op as well as commit hash {commit}. As a temporary fix, you can set the environment variable "
    "`PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback for this op. WARNING: this will be slower than "
    "running natively on MPS."
)
WARNING = (
    "The operator '{operator}' is not currently supported on the MPS backend and will fall back to run on the CPU. "
    "This may have performance implications."
)

ENABLED = f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n{ENABLE}torch.set_num_threads(1)\n"
TRAIN_LACKING = """
import json, warnings
from integration.models import LACKING, train
outcomes = {}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for name in names:
        try:
            losses, _ = train(LACKING[name].case(), "mps", "adamw")
            outcomes[name] = {"losses": losses}
        except NotImplementedError as error:
            outcomes[name] = {"error": str(error)}
texts = [str(warning.message) for warning in caught if " on the MPS backend " in str(warning.message)]
print(json.dumps({"outcomes": outcomes, "warnings": texts}))
"""
EVALUATE_MASKED = """
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


class Process(NamedTuple):
    """What came of the models in `LACKING` in a process with or without the variable, by name, and its warnings."""

    fallback: bool
    outcomes: dict[str, dict[str, Any]]
    warnings: list[str]


def has_kernel(lacking: Lacking) -> bool:
    """Whether the installed torch has an MPS kernel for the operator."""
    return lacking.native_since is not None and lacking.native_since <= RELEASE


@pytest.fixture(scope="module", params=[False, True], ids=["without fallback", "with fallback"])
def process(request: pytest.FixtureRequest) -> Process:
    """The variable is read when torch is loaded, hence a process for each of its values."""
    names = [name for name, lacking in LACKING.items() if not lacking.case.package or find_spec(lacking.case.package)]
    result = run_python(f"names = {names}\n{ENABLED}{TRAIN_LACKING}", {FALLBACK: "1"} if request.param else {})
    return Process(request.param, **json.loads(result.lines[-1]))


@pytest.mark.parametrize("lacking", LACKING.values(), ids=LACKING)
def test_models_that_need_the_cpu_fallback(lacking: Lacking, process: Process) -> None:
    """Without the variable the missing operator raises MPS's own text; with it the losses are the CPU's."""
    require(lacking.case.package)
    outcome = process.outcomes[lacking.case.name]
    if process.fallback or has_kernel(lacking):
        losses, _ = train(lacking.case(), "cpu", "adamw")
        assert outcome == {"losses": pytest.approx(losses, rel=1e-4)}
    else:
        assert outcome == {"error": MISSING.format(operator=lacking.operator, commit=torch.version.git_version)}


def test_only_the_first_fallback_is_named(process: Process) -> None:
    """One warning a process, whatever other operators fall back after the first; none without the variable."""
    first = next(name for name in process.outcomes if not has_kernel(LACKING[name]))
    expected = [WARNING.format(operator=LACKING[first].operator)] if process.fallback else []
    # On a Mac torch adds where in its source the warning stands.
    assert [text.partition(" (Triggered internally at ")[0] for text in process.warnings] == expected


def test_an_encoder_with_a_padding_mask_trains_but_does_not_answer() -> None:
    """In eval mode nn.TransformerEncoder asks whether padding is on the right, which has no MPS kernel."""
    operator = "aten::_nested_tensor_from_mask_left_aligned"
    missing = MISSING.format(operator=operator, commit=torch.version.git_version)
    assert run_python(ENABLED + EVALUATE_MASKED).lines == ["trained", missing]


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


# --- memory against time ---


@pytest.mark.parametrize("reentrant", [False, True], ids=["saved tensors hooks", "reentrant"])
@by_name({name: CASES[name] for name in ("gpt2", "llama", "vit")})
def test_gradient_checkpointing_changes_no_loss(case: Case, reentrant: bool) -> None:
    """gradient_checkpointing_enable() computes activations again in backward; the losses stay."""
    require(case.package)
    from transformers.modeling_layers import GradientCheckpointingLayer

    model, batch = case()
    forwards = []
    layer = next(module for module in model.modules() if isinstance(module, GradientCheckpointingLayer))
    next(layer.children()).register_forward_pre_hook(lambda *_: forwards.append(1))
    plain, _ = train((model, batch), "mps", "sgd")
    assert len(forwards) == 3
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if reentrant:
        model.enable_input_require_grads()
    checkpointed, _ = train((model, batch), "mps", "sgd")
    assert len(forwards) == 3 + 2 * 3
    assert checkpointed == pytest.approx(plain, rel=1e-6)


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


def test_sampling_follows_the_seed() -> None:
    """generate() with sampling draws from the mps generator: the same seed gives the same tokens again."""
    require("transformers")
    model, batch = CASES["gpt2"]()
    model.eval().to("mps")
    prompt = batch["input_ids"].to("mps")

    def sample() -> torch.Tensor:
        options = {"do_sample": True, "top_k": 20, "top_p": 0.9, "temperature": 0.7, "repetition_penalty": 1.1}
        return model.generate(prompt, max_new_tokens=8, pad_token_id=0, **options)

    torch.manual_seed(3)
    first, second = sample(), sample()
    torch.mps.manual_seed(3)
    assert torch.equal(first, sample())
    assert not torch.equal(first, second)


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
