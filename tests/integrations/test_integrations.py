"""Steps of a loop of one's own; and what a callback says without its library, or without a device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anymps.integrations import Steps, steps
from anymps.record import Recording
from processes import run_with_torch

NAMES = (
    "errors", "warnings", "needless_waits_per_step", "operators_on_mps_per_step", "operators_on_cpu_per_step",
    "memory_peak_bytes",
)  # fmt: skip


def train(number: int) -> None:
    """A loop that reads its loss in every step."""
    weight = torch.nn.Parameter(torch.ones(4, device="mps"))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(number):
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        optimizer.step()
        print(loss.item())


@pytest.mark.usefixtures("virtual_device")
def test_steps_of_a_loop(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Five steps are recorded; files, numbers, the call of `log` and the short report tell of them."""
    logged: list[dict[str, float]] = []
    with steps(3, 8, folder=tmp_path / "anymps", log=logged.append) as part:
        train(12)
    judged = part.judged
    assert judged is not None
    assert [finding.id for finding in judged.findings] == ["MPS202"]
    assert sorted(path.name for path in (tmp_path / "anymps").iterdir()) == [
        "report.html",
        "report.txt",
        "steps.anymps",
    ]
    with Recording.open(judged.recording) as recording:
        assert recording.complete_steps == 5
    assert logged == [judged.numbers]
    assert list(judged.numbers) == [f"anymps/{name}" for name in NAMES]
    assert [judged.numbers[f"anymps/{name}"] for name in NAMES[:3]] == [0.0, 1.0, 1.0]
    assert (tmp_path / "anymps" / "report.txt").read_text() == judged.text
    assert "MPS202" in judged.page.read_text()
    assert "".join(capfd.readouterr().err.split()).endswith(f"Fullreport:{judged.page}")  # a long path has a line


@pytest.mark.usefixtures("virtual_device")
def test_too_few_steps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A loop that ends before the part is one line, and no report."""
    with steps(folder=tmp_path) as part:
        train(2)
    assert part.judged is None
    assert capfd.readouterr().err == (
        "anymps: nothing was recorded: the loop made 2 training steps, and the part is 10:30\n"
    )


@pytest.mark.usefixtures("virtual_device")
def test_two_recordings(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Within another recording the loop runs, and one line says why there is no second one."""
    with steps(0, 1, folder=tmp_path / "one"):
        with steps(0, 1, folder=tmp_path / "two") as inner:
            train(1)
        assert inner.judged is None
        assert (
            capfd.readouterr().err == "anymps: no steps are recorded: a recording is already running in this process\n"
        )


@pytest.mark.usefixtures("virtual_device")
def test_a_report_that_cannot_be_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The training goes on, and one line says why."""
    part = Steps(0, 1, tmp_path)
    part.begin()
    (tmp_path / "report.html").mkdir()
    train(2)
    assert part.finish() is None
    assert capfd.readouterr().err == f"anymps: {tmp_path}/report.html cannot be written: Is a directory\n"


def test_without_a_device() -> None:
    """On a machine whose mps was not switched on the loop runs, and one line says so."""
    ran = run_with_torch(
        """
        import anymps.integrations
        with anymps.integrations.steps():
            print("ran")
        """
    )
    assert ran.lines == ["ran"]
    assert ran.err == ("anymps: no steps are recorded: this process has no mps device (anymps.enable() makes one)\n")


@pytest.mark.parametrize(
    ("name", "hidden", "line"),
    [
        ("LightningCallback", ("lightning", "pytorch_lightning"), "needs Lightning: pip install lightning"),
        ("TransformersCallback", ("transformers",), "needs Transformers: pip install transformers"),
    ],
)
def test_without_the_library(name: str, hidden: tuple[str, ...], line: str) -> None:
    """The error is one line that says what to install; the rest of the package works."""
    ran = run_with_torch(
        f"""
        import sys
        sys.modules.update(dict.fromkeys({hidden}))
        import anymps.integrations
        assert anymps.integrations.steps
        try:
            anymps.integrations.{name}
        except anymps.UsageError as error:
            print(error)
        """
    )
    assert ran.lines == [f"anymps.integrations.{name} {line}"]
