"""No function that PyTorch has for its accelerator ends Python, whatever it is called with."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path

import pytest
import torch

import every_function
from device.compare import text_of
from every_function import end_of
from processes import run_command

pytestmark = [
    pytest.mark.usefixtures("virtual_device"),
]


@pytest.mark.slow
def test_no_function_ends_python() -> None:
    """All of torch.accelerator, torch.mps and torch.cuda with CUDA answered, on a used and on an unused device."""
    found = json.loads(run_command(str(Path(every_function.__file__)), env={"OMP_NUM_THREADS": "1"}).lines[-1])
    called = {name.rpartition(".")[2] for name in found["functions"]}
    assert called >= {
        "current_stream",
        "empty_cache",
        "Event",
        "is_macos_or_newer",
        "_mps_deviceSynchronize",
        "_accelerator_emptyCache",
        "can_device_access_peer",
    }
    assert found["ends"] == {}


@pytest.mark.skipif("-fsanitize" in os.environ.get("CXX", ""), reason="a sanitizer reports the signal in its own way")
def test_a_function_that_ends_python_is_found() -> None:
    """A read through a null pointer is told with the call that made it, and a function that returns is not."""

    def crash(*given: object) -> None:
        if given == (0,):
            ctypes.string_at(0)

    assert end_of(crash, used=False) == "[0]: SIGSEGV"
    assert end_of(lambda *_: None, used=False) is None


@pytest.mark.skipif(not hasattr(torch.accelerator, "empty_host_cache"), reason="since torch 2.12")
def test_emptying_the_host_cache() -> None:
    """A Mac's Python ends there up to torch 2.14: an exception says so. From 2.15 on nothing is done."""
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15):
        torch.accelerator.empty_host_cache()
        return
    assert text_of(RuntimeError, torch.accelerator.empty_host_cache) == (
        "anymps: torch.accelerator.empty_host_cache() ends Python with a segmentation fault on a Mac with torch "
        "2.12 to 2.14 (pytorch issue 197561); this exception is anymps' own. Skip the call on mps, which caches no "
        "host memory."
    )
