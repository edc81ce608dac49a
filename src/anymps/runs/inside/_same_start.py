"""Starts compared runs in the same way: the same seeds, and no GPU if there should be none."""

from __future__ import annotations

import random
import sys
from typing import Any

_SEED = 0


def seed_generators() -> None:
    """Seed Python's, torch's and NumPy's generators."""
    import torch

    random.seed(_SEED)
    torch.manual_seed(_SEED)
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(_SEED)


def hide_mps() -> None:
    """Let a Mac's own GPU be out of sight; elsewhere there is none."""
    if sys.platform != "darwin":
        return
    import torch

    mps: Any = torch.backends.mps
    mps.is_available = mps.is_built = lambda: False
    accelerator: Any = torch.accelerator
    accelerator.is_available = lambda: False
    accelerator.current_accelerator = lambda *_, **__: None
    accelerator.device_count = lambda: 0
