"""Libraries that quantise, unedited: training with them gives the CPU's losses, on mps and as a script for CUDA."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from processes import MAC, run_command

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).with_name("quantised_training.py")
LIBRARIES = ("bitsandbytes", "peft", "torchao", "trl")
Losses = dict[str, dict[str, list[float]]]
CASES = {
    # How far rounding may take twenty steps; the activations of QAT are rounded to 8 bits, which doubles what differs.
    "peft": 1e-4,
    "sft": 1e-3,
    "dpo": 1e-3,
    "torchao": 2e-2,
}


def trained(folder: Path, *words: str) -> Losses:
    """What the script finds under `anymps run`: by library and device."""
    result = run_command("-m", "anymps", "run", "--mac", MAC, *words, cwd=folder, env={"OMP_NUM_THREADS": "1"})
    assert result.status == 0, result.err
    found: Losses = json.loads((folder / "losses.json").read_text())
    return found


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> Losses:
    """Of all three devices, from two processes that import these libraries."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not installed; the `integration` extra brings them")
    folder = tmp_path_factory.mktemp("quantised")
    found, for_cuda = trained(folder, str(SCRIPT), "cpu", "mps"), trained(folder, "--cuda-as-mps", str(SCRIPT), "cuda")
    return {case: {**found[case], **for_cuda[case]} for case in found}


@pytest.mark.parametrize("device", ["mps", "cuda"])
@pytest.mark.parametrize("case", CASES)
def test_training_with_quantised_weights(losses: Losses, case: str, device: str) -> None:
    """Twenty steps: bitsandbytes' nf4 under PEFT's adapters and TRL's trainers, and QAT of torchao."""
    found, wanted = losses[case][device], losses[case]["cpu"]
    assert found[:20] == pytest.approx(wanted[:20], rel=CASES[case])
    assert found[19] < found[0]


@pytest.mark.parametrize("device", ["mps", "cuda"])
@pytest.mark.parametrize("case", ["peft", "torchao"])
def test_what_was_saved_computes_the_same(losses: Losses, case: str, device: str) -> None:
    """Adapters over nf4, and weights in 4 bits, loaded again: no output differs."""
    assert losses[case][device][-1] == 0
