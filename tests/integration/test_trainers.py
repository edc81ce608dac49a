"""The trainers that people use, unedited, on mps: accelerate, Lightning, transformers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from integration.models import CASES, OPTIMIZERS, loss_of, on_device, tokens
from processes import MAC, run_python

pytestmark = [
    pytest.mark.integration,
    # The libraries' own business.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*"),
    # Every release says so, whatever the loader is asked for (torch/utils/data/dataloader.py).
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but not supported on MPS now:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .*dataloader.* does not have many workers"),
    pytest.mark.filterwarnings("ignore:GPU available but not used"),
]

DEVICES = ("cpu", "mps")
Rows = list[dict[str, torch.Tensor]]
ROWS = 8


def require(package: str) -> Any:
    """The package; the test is skipped without it."""
    return pytest.importorskip(package, reason=f"{package} is not installed; the `integration` extra brings it")


@pytest.fixture
def texts() -> Rows:
    """Texts of 12 tokens that a language model is to continue, on the CPU as a data set keeps them."""
    return [{"input_ids": row, "labels": row} for row in tokens(ROWS, 12)]


def gpt2() -> Any:
    """The language model that the trainers train, on the CPU."""
    require("transformers")
    return CASES["gpt2"]()[0]


# --- optimizers ---


@pytest.mark.parametrize("name", ["Adafactor", "LBFGS", "Muon"])
def test_optimizers_with_needs_of_their_own(name: str) -> None:
    """Three steps of each give the CPU's losses: matrices alone, a closure that is called again."""
    losses: dict[str, list[float]] = {}
    for device in DEVICES:
        model, batch = on_device(CASES["lstm_tagger"](), device)
        parameters = [weight for weight in model.parameters() if name != "Muon" or weight.dim() == 2]
        optimizer = getattr(torch.optim, name)(parameters, lr=1e-2)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()  # noqa: B023
            loss = loss_of(model(**batch))  # noqa: B023
            loss.backward()
            return loss

        losses[device] = [optimizer.step(closure).item() for _ in range(3)]
    assert losses["mps"] == pytest.approx(losses["cpu"], rel=1e-4)
    assert losses["mps"][0] != losses["mps"][2]


# --- accelerate ---


@pytest.fixture
def accelerate() -> Iterator[Any]:
    """The package, with its process-wide state put away afterwards."""
    package = require("accelerate")
    yield package
    package.state.AcceleratorState._reset_state(True)


def accelerated(accelerate: Any, texts: Rows, folder: Path, **options: Any) -> list[float]:
    """The losses of an accelerate loop with accumulation and clipping, whose state is saved and loaded at the end."""
    accelerate.state.AcceleratorState._reset_state(True)
    accelerator = accelerate.Accelerator(gradient_accumulation_steps=2, **options)
    assert accelerator.device.type == ("cpu" if options.get("cpu") else "mps")
    network = gpt2()
    stepper = OPTIMIZERS["adamw"](network.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(stepper, 0.9)
    parts = accelerator.prepare(network, stepper, DataLoader(texts, batch_size=2), schedule)
    model, optimizer, loader, schedule = parts
    losses = []
    for batch in loader:
        with accelerator.accumulate(model):
            assert batch["input_ids"].device.type == accelerator.device.type
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss).mean().item())
    trained = [weight.detach().clone() for weight in model.parameters()]
    accelerator.save_state(str(folder))
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    accelerator.load_state(str(folder))
    assert all(torch.equal(weight, kept) for weight, kept in zip(model.parameters(), trained, strict=True))
    return losses


def test_accelerate_loop(accelerate: Any, texts: Rows, tmp_path: Path) -> None:
    """Accelerator() chooses mps by itself, and its losses are those of Accelerator(cpu=True)."""
    on_cpu = accelerated(accelerate, texts, tmp_path / "cpu", cpu=True)
    on_mps = accelerated(accelerate, texts, tmp_path / "mps")
    assert on_mps == pytest.approx(on_cpu, rel=1e-4)


def test_accelerate_finds_the_batch_that_fits(accelerate: Any, virtual_device: torch.device) -> None:
    """find_executable_batch_size knows MPS's out-of-memory text and stops at the first batch below the limit."""
    row = 64 * 2**20
    attempts = []

    @accelerate.utils.find_executable_batch_size(starting_batch_size=24)  # type: ignore[untyped-decorator]
    def allocate(size: int) -> None:
        attempts.append(size)
        torch.empty(size, row, dtype=torch.uint8, device="mps")

    torch.mps.empty_cache()
    taken = torch.mps.driver_allocated_memory()
    try:
        torch.mps.set_per_process_memory_fraction((taken + 16.5 * row) / torch.mps.recommended_max_memory())
        allocate()
    finally:
        torch.mps.set_per_process_memory_fraction(1.7)  # the default
    assert attempts == [24, 21, 18, 16]


# --- Lightning ---


