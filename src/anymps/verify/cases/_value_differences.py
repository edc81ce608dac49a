"""Whether the kept values of two results agree, and how far they are apart if not."""

from __future__ import annotations

import base64
from typing import Any

import torch

from anymps.numerics import Bound, Kind, bound_of, differences


def value_difference(theirs: dict[str, Any], ours: dict[str, Any], operator: str) -> tuple[str, str] | None:
    """How the values that two devices gave for one call differ beyond rounding: theirs and ours; None if they do not.

    Both are results of `_answering`, of the same dtype and shape. Each may be as far from the exact number as the
    operator's bound allows; where that depends on what the file does not keep (the terms of a sum), as far as PyTorch's
    own tests of mps allow.
    """
    mine, other = _values(ours), _values(theirs)
    if mine.shape != other.shape:
        return f"{other.numel()} values kept", f"{mine.numel()} values kept"
    found = differences(mine, other, _bound(operator, mine.dtype))
    if found is None:
        return None
    where = f"at {found.index[0]}; {found.wrong} of {found.count} kept values differ"
    return f"{found.found} {where}", str(found.expected)


def _values(result: dict[str, Any]) -> torch.Tensor:
    dtype = getattr(torch, result["dtype"])
    raw = bytearray(base64.b64decode(result.get("values", "")))
    return torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)


def _bound(operator: str, dtype: torch.dtype) -> Bound:
    bound = bound_of(operator, dtype)
    if bound.kind in (Kind.SUM, Kind.STEP) or bound.of_input:
        bound = bound_of("", dtype)
    return bound.of_two()
