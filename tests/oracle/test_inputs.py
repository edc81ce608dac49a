"""What operators are asked with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from . import values
from .operators import OPERATORS
from .values import inputs


def test_samples_of_the_database_join_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first twelve that have only tensors of the dtype, not empty, as many as the operator takes."""
    x, other = torch.ones(2), torch.ones(2, dtype=torch.int32)

    def sample(*given: Any, **kwargs: Any) -> SimpleNamespace:
        return SimpleNamespace(input=given[0], args=given[1:], kwargs=kwargs)

    left_out = [sample(x), sample(x, x, x), sample(x, x, alpha=2), sample(x, other), sample(x, 3), sample(x, x[:0])]
    fitting = [sample(torch.full((2,), float(at)), x) for at in range(20)]
    info = SimpleNamespace(dtypes={torch.float32}, sample_inputs=lambda *_: [*left_out, *fitting])
    monkeypatch.setattr(values, "database", lambda: {("add", ""): info})
    add, alpha, trunc, mul = (
        next(one for one in OPERATORS if one.title == title) for title in ("add", "add, alpha = 3", "div, trunc", "mul")
    )

    def more(operator: Any, dtype: torch.dtype) -> list[tuple[torch.Tensor, ...]]:
        return list(inputs(operator, dtype))[3:]

    found = more(add, torch.float32)
    assert [float(one[0]) for one, _ in found] == [float(at) for at in range(12)]
    assert all(torch.equal(second, x) for _, second in found)
    for operator, dtype in ((add, torch.int32), (alpha, torch.float32), (trunc, torch.float32), (mul, torch.float32)):
        assert more(operator, dtype) == []
