"""Models of other libraries need the same memory on shapes alone as computed, to the byte."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from integration.models import CASES
from processes import MAC, run_python

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LEFT_OUT = {
    "time_series",  # its distribution's parameters decide what is drawn, and 0 is none of a scale
    # Other cases are of the same operators.
    *("unet2d", "bert", "distilbert_classifier", "gpt2", "llama", "qwen3", "vit", "resnet", "convnext", "transformer"),
}

PROGRAM = """
import gc, json, os, sys, warnings
warnings.simplefilter("ignore")
os.environ["HF_HUB_OFFLINE"] = "1"
from anymps.device import enable, native
enable({mac!r}, substrate={substrate!r}, fallback=True, quiet=True)
import torch
sys.path.insert(0, {tests!r})
from integration.models import CASES, train
found = {{}}
for name in {names!r}:
    built = CASES[name]()
    gc.collect()
    torch.mps.empty_cache()
    native().reset_peak_memory()
    train(built, "mps", "adamw", steps=2)
    gc.collect()
    numbers = native().memory_statistics()
    found[name] = [numbers["allocated"][0], numbers["allocated"][1], numbers["reserved"][1]]
print(json.dumps(found))
"""


def usable() -> list[str]:
    """Cases whose library is installed."""
    return [
        name
        for name, case in CASES.items()
        if name not in LEFT_OUT and (not case.package or importlib.util.find_spec(case.package))
    ]


@pytest.fixture(scope="module")
def numbers() -> dict[str, dict[str, list[int]]]:
    """Bytes left, their peak and the peak of the heaps, by substrate and case: one process for each substrate."""
    tests = str(Path(__file__).parents[1])
    found = {}
    for substrate in ("host", "shape"):
        program = PROGRAM.format(mac=MAC, substrate=substrate, tests=tests, names=usable())
        found[substrate] = json.loads(run_python(program).lines[-1])
    return found


@pytest.mark.parametrize("name", usable())
def test_a_models_memory_is_the_same_on_shapes(name: str, numbers: dict[str, dict[str, list[int]]]) -> None:
    """What a training allocates hangs on shapes alone."""
    assert numbers["host"][name][1] > 0
    assert numbers["shape"][name] == numbers["host"][name]
