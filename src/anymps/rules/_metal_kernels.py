"""Since which torch release an operator runs on a Metal kernel of PyTorch's own; until then it runs on MPSGraph.

Source: the names of the compiled kernels in the macOS arm64 wheels of torch 2.6.0, 2.7.1, 2.8.0, 2.9.1, 2.10.0, 2.11.0,
2.12.1, 2.13.0, 2.14.1 and 2.15.0, and for operators that share a kernel (`rsub` has that of `sub`) the host code that
calls it. `linear` stands with them: since 2.8 the wheels hold `_mps_linear_nograph`, which encodes Apple's product of
matrices without a graph. An operator of which only some calls have a kernel (other products of matrices, convolutions,
attention) is left to MPSGraph. So are kernels that torch 2.5 and older compile at run time: no wheel has their names.
"""

from __future__ import annotations

from typing import Final

from anymps._tables import read_table
from anymps.rules._readings import Reading, Release, release_of

READING: Final = Reading(
    "metal_kernels", "names of the compiled Metal kernels in the macOS arm64 wheels", (2, 6), (2, 15)
)

_FIRST: Final = {
    name: release_of(release)
    for release, names in read_table(__file__, "metal_kernels.toml").items()
    for name in names.split()
}


def metal_kernel_since(name: str) -> Release | None:
    """The first release in which an operator runs on a kernel of PyTorch's own; None for one that MPSGraph computes.

    `name` is the operator's without namespace, overload and the underscore of its form in place. An answer of 2.6 may
    be true of older releases, too.
    """
    return _FIRST.get(name)


def has_metal_kernel(name: str, release: Release) -> bool:
    """Whether an operator runs on a kernel of PyTorch's own in a release; else MPSGraph computes it."""
    since = metal_kernel_since(name)
    return since is not None and since <= release
