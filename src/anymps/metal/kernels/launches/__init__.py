"""Which kernel of PyTorch's own computes a call of an operator, with which arguments, over which grid.

One file a family of operators. Sources: the names and arguments that the kernels of torch 2.13's macOS wheel describe,
and the headers beside them (`c10/metal/*.h`, `ATen/native/mps/*.h`); where a file names it, the host code of the
pytorch tree.
"""

from __future__ import annotations

from collections.abc import Mapping

from anymps.metal.kernels.launches._attention import ATTENTION as _ATTENTION
from anymps.metal.kernels.launches._binary import BINARY as _BINARY
from anymps.metal.kernels.launches._call import Call, Describe, Launch, Made, Work
from anymps.metal.kernels.launches._columns import COLUMNS as _COLUMNS
from anymps.metal.kernels.launches._convolutions import CONVOLUTIONS as _CONVOLUTIONS
from anymps.metal.kernels.launches._ctc import CTC as _CTC
from anymps.metal.kernels.launches._distances import DISTANCES as _DISTANCES
from anymps.metal.kernels.launches._factors import FACTORS as _FACTORS
from anymps.metal.kernels.launches._fills import FILLS as _FILLS
from anymps.metal.kernels.launches._found import FOUND as _FOUND
from anymps.metal.kernels.launches._grouped import GROUPED as _GROUPED
from anymps.metal.kernels.launches._groups import GROUPS as _GROUPS
from anymps.metal.kernels.launches._halves import HALVES as _HALVES
from anymps.metal.kernels.launches._histograms import HISTOGRAMS as _HISTOGRAMS
from anymps.metal.kernels.launches._image_gradients import IMAGE_GRADIENTS as _IMAGE_GRADIENTS
from anymps.metal.kernels.launches._images import IMAGES as _IMAGES
from anymps.metal.kernels.launches._indexing import INDEXING as _INDEXING
from anymps.metal.kernels.launches._joins import JOINS as _JOINS
from anymps.metal.kernels.launches._linalg import LINALG as _LINALG
from anymps.metal.kernels.launches._lookups import LOOKUPS as _LOOKUPS
from anymps.metal.kernels.launches._losses import LOSSES as _LOSSES
from anymps.metal.kernels.launches._matrices import MATRICES as _MATRICES
from anymps.metal.kernels.launches._medians import MEDIANS as _MEDIANS
from anymps.metal.kernels.launches._norms import NORMS as _NORMS
from anymps.metal.kernels.launches._optimizers import OPTIMIZERS as _OPTIMIZERS
from anymps.metal.kernels.launches._pads import PADS as _PADS
from anymps.metal.kernels.launches._places import PLACES as _PLACES
from anymps.metal.kernels.launches._quantized import QUANTIZED as _QUANTIZED
from anymps.metal.kernels.launches._ranges import RANGES as _RANGES
from anymps.metal.kernels.launches._renorm import RENORM as _RENORM
from anymps.metal.kernels.launches._rows import ROWS as _ROWS
from anymps.metal.kernels.launches._samplers import SAMPLERS as _SAMPLERS
from anymps.metal.kernels.launches._scans import SCANS as _SCANS
from anymps.metal.kernels.launches._searches import SEARCHES as _SEARCHES
from anymps.metal.kernels.launches._selections import SELECTIONS as _SELECTIONS
from anymps.metal.kernels.launches._slices import SLICES as _SLICES
from anymps.metal.kernels.launches._softmax import SOFTMAX as _SOFTMAX
from anymps.metal.kernels.launches._solves import SOLVES as _SOLVES
from anymps.metal.kernels.launches._sorts import SORTS as _SORTS
from anymps.metal.kernels.launches._spread import SPREAD as _SPREAD
from anymps.metal.kernels.launches._ternary import TERNARY as _TERNARY
from anymps.metal.kernels.launches._triangles import TRIANGLES as _TRIANGLES
from anymps.metal.kernels.launches._types import NAMES, SCALAR_TYPES
from anymps.metal.kernels.launches._unary import NEVER_ALONE as _NEVER_ALONE
from anymps.metal.kernels.launches._unary import UNARY as _UNARY
from anymps.metal.kernels.launches._uniques import UNIQUES as _UNIQUES
from anymps.metal.kernels.launches._windows import WINDOWS as _WINDOWS

DESCRIBED: Mapping[str, Describe] = {
    **_UNARY,
    **_NEVER_ALONE,
    **_BINARY,
    **_TERNARY,
    **_ROWS,
    **_LOOKUPS,
    **_SCANS,
    **_PLACES,
    **_SORTS,
    **_WINDOWS,
    **_GROUPS,
    **_OPTIMIZERS,
    **_COLUMNS,
    **_FILLS,
    **_SEARCHES,
    **_IMAGES,
    **_INDEXING,
    **_JOINS,
    **_TRIANGLES,
    **_SLICES,
    **_FOUND,
    **_IMAGE_GRADIENTS,
    **_SPREAD,
    **_PADS,
    **_RANGES,
    **_HISTOGRAMS,
    **_RENORM,
    **_ATTENTION,
    **_NORMS,
    **_DISTANCES,
    **_MATRICES,
    **_QUANTIZED,
    **_LINALG,
    **_SAMPLERS,
    **_HALVES,
    **_SOFTMAX,
    **_LOSSES,
    **_CONVOLUTIONS,
    **_CTC,
    **_GROUPED,
    **_SELECTIONS,
    **_MEDIANS,
    **_UNIQUES,
    **_SOLVES,
    **_FACTORS,
}
"""By the name of an operator without its overload: what finds the launches of a call."""

BEGINNINGS: Mapping[str, tuple[str, ...]] = {
    **{name: (f"{name}_",) for name in ("addcmul", "addcdiv")},
    "convolution": ("conv1d_", "conv2d_", "conv3d_"),
    "linalg_lu_solve": ("trsmDiagSolveLU_",),
    "_grouped_mm": ("grouped_mm_",),
}
"""How the names of an operator's kernels begin: in releases without any the operator is not offered."""

WHOLE = frozenset({"linalg_lu_solve", "_grouped_mm"})
"""Operators that are offered even where the installed torch makes them of others; as a whole they may be declined."""

TAKEN_ANEW: Mapping[str, str] = {
    **dict.fromkeys(("addcmul", "addcdiv"), "value"),
    **dict.fromkeys(("add", "sub"), "alpha"),
    "lerp": "weight",
}
"""Arguments that change a launch by no more than their value, if they are floats: optimizers change theirs at each
step."""

BY_VALUES = frozenset(
    {
        *("_embedding_bag_dense_backward", "_embedding_bag_backward", "nonzero", "repeat_interleave"),
        *("histc", "histogram", "_unique", "_unique2", "unique_consecutive"),
    }
)
"""Operators of which a description looks at the values of tensors: what it declines it may take the next time."""
