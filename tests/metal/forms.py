"""What tests of kernels share: a kernel compiled as loops and as fibers, the words of an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def error_of(call: Callable[..., object], *arguments: object, **options: object) -> str:
    """What the RuntimeError says that a call raises."""
    with pytest.raises(RuntimeError) as raised:
        call(*arguments, **options)
    return str(raised.value)


def written_by_both(kernels: Iterable[Any], size: tuple[int, ...], *arguments: object, **grid: object) -> torch.Tensor:
    """What kernels write into a first argument of that size: the same bits."""
    results = []
    for kernel in kernels:
        out = torch.zeros(*size, device="mps")
        kernel(out, *arguments, **grid)
        results.append(out.cpu())
    assert torch.equal(*(result.view(torch.int32) for result in results))
    return results[0]