def lightning_losses(lightning: Any, texts: Rows, folder: Path, **options: Any) -> list[float]:
    """The losses of four steps of a Lightning Trainer with validation, clipping and a checkpoint."""

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = gpt2()
            self.losses: list[float] = []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = self.network(**batch).loss
            self.log("train", loss, prog_bar=True)
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("validation", self.network(**batch).loss)

        def configure_optimizers(self) -> Any:
            optimizer = OPTIMIZERS["adamw"](self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    module = Module()
    loader = DataLoader(texts, batch_size=2)
    trainer = lightning.Trainer(
        devices=1,
        max_epochs=1,
        gradient_clip_val=1.0,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
        **options,
    )
    trainer.fit(module, loader, loader)
    assert trainer.global_step == 4
    assert torch.isfinite(trainer.callback_metrics["validation"])
    trainer.save_checkpoint(folder / "model.ckpt")
    again = Module.load_from_checkpoint(folder / "model.ckpt", map_location="mps", weights_only=True)
    assert again.device == torch.device("mps:0")
    for weight, kept in zip(again.parameters(), module.parameters(), strict=True):
        assert torch.equal(weight.cpu(), kept.cpu())
    return module.losses


@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
def test_lightning_trainer(package: str, texts: Rows, tmp_path: Path) -> None:
    """Trainer(accelerator="mps") and the automatic choice train on mps, with the losses of the CPU."""
    lightning = require(package)
    on_cpu = lightning_losses(lightning, texts, tmp_path, accelerator="cpu")
    for accelerator in ("mps", "auto"):
        assert lightning.Trainer(accelerator=accelerator, logger=False).strategy.root_device.type == "mps"
        on_mps = lightning_losses(lightning, texts, tmp_path, accelerator=accelerator)
        assert on_mps == pytest.approx(on_cpu, rel=1e-4)


ASKS = {
    "transformers": """
        import torch, accelerate, transformers
        from transformers.integrations import sdpa_attention
        def answers():
            return transformers.utils.is_torch_mps_available(), sdpa_attention._is_torch_mps_available
        def devices():
            return transformers.TrainingArguments("nowhere", report_to=[]).device, accelerate.Accelerator().device
    """,
    "lightning": """
        import torch, lightning.pytorch, pytorch_lightning
        packages = (lightning.pytorch, pytorch_lightning)
        def answers():
            return tuple(package.accelerators.MPSAccelerator.is_available() for package in packages)
        def devices():
            return tuple(package.Trainer(logger=False).strategy.root_device for package in packages)
    """,
}
ASK_ENABLE_ASK = f"""
print(*answers())
import anymps
anymps.enable({MAC!r})
print(*answers())
print(*(device.type for device in devices()))
"""


@pytest.mark.parametrize("package", ASKS)
def test_libraries_may_ask_before_the_device_is_enabled(package: str, virtual_device: torch.device) -> None:
    """Libraries that found no mps when they were imported, and remember it, train on it after enable()."""
    require(package)
    require("accelerate" if package == "transformers" else "pytorch_lightning")
    code = textwrap.dedent(ASKS[package]) + ASK_ENABLE_ASK
    assert run_python(code).lines == ["False False", "True True", "mps mps"]


# --- the transformers Trainer ---


def trainer_losses(texts: Rows, folder: Path, **options: Any) -> list[float]:
    """The losses of four steps of the Trainer with accumulation, and of two evaluations."""
    transformers = require("transformers")
    require("accelerate")
    defaults: dict[str, Any] = {
        "max_steps": 4,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_steps": 2,
        "report_to": [],
        "disable_tqdm": True,
        "learning_rate": 1e-3,
    }
    resume = options.pop("resume", None)
    arguments = transformers.TrainingArguments(str(folder), **{**defaults, **options})
    assert arguments.device.type == ("cpu" if options.get("use_cpu") else "mps")
    trainer = transformers.Trainer(gpt2(), arguments, train_dataset=texts, eval_dataset=texts)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    assert trainer.model.device.type == arguments.device.type
    history = trainer.state.log_history
    return [entry[key] for key in ("loss", "eval_loss") for entry in history if key in entry]


def test_transformers_trainer(texts: Rows, tmp_path: Path) -> None:
    """The Trainer chooses mps by itself; losses, evaluations and a resumed run are those of the CPU."""
    on_cpu = trainer_losses(texts, tmp_path / "cpu", use_cpu=True)
    on_mps = trainer_losses(texts, tmp_path / "mps")
    assert len(on_cpu) == 6
    assert on_mps == pytest.approx(on_cpu, rel=1e-4)
    resumed = trainer_losses(texts, tmp_path / "mps", resume=str(tmp_path / "mps" / "checkpoint-2"))
    assert resumed == pytest.approx(on_cpu, rel=1e-4)


@pytest.mark.parametrize("options", [{"fp16": True}, {"bf16": True}, {"gradient_checkpointing": True}], ids=str)
def test_transformers_trainer_options(options: dict[str, bool], texts: Rows, tmp_path: Path) -> None:
    """Mixed precision and checkpointing in the Trainer stay near plain float32."""
    exact = trainer_losses(texts, tmp_path / "exact")
    assert trainer_losses(texts, tmp_path / "options", **options) == pytest.approx(exact, rel=1e-2)
