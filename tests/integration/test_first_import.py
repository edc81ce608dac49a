"""Variables of torch that a script sets itself: they count from its own first import of torch, as on a Mac."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps.record import Recording
from processes import run_command

pytestmark = pytest.mark.integration

SET = 'os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"'
MODE = 'values, indices = torch.ones(2, 3, device="mps").mode()'
LATE = (
    "Set PYTORCH_ENABLE_MPS_FALLBACK=1 before `import torch`: it was set when torch was loaded already, which is too "
    "late."
)


def recorded(folder: Path, *lines: str, options: tuple[str, ...] = ()) -> tuple[int, Recording]:
    """The status of a script of these lines, and its recording."""
    script = folder / "script.py"
    script.write_text("\n".join(("import os", *lines)))
    command = ["-m", "anymps", "run", "--record", str(folder / "run.anymps"), *options, str(script)]
    return run_command(*command).status, Recording.open(folder / "run.anymps")


@pytest.mark.parametrize(
    "load",
    ["import torch", "import torch.nn as nn, torch", "from torch.nn import functional\nimport torch",
     "import importlib\ntorch = importlib.import_module('torch')"],
)  # fmt: skip
def test_set_before_the_import(tmp_path: Path, load: str) -> None:
    """The commonest first line of scripts for Macs: the operator runs on the CPU."""
    status, recording = recorded(tmp_path, SET, load, MODE)
    assert (status, recording.meta["fallback"], len(recording.fallbacks())) == (0, True, 1)


def test_set_after_the_import(tmp_path: Path) -> None:
    """It comes too late, and the finding says so."""
    from anymps.findings import find

    status, recording = recorded(tmp_path, "import torch", SET, MODE)
    assert (status, recording.meta["fallback"]) == (1, False)
    assert [finding.fix for finding in find(recording)] == [LATE]


def test_option_comes_first(tmp_path: Path) -> None:
    """`--no-fallback` raises, whatever the script sets."""
    status, recording = recorded(tmp_path, SET, "import torch", MODE, options=("--no-fallback",))
    assert (status, recording.meta["fallback"]) == (1, False)
    assert recording.meta["environment"] == {"PYTORCH_ENABLE_MPS_FALLBACK": "0"}


def test_memory_limit_set_by_the_script(tmp_path: Path) -> None:
    """The allocator reads its variables at its first allocation."""
    ratios = [f'os.environ["PYTORCH_MPS_{name}_WATERMARK_RATIO"] = "0.0001"' for name in ("HIGH", "LOW")]
    status, recording = recorded(tmp_path, *ratios, "import torch", 'torch.ones(2**20, device="mps")')
    assert status == 1
    assert [refusal.message.partition(" (")[0] for refusal in recording.refusals()] == ["MPS backend out of memory"]
