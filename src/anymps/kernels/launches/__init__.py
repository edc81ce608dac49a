"""Which kernel of PyTorch's own computes a call of an operator, with which arguments, over which grid.

One file a family of operators. Sources: the names and arguments that the kernels of torch 2.13's macOS wheel describe,
and the headers beside them (`c10/metal/*.h`, `ATen/native/mps/*.h`); where a file names it, the host code of the
pytorch tree.
"""

from __future__ import annotations

from collections.abc import Mapping

from anymps.kernels.launches._attention import ATTENTION as _ATTENTION
from anymps.kernels.launches._binary import BINARY as _BINARY
from anymps.kernels.launches._call import Describe, KernelCall, Launch, Made, Work
from anymps.kernels.launches._elements import NAMES, SCALAR_TYPES
from anymps.kernels.launches._embedding_bags import EMBEDDING_BAGS as _EMBEDDING_BAGS
from anymps.kernels.launches._histograms import HISTOGRAMS as _HISTOGRAMS
from anymps.kernels.launches._linalg import LINALG as _LINALG
from anymps.kernels.launches._matrices import MATRICES as _MATRICES
from anymps.kernels.launches._normalizations import NORMALIZATIONS as _NORMALIZATIONS
from anymps.kernels.launches._norms import NORMS as _NORMS
from anymps.kernels.launches._ranges import RANGES as _RANGES
from anymps.kernels.launches._resampling import RESAMPLING as _RESAMPLING
from anymps.kernels.launches._scans import SCANS as _SCANS
from anymps.kernels.launches._scatters import SCATTERS as _SCATTERS
from anymps.kernels.launches._softmax import SOFTMAX as _SOFTMAX
from anymps.kernels.launches._sorts import SORTS as _SORTS
from anymps.kernels.launches._split_reductions import REDUCTIONS as _REDUCTIONS
from anymps.kernels.launches._ternary import TERNARY as _TERNARY
from anymps.kernels.launches._unary import UNARY as _UNARY
from anymps.kernels.launches._windows import WINDOWS as _WINDOWS

DESCRIBED: Mapping[str, Describe] = {
    **_UNARY,
    **_EMBEDDING_BAGS,
    **_RESAMPLING,
    **_SCATTERS,
    **_NORMALIZATIONS,
    **_REDUCTIONS,
    **_WINDOWS,
    **_BINARY,
    **_TERNARY,
    **_SCANS,
    **_SORTS,
    **_RANGES,
    **_HISTOGRAMS,
    **_ATTENTION,
    **_NORMS,
    **_MATRICES,
    **_LINALG,
    **_SOFTMAX,
}
"""By the name of an operator without its overload: what finds the launches of a call."""

BEGINNINGS: Mapping[str, tuple[str, ...]] = {
    **{name: (f"{name}_",) for name in ("addcmul", "addcdiv")},
}
"""How the names of an operator's kernels begin: in releases without any the operator is not offered."""

TAKEN_ANEW: Mapping[str, str] = {
    **dict.fromkeys(("addcmul", "addcdiv"), "value"),
    **dict.fromkeys(("add", "sub"), "alpha"),
    "lerp": "weight",
}
"""Arguments that change a launch by no more than their value, if they are floats: optimizers change theirs at each
step."""

BY_VALUES = frozenset(
    {
        *("_embedding_bag_dense_backward", "_embedding_bag_backward", "histc", "histogram"),
    }
)
"""Operators of which a description looks at the values of tensors: what it declines it may take the next time."""
