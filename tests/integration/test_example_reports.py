"""`anymps run` on the examples: a planted mistake is found at its line, and the clean scripts have no findings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anymps.findings import Finding, find
from anymps.record import Recording
from anymps.rules import installed_torch
from planted import EXAMPLES, FOLDER, MISTAKES, QUICK, plant
from processes import MAC, run_anymps

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RULES = {"fallback": "MPS102", "float64": "MPS301", "mismatch": "MPS401", "wait": "MPS201"}
STOPS = ("float64", "mismatch")


def run(script: Path, example: str, record: Path, *options: str) -> tuple[int, list[Finding]]:
    """Runs a script as a user would; returns its exit status and what the recording tells."""
    if example == "digits_cnn":
        pytest.importorskip("sklearn", reason="the digits example needs scikit-learn (extra: examples)")
    if example == "qlora_tiny":
        pytest.importorskip("bitsandbytes", reason="QLoRA needs bitsandbytes (extra: integration)")
    words = ("run", "--mac", MAC, "--record", str(record), "--no-report", *options, str(script), *QUICK[example])
    answer = run_anymps(*words, cwd=record.parent)
    assert record.is_file(), answer.err
    return answer.status, find(Recording.open(record))


@pytest.mark.parametrize("example", [*EXAMPLES, "qlora_tiny"])
def test_clean_example_has_no_findings(example: str, tmp_path: Path) -> None:
    """The examples are the model of good practice: nothing is found in them."""
    status, findings = run(FOLDER / f"{example}.py", example, tmp_path / "clean.anymps")
    assert status == 0
    assert [(finding.id, finding.site.line) for finding in findings] == []


def test_qlora_learns_and_its_adapters_load_again(tmp_path: Path) -> None:
    """Its output is what the recipe of fine-tuning shows, but for the losses, which hang on the processor."""
    pytest.importorskip("bitsandbytes", reason="QLoRA needs bitsandbytes (extra: integration)")
    answer = run_anymps("run", "--mac", MAC, "--no-report", str(FOLDER / "qlora_tiny.py"), cwd=tmp_path)
    before, after, again = map(float, re.findall(r"\d\.\d{3}", answer.out))
    assert after < before - 0.5
    assert again == after
    page = (FOLDER.parent / "docs" / "recipes" / "fine_tuning.md").read_text()
    (shown,) = re.findall(r"^It prints:\n\n```text\n(.*?)```$", page, re.M | re.S)
    assert re.sub(r"\d\.\d{3}", "N", answer.out) == re.sub(r"\d\.\d{3}", "N", shown)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistake_is_found_at_its_line(mistake: str, tmp_path: Path) -> None:
    """Each planted mistake gives exactly its own finding, with the line at fault and the line that made the tensor.

    torch 2.15 has kernels for what falls back in the plants up to 2.14: nothing is found then.
    """
    planted = plant(mistake)
    script = tmp_path / f"{planted.example}.py"
    script.write_text(planted.source, encoding="utf-8")
    options = ["--fallback"] if mistake == "fallback" else []
    status, findings = run(script, planted.example, tmp_path / "planted.anymps", *options)
    assert status == (1 if mistake in STOPS else 0)
    mended = mistake == "fallback" and installed_torch().version.release >= (2, 15)
    expected = set() if mended else {(RULES[mistake], str(script), planted.line)}
    assert {(finding.id, finding.site.file, finding.site.line) for finding in findings} == expected
    if planted.origin is not None:
        origins = [(site.file, site.line) for finding in findings for site in finding.related_sites]
        assert origins == [(str(script), planted.origin)]
