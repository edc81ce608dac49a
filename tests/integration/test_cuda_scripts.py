"""`anymps run --cuda-as-mps` on scripts that were written for CUDA: they run to their end, and each line is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anymps.findings import Finding, find
from anymps.record import Recording
from processes import MAC, PATIENCE, clean_environment

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SCRIPTS = Path(__file__).parent / "cuda_scripts"
MPS = "torch.backends.mps.is_available()"
EXPECTED = {
    "classify": (
        "mps mps:0",
        [
            f"use_cuda = not args.no_cuda and ({MPS} or torch.cuda.is_available())",
            f'device = torch.device("mps" if {MPS} and use_cuda else "cuda" if use_cuda else "cpu")',
        ],
    ),
    "language_model": (
        "Apple M3 Pro True",
        [],
    ),
    "prefetch": (
        "True True",
        [
            "self.next = self.next.to(device, non_blocking=True)",
            "model = nn.DataParallel(nn.Linear(16, 4)).to(device)",
            f'scaler = torch.amp.GradScaler("mps" if {MPS} else "cuda")',
            f'with torch.autocast("mps" if {MPS} else "cuda"):',
            "torch.accelerator.synchronize()",
            "torch.accelerator.set_device_index(0)",
        ],
    ),
}


def run(script: Path, record: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], list[Finding]]:
    """Runs a script as a user would; returns how it ended and what the recording tells."""
    command = [sys.executable, "-m", "anymps", "run", "--mac", MAC, "--record", str(record), *options, str(script)]
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=clean_environment(), check=False
    )
    assert record.is_file(), answer.stderr
    return answer, find(Recording.open(record))


@pytest.mark.parametrize(("name", "source"), [*((name, "native") for name in EXPECTED), ("prefetch", "observer")])
def test_script_for_cuda(name: str, source: str, tmp_path: Path) -> None:
    """It runs on mps, and what is found says how to write its lines."""
    answer, findings = run(SCRIPTS / f"{name}.py", tmp_path / "run.anymps", "--cuda-as-mps", "--source", source)
    printed, lines = EXPECTED[name]
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == printed
    assert "answers for cuda" in answer.stderr
    answered = [finding.fix for finding in findings if finding.id == "MPS409"]
    assert [line for line in lines if not any(f"`{line}`" in fix for fix in answered)] == []
    assert {finding.site.file for finding in findings if finding.id == "MPS409"} == {str(SCRIPTS / f"{name}.py")}
    assert not any(finding.id in ("MPS407", "MPS410", "MPS821", "MPS822") for finding in findings)


def test_what_no_mac_has_ends_the_run(tmp_path: Path) -> None:
    """A refusal is an error of the script at its line, and the report says what to use."""
    script = tmp_path / "graph.py"
    script.write_text("import torch\nx = torch.ones(2, device='cuda') * 2\ngraph = torch.cuda.CUDAGraph()\n")
    answer, findings = run(script, tmp_path / "run.anymps", "--cuda-as-mps")
    assert answer.returncode == 1
    assert "anymps: torch.cuda.CUDAGraph has no counterpart on a Mac; run the step without a graph" in answer.stderr
    refused = next(finding for finding in findings if finding.id == "MPS410")
    assert (refused.site.line, refused.what, refused.fix) == (
        3,
        "torch.cuda.CUDAGraph has no counterpart on a Mac, and was refused.",
        "Run the step without a graph, or compile the model with torch.compile.",
    )
    assert f"Would not run on {MAC}" in answer.stderr or "graph.py:3" in answer.stderr
