"""Waits that an installed package makes: one note for each package, and the setting that ends them."""

from __future__ import annotations

import pytest

from anymps.findings import Finding, find
from anymps.findings._loop import package_of
from anymps.record import Phase, RecordingBuilder, Wait

PACKAGE = "/venv/lib/python3.11/site-packages/agents/ppo.py"


def packaged(*lines: tuple[str, Wait], via: str = "", file: str = PACKAGE) -> list[Finding]:
    """The findings about lines of one package that wait in each of five steps."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0"})
    for step in range(5):
        for number, (source, wait) in enumerate(lines):
            builder.entry(
                "aten::_local_scalar_dense", start_ns=100 * step + number, phase=Phase.LOSS_READ, wait=wait,
                site=builder.site(file, 30 + number, "train", source, via),
            )  # fmt: skip
        builder.end_step(100 * step + 100)
    return find(builder.close())


def test_waits_of_a_package_are_one_note() -> None:
    """Lines that the user cannot change are one finding a rule, worth knowing and no more, with all of the lines."""
    (copied, read) = packaged(
        ("losses.append(loss.item())", Wait.ITEM), ("if done:", Wait.ITEM), ("x.cpu()", Wait.COPY_TO_CPU)
    )
    assert [(finding.id, finding.severity.label) for finding in (copied, read)] == [
        ("MPS201", "info"),
        ("MPS204", "info"),
    ]
    assert copied.what == ("The package `agents` made the host wait twice a step, at 2 lines: this one costs most.")
    assert copied.fix == (
        "Nothing in your own files: check whether a setting or a newer release of `agents` avoids it, or report it "
        "to its authors."
    )
    assert (copied.count, copied.per_step, copied.related_as) == (10, 2.0, "also at")
    assert [site.line for site in copied.related_sites] == [31]
    assert read.what == "The package `agents` made the host wait once a step."


@pytest.mark.parametrize(
    ("source", "via", "file", "what", "fix"),
    [
        (
            "self.distribution = Categorical(logits=logits)",
            "torch/distributions/distribution.py:__init__",
            PACKAGE,
            "A distribution checked whether its arguments are valid once a step.",
            "Once the values are known to be right, switch these checks off for all distributions: "
            "`torch.distributions.Distribution.set_default_validate_args(False)`.",
        ),
        (
            "if (",
            "",
            "/venv/site-packages/transformers/trainer.py",
            "The Trainer checked whether the loss is finite once a step.",
            "Use `TrainingArguments(..., logging_nan_inf_filter=False)`; a NaN loss then shows in the log.",
        ),
        (
            "return value.item()",
            "",
            "/venv/site-packages/lightning_fabric/utilities/apply_func.py",
            "Lightning read a value that was logged once a step.",
            "Leave `prog_bar=True` out of `self.log(...)`: such a value is read after every batch, however rarely the "
            "bar is drawn.",
        ),
    ],
)
def test_waits_of_a_package_that_a_setting_ends(source: str, via: str, file: str, what: str, fix: str) -> None:
    """What the user can switch off stays a warning, and says how."""
    (finding,) = packaged((source, Wait.ITEM), via=via, file=file)
    assert (finding.severity.label, finding.what, finding.fix) == ("warning", what, fix)


def test_the_package_of_a_line() -> None:
    """A folder or a file of an installed package; lines of the user's belong to none."""
    files = {
        "/venv/lib/python3.11/site-packages/timm/layers/drop.py": "timm",
        "C:\\venv\\Lib\\site-packages\\six.py": "six",
        "/usr/lib/python3/dist-packages/torch_ema/ema.py": "torch_ema",
        "/home/me/site-packages.py": "",
        "train.py": "",
    }
    builder = RecordingBuilder(meta={})
    sites = {file: builder.site(file, 1) for file in files}
    recording = builder.close()
    assert {file: package_of(recording.site(number)) for file, number in sites.items()} == files
