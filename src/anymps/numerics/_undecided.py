"""Results that rounding decides: whether a Cholesky factorisation of these numbers comes to its end.

It does if the smallest eigenvalue of the matrix, scaled to a diagonal of ones, is above n γ(n + 1), and does not if it
is below minus that; in between, the order of the sums decides (Higham, Accuracy and Stability of Numerical Algorithms,
2nd edition, theorem 10.7).
"""

from __future__ import annotations

import torch

from anymps.numerics._bounds import gamma, unit_roundoff
from anymps.numerics._on_cpu import widened


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
