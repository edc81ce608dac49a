"""Random programs on the CPU and on mps agree after every line: values, geometry, versions, gradients, sharing, errors.

The programs are those of `programs`, run and compared by `worlds`. By default a fixed set is run. For a longer hunt:

    ANYMPS_FUZZ_EXAMPLES=20000 ANYMPS_FUZZ_SEED=7 python -m pytest -q tests/device/test_fuzz.py

runs so many programs of a seed of its own (0 if it is not given), each of up to ANYMPS_FUZZ_STEPS lines (14). A failure
prints the smallest program that hypothesis found; it goes into `test_fuzz_regressions.py` once its cause is repaired.
"""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from device import programs

# What lines warn of is compared; reading the values of complex32 tensors warns again.
pytestmark = [
    pytest.mark.usefixtures("virtual_device"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning"),
]

EXAMPLES = int(os.environ.get("ANYMPS_FUZZ_EXAMPLES", "0"))
SEED = int(os.environ.get("ANYMPS_FUZZ_SEED", "0"))
STEPS = int(os.environ.get("ANYMPS_FUZZ_STEPS", "14"))

bounded = settings(
    max_examples=EXAMPLES or 400,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)


@bounded
@given(st.data())
def test_random_programs_agree(data: st.DataObject) -> None:
    """Every line of a random program does on mps what it does on the CPU, or what the rules say that MPS does."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # or only the first world is warned
    try:
        programs.run(lambda low, high: data.draw(st.integers(low, high)), STEPS)
    finally:
        torch.set_warn_always(always)


if EXAMPLES:
    test_random_programs_agree = seed(SEED)(test_random_programs_agree)
