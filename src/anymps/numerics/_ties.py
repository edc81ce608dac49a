"""Results of which several are right: places of equal numbers, and ends of factorisations that rounding decides.

A Cholesky factorisation comes to its end if the smallest eigenvalue of the matrix, scaled to a diagonal of ones, is
above n γ(n + 1), and does not if it is below minus that; in between, the order of the sums decides (Higham, Accuracy
and Stability of Numerical Algorithms, 2nd edition, theorem 10.7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from anymps.numerics._bounds import gamma, unit_roundoff
from anymps.numerics._functions import named
from anymps.numerics._reference import widened

_ALONG_AXIS: Final = named("chosen_along_axis") | named("places_alone")
_POOLS: Final = named("pools")


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
    if base not in _ALONG_AXIS:
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


def undecided(matrices: torch.Tensor, upper: bool, ends: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Of each matrix, whether both ends are right: the number of the pivot that is not positive, 0 for none."""
    open_ends = ends != others
    roundoff = unit_roundoff(matrices.dtype)
    for place in open_ends.nonzero():
        index = tuple(int(part) for part in place)
        size = min(int(end[index]) for end in (ends, others) if end[index])
        block = widened(matrices[index])[:size, :size]
        half = block.triu() if upper else block.tril()
        whole = half + half.mH - torch.diag_embed(block.diagonal())
        sizes = whole.diagonal().real
        open_ends[index] = bool((sizes > 0).all()) and bool(whole.isfinite().all())
        if open_ends[index]:
            scaled = whole / torch.outer(sizes, sizes).sqrt()
            smallest = float(torch.linalg.eigvalsh(scaled)[0])
            open_ends[index] = abs(smallest) <= size * gamma(size + 1, roundoff)
    return open_ends
