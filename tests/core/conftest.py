"""What the tests of the native core share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
import torch

from harness import compile_harness
from heap_traces import Run
from philox_traces import Send
from processes import PATIENCE
from random_draws import VERSION


@pytest.fixture
def random_device(mps_device: torch.device) -> Iterator[torch.device]:
    """The device, with its default generator left as it was found."""
    import anymps

    if VERSION < (2, 13) and not anymps.is_virtual():
        pytest.skip("up to torch 2.12 the numbers of a Mac are Apple's, whose stream is not public")
    state = torch.mps.get_rng_state()
    yield mps_device
    torch.mps.set_rng_state(state)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Sends trace lines to the compiled harness and returns its answers."""
    binary = compile_harness("heap", "the heap model", tmp_path_factory.mktemp("heap"))

    def send(*lines: str) -> list[str]:
        text = "\n".join(lines) + "\n"
        done = subprocess.run([str(binary)], input=text, capture_output=True, text=True, check=True)
        answers = done.stdout.splitlines()
        assert len(lines) == len(answers)
        return answers

    return send


@pytest.fixture(scope="session")
def send(tmp_path_factory: pytest.TempPathFactory) -> Send:
    """Sends trace lines to the compiled harness and returns its answers."""
    binary = compile_harness("philox", "the Philox stream", tmp_path_factory.mktemp("philox"))

    def lines(*commands: str) -> list[str]:
        text = "\n".join(("default", *commands)) + "\n"
        done = subprocess.run([str(binary)], input=text, capture_output=True, text=True, check=True, timeout=PATIENCE)
        answers = done.stdout.splitlines()
        assert len(commands) + 1 == len(answers)
        return answers[1:]

    return lines
