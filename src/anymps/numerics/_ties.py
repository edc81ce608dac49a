"""Places of equal numbers: any of them is right, so the numbers there are compared, not the places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from anymps.numerics._names import names_of

_ALONG_AXIS: Final = names_of("sort topk max min median kthvalue mode cummax cummin nanmedian aminmax")
_PLACES_ALONE: Final = names_of("argmax argmin argsort")
_POOLS: Final = names_of(
    """
    max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    fractional_max_pool2d fractional_max_pool3d
    """
)


def settles(base: str, arguments: Sequence[Any], named: dict[str, Any], expected: Any, found: Any) -> bool:
    """Whether places that differ are right: at both lie equal numbers, whose order is not asked for.

    `named` are the call's arguments by name, `arguments` the same in order, on the CPU.
    """
    if named.get("stable"):
        return False
    x = arguments[0] if arguments else None
    if not isinstance(x, torch.Tensor) or expected.dtype != torch.int64 or found.dtype != torch.int64:
        return False
    axis = named.get("dim", -1)
    if base in _POOLS:
        return _equal_at(x.flatten(2 if x.dim() > 3 else 1), -1, _flat(expected, x), _flat(found, x))
    if base not in _ALONG_AXIS | _PLACES_ALONE:
        return False
    if axis is None:
        return _equal_at(x.flatten(), 0, expected.reshape(-1), found.reshape(-1))
    one_each = base in ("max", "min", "median", "kthvalue", "mode", "nanmedian", "argmax", "argmin") and x.dim()
    if one_each and not named.get("keepdim", False):
        expected, found = expected.unsqueeze(axis), found.unsqueeze(axis)
    return _equal_at(x, int(axis), expected, found)


def _flat(places: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return places.flatten(2 if x.dim() > 3 else 1)


def _equal_at(x: torch.Tensor, axis: int, expected: torch.Tensor, found: torch.Tensor) -> bool:
    if x.dim() == 0:
        return bool((found == 0).all())
    if bool((found < 0).any()) or bool((found >= x.shape[axis]).any()):
        return False
    at_expected, at_found = x.gather(axis, expected), x.gather(axis, found)
    same = (at_expected == at_found) | ((at_expected != at_expected) & (at_found != at_found))
    return bool(same.all())
