"""The sanitizers that the nightly workflow runs the native core under do report: planted faults prove it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sanitized import SANITIZERS, Fault, Sanitizer, unreported

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="needs g++ on Linux"),
]


def has_runtime(sanitizer: Sanitizer) -> bool:
    """Whether this compiler brings the sanitizer: not every distribution's does."""
    name = sanitizer.runtime
    answer = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return Path(answer.stdout.strip()).is_absolute()


@pytest.mark.parametrize("name", SANITIZERS)
def test_planted_faults_are_reported(name: str) -> None:
    """Each fault ends the process, with the sanitizer's own name for it."""
    sanitizer = SANITIZERS[name]
    if not has_runtime(sanitizer):
        pytest.skip(f"this g++ has no {sanitizer.runtime}")
    assert unreported(sanitizer) == []


def test_what_is_not_reported_is_told() -> None:
    """A function without a fault counts as one that was missed."""
    harmless = Fault('extern "C" int fault(int n) { return n; }', "AddressSanitizer: heap-buffer-overflow")
    address = SANITIZERS["address"]
    if not has_runtime(address):
        pytest.skip(f"this g++ has no {address.runtime}")
    blind = Sanitizer(address.flags, address.runtime, address.options, (harmless,))
    assert unreported(blind) == ["AddressSanitizer: heap-buffer-overflow: ended with 0 and said ''"]
