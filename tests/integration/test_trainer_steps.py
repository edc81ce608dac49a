"""One line in the trainers that people use: the real libraries train, and the steps are recorded, judged and logged."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from anymps import integrations
from anymps.record import Recording

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("virtual_device"),
    # The libraries' own business.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but not supported on MPS now:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .*dataloader.* does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
]
FILES = ["report.html", "report.txt", "steps.anymps"]


def rows(number: int) -> list[dict[str, torch.Tensor]]:
    """What the models are trained on, as `labels`, from zeros."""
    return [{"x": torch.ones(4), "labels": torch.full((4,), float(row))} for row in range(number)]


class Model(torch.nn.Module):
    """A linear model that reads its own loss: what the reports must name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss, after a read of it."""
        loss = (self.layer(x) - labels).square().mean()
        assert loss.item() >= 0
        return {"loss": loss}


def check(folder: Path, steps: int) -> None:
    """The files are there; that many steps were recorded, and the read in the model was found."""
    assert sorted(path.name for path in folder.iterdir()) == FILES
    text = (folder / "report.txt").read_text()
    assert "assert loss.item() >= 0" in text
    with Recording.open(folder / "steps.anymps") as recording:
        assert recording.complete_steps == steps


def fit(lightning: Any, callback: Any, last: int = 99, **options: Any) -> None:
    """Trains with a callback on 16 batches; the one after the `last` fails."""

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            if index > last:
                raise ValueError("the labels are wrong")
            return self.model(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet = {f"enable_{what}": False for what in ("checkpointing", "progress_bar", "model_summary")}
    trainer = lightning.Trainer(accelerator="mps", max_epochs=1, callbacks=[callback], **quiet, **options)
    trainer.fit(Module(), DataLoader(rows(32), batch_size=2))


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning(package: str, tmp_path: Path) -> None:
    """The callback records steps 2 to 5 of a fit, and the CSV logger has the numbers of that step."""
    lightning = pytest.importorskip(package, reason="the `integration` extra brings it")
    logger = pytest.importorskip(f"{package}.loggers").CSVLogger(tmp_path, name="run", version="0")
    fit(lightning, integrations.LightningCallback(2, 5), accumulate_grad_batches=2, logger=logger)
    check(tmp_path / "run" / "0" / "anymps", steps=3)
    with (tmp_path / "run" / "0" / "metrics.csv").open() as file:
        (row,) = [row for row in csv.DictReader(file) if row["anymps/needless_waits_per_step"]]
    assert (row["step"], row["anymps/needless_waits_per_step"]) == ("5", "2.0")  # of two batches


def test_a_fit_that_fails_has_a_report(tmp_path: Path) -> None:
    """An exception in a step ends the recording with it, and the report is written."""
    lightning = pytest.importorskip("lightning.pytorch", reason="the `integration` extra brings it")
    callback = integrations.LightningCallback(1, 9, tmp_path / "here")
    with pytest.raises(ValueError, match="the labels are wrong"):
        fit(lightning, callback, last=2, logger=False, default_root_dir=tmp_path)
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == FILES
    assert "ValueError" in (tmp_path / "here" / "report.txt").read_text()


@pytest.mark.parametrize("named", [False, True], ids=["alone", "with its trainer"])
def test_transformers(named: bool, tmp_path: Path) -> None:
    """The callback records steps 2 to 5 of the Trainer; named or not, its history has the numbers of step 5."""
    transformers = pytest.importorskip("transformers", reason="the `integration` extra brings it")
    pytest.importorskip("accelerate", reason="the `integration` extra brings it")
    logged: list[dict[str, float]] = []

    class Listening(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
            logged.append(logs)

    arguments = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=8,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = transformers.Trainer(Model(), arguments, train_dataset=rows(64), callbacks=[Listening()])
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.add_callback(integrations.TransformersCallback(2, 5, trainer=trainer if named else None))
    trainer.train()
    check(tmp_path / "anymps", steps=3)
    (entry,) = [entry for entry in trainer.state.log_history if "anymps/needless_waits_per_step" in entry]
    assert entry["step"] == 5
    assert entry["anymps/needless_waits_per_step"] == 6.0  # two batches, each read twice by the Trainer, too
    assert any("anymps/needless_waits_per_step" in logs for logs in logged) == named


def test_accelerate(tmp_path: Path) -> None:
    """`steps` counts the steps that Accelerate lets through, and its trackers are given the numbers."""
    accelerate = pytest.importorskip("accelerate", reason="the `integration` extra brings it")
    tracking = pytest.importorskip("accelerate.tracking")
    stored: list[dict[str, float]] = []

    class Tracker(tracking.GeneralTracker):  # type: ignore[misc,name-defined]
        name = "list"
        requires_logging_directory = False

        @property
        def tracker(self) -> object:
            return None

        def store_init_configuration(self, values: Any) -> None:
            pass

        def log(self, values: dict[str, float], step: int | None = None, **_: Any) -> None:
            stored.append(values)

    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(gradient_accumulation_steps=2, log_with=Tracker())
    accelerator.init_trackers("run")
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(rows(32), batch_size=2))
    with integrations.steps(2, 5, folder=tmp_path / "anymps", log=accelerator.log):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                optimizer.step()
                optimizer.zero_grad()
    check(tmp_path / "anymps", steps=3)
    (numbers,) = stored
    assert numbers["anymps/needless_waits_per_step"] == 2.0
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
