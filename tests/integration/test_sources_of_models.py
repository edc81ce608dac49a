"""Both sources tell the same of models and trainers that nobody here wrote: the device's kernels and an observer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import anymps
from anymps.record import Recording
from device.counters import settle
from integration.models import CASES, OPTIMIZERS, tokens, train
from second_core import as_on_a_mac
from sources import calls_of, fates_of, findings_of, memory_of, steps_of, waits_of

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.usefixtures("virtual_device"),
    # The libraries' own business.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]

PEAK_TOLERANCE = 0.1
"""Of the native peak: what a kernel takes and gives back inside is in no sample of the observer."""

Run = Callable[[], object]


def model(name: str) -> Run:
    """Three steps of a model of `CASES`."""
    if CASES[name].package:
        pytest.importorskip(CASES[name].package, reason=f"{CASES[name].package} is missing")
    return lambda: train(CASES[name](), "mps", "adamw")


def loader() -> DataLoader[Any]:
    """Batches of two texts of 12 tokens."""
    return DataLoader([{"input_ids": row, "labels": row} for row in tokens(8, 12)], batch_size=2)  # type: ignore[arg-type]


def accelerate_loop() -> Run:
    """An accelerate loop with accumulation, clipping and gathered losses."""
    accelerate = pytest.importorskip("accelerate", reason="accelerate is missing")

    def run() -> None:
        accelerate.state.AcceleratorState._reset_state(True)
        accelerator = accelerate.Accelerator(gradient_accumulation_steps=2)
        network = CASES["gpt2"]()[0]
        net, optimizer, batches = accelerator.prepare(network, OPTIMIZERS["adamw"](network.parameters()), loader())
        for batch in batches:
            with accelerator.accumulate(net):
                loss = net(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                accelerator.gather(loss).mean().item()
        accelerate.state.AcceleratorState._reset_state(True)

    return run


def lightning_trainer(folder: Path) -> Run:
    """Four steps of a Lightning Trainer with clipping and logging."""
    lightning = pytest.importorskip("lightning", reason="lightning is missing")

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = CASES["gpt2"]()[0]

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self.network(**batch).loss
            self.log("train", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return OPTIMIZERS["adamw"](self.parameters())

    def run() -> None:
        lightning.Trainer(
            accelerator="mps", devices=1, max_epochs=1, gradient_clip_val=1.0, default_root_dir=folder, logger=False,
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        ).fit(Module(), loader())  # fmt: skip

    return run


def recorded(run: Run, source: str) -> tuple[Recording, int]:
    """The recording of one run, and its peak above what was there before."""
    settle()
    before = torch.mps.current_allocated_memory()
    with anymps.record(source=source) as capture:
        run()
    peak = capture.recording.memory_story.peak
    assert peak is not None
    return capture.recording, peak.allocated - before


@pytest.mark.parametrize("name", ["bert", "gpt2", "vit", "unet2d", "lstm_tagger", "accelerate", "lightning"])
def test_both_sources_tell_the_same(name: str, tmp_path: Path) -> None:
    """Findings, calls by step, line and module, waits with their queues, fallbacks, steps, memory and its peak."""
    others = {"accelerate": accelerate_loop, "lightning": lambda: lightning_trainer(tmp_path)}
    run = others[name]() if name in others else model(name)
    run()  # what libraries do once is done
    native, native_peak = recorded(run, "native")
    with as_on_a_mac():
        observed, observed_peak = recorded(run, "observer")
    assert (native.meta["source"], observed.meta["source"]) == ("native", "observer")
    assert native.complete_steps >= 2
    for told in (findings_of, waits_of, fates_of, steps_of):
        assert told(observed) == told(native)
    assert calls_of(observed) == calls_of(native)
    assert memory_of(observed) == memory_of(native)
    assert abs(observed_peak - native_peak) <= PEAK_TOLERANCE * native_peak
