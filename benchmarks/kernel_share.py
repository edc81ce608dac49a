"""Which share of a model's calls PyTorch's own Metal kernels compute, and whether the check of numbers objects to any.

    python benchmarks/kernel_share.py [--kernels RELEASE] [--check-numbers] [MODEL ...]

Each model of tests/integration/models trains for two steps with AdamW. `--kernels` names a release whose kernels
were added (anymps kernels add); without it, the installed one's. `--check-numbers` compares every call with the CPU and
prints what is wrong.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import torch

import anymps
from anymps.record import Fate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from integration.models import CASES, Case, train

STEPS: Final = 2


def measure(case: Case, is_checked: bool) -> tuple[int, int, int, list[str]]:
    """Calls on mps, how many of them by the kernels, how many were compared, and what is wrong, one line each."""
    with anymps.record() as capture:
        if not is_checked:
            train(case(), "mps", "adamw", STEPS)
            compared, wrong = 0, []
        else:
            with anymps.check_numbers("all") as checked:
                train(case(), "mps", "adamw", STEPS)
                compared = checked.compared
            wrong = [str(found) for found in checked.found]
    real = capture.recording.run.real_calls
    assert real is not None
    calls = sum(use.count for use in capture.recording.operators() if use.fate is Fate.NATIVE)
    return calls, sum(real.values()), compared, wrong


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="real", metavar="RELEASE")
    parser.add_argument("--check-numbers", action="store_true")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    asked = parser.parse_args()
    state = anymps.enable(kernels=asked.kernels, quiet=True)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, kernels of torch {state.kernels_torch}, {STEPS} steps of AdamW")
    print(f"{'model':26}{'calls':>8}{'by kernels':>12}{'share':>8}{'compared':>10}{'wrong':>7}")
    rows = []
    for name in asked.models or CASES:
        calls, real, compared, wrong = measure(CASES[name], asked.check_numbers)
        rows.append((calls, real, compared, len(wrong)))
        print(f"{name:26}{calls:8,}{real:12,}{real / calls:8.0%}{compared:10,}{len(wrong):7,}", flush=True)
        for line in wrong:
            print(f"    {line}", flush=True)
    calls, real, compared, count = map(sum, zip(*rows, strict=True))
    shares = [real / calls for calls, real, *_ in rows]
    print(f"{'all':26}{calls:8,}{real:12,}{real / calls:8.0%}{compared:10,}{count:7,}")
    print(f"from {min(shares):.0%} to {max(shares):.0%}, in {len(rows)} models")


if __name__ == "__main__":
    main()
