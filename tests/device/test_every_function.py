"""No function that PyTorch has for its accelerator ends Python, whatever it is called with."""

from __future__ import annotations

import ctypes
import os

import pytest
import torch

from device.compare import text_of
from every_function import bindings, end_of, public_functions

pytestmark = [
    pytest.mark.usefixtures("virtual_device"),
]


def test_which_functions_are_called() -> None:
    """Public ones, private ones and those of `torch._C`; `make stress` calls them all."""
    functions = public_functions(torch.accelerator, torch.mps, torch.backends.mps, torch.cuda) | bindings(
        "_mps_", "_accelerator_"
    )
    assert {name.rpartition(".")[2] for name in functions} >= {
        "current_stream",
        "empty_cache",
        "Event",
        "is_macos_or_newer",
        "_mps_deviceSynchronize",
        "_accelerator_emptyCache",
        "can_device_access_peer",
    }


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
