"""Which device check an operator makes first, by torch release.

Source: the call graphs of `libtorch_cpu.dylib` in the macOS arm64 wheels of torch 2.11, 2.12, 2.13, 2.14 and 2.15.
From each MPS wrapper the calls were followed in order to the first of `TensorIteratorBase::build`, `checkAllSameGPU`,
the `Placeholder` constructor, or the argument setter that says `Passed CPU tensor to MPS op`; a kernel that only calls
other operators has the family of the first one that checks. Kernels behind a dispatch stub without an iterator are
Metal kernels. The machine code was read, not run on a Mac. `where` builds an iterator first, so its own check (torch
2.11 to 2.14, `... found at least two devices.`) is out of reach.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from anymps._tables import read_table
from anymps.rules._encoding import Family
from anymps.rules._readings import Reading, Release
from anymps.rules._versions import TorchVersion, check_supported

READING: Final = Reading("families", "call graphs of libtorch_cpu.dylib in the macOS arm64 wheels", (2, 11), (2, 15))

_LETTERS: Final = {
    "D": Family.DOT,
    "F": Family.FUSED_OPTIMIZER,
    "G": Family.SAME_GPU,
    "I": Family.ITERATOR,
    "K": Family.MASKED_FILL,
    "L": Family.LINEAR,
    "M": Family.METAL,
    "N": Family.NONE,
    "P": Family.PLACEHOLDER,
    "S": Family.GRADSCALER,
}

_FAMILIES: Final[dict[str, str]] = read_table(__file__, "families.toml")


def family(name: str, version: str | TorchVersion) -> Family:
    """The first device check of an operator overload (`add.Tensor`) that has a dense MPS kernel.

    Raises UnsupportedTorchError for a release outside the supported range.
    """
    table = _table(READING.nearest(check_supported(version).release))
    full = name if "." in name else f"{name}."
    found = table.get(full)
    return found if found is not None else table.get(name.partition(".")[0], Family.ITERATOR)


@lru_cache(maxsize=5)
def _table(release: Release) -> dict[str, Family]:
    column = release[1] - READING.first[1]
    return {name: _LETTERS[letters[column]] for letters, names in _FAMILIES.items() for name in names.split()}
