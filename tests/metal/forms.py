"""One kernel compiled in both ways: as loops and as fibers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

GROUPS, FIBERS = 2, 1
TORCH = "#include <c10/metal/reduction_utils.h>\n#include <c10/metal/utils.h>\n"


def forms(monkeypatch: pytest.MonkeyPatch, source: str, kernel: str) -> tuple[Any, Any]:
    """A kernel as loops and the same one as fibers."""
    monkeypatch.delenv("ANYMPS_METAL_FIBERS", raising=False)
    loops = getattr(torch.mps.compile_shader(source), kernel)
    monkeypatch.setenv("ANYMPS_METAL_FIBERS", "1")
    fibers = getattr(torch.mps.compile_shader(source), kernel)
    assert (loops._entry.form, fibers._entry.form) == (GROUPS, FIBERS)
    return loops, fibers
