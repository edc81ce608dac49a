"""What every integration test needs: the device, one thread, and libraries that do not look for a network."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

# Before the first import of a library that reads them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


@pytest.fixture(autouse=True)
def leave_torch_as_found(mps_device: torch.device) -> Iterator[None]:
    """One thread, so that the CPU adds in one order; generators and environment given back as they were.

    Accelerate switches the CPU fallback on for every later child process.
    """
    environment = dict(os.environ)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(device_type="mps"):
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)
    os.environ.clear()
    os.environ.update(environment)
