"""Bad indices: which kernels check them on the device, what they report, and which operators do not look, by release.

Source: the Metal kernels of the macOS arm64 wheels of torch 2.11 to 2.15 that write into the error buffer
(`ErrorMessages` in c10/metal/error.h), with their strings: Indexing.metal, ScatterGather.metal, EmbeddingBag.metal and
Pooling.metal. A report is raised at the next wait as `torch.AcceleratorError` with error code 1 (MPSStream.mm). A bad
element is read as zero or not written; where the comments say so, the index is clamped. An operator without a text has
no such kernel in those releases: the device reads or writes whatever lies there.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from anymps._tables import read_table
from anymps.rules._readings import Reading, Release, in_force, ranged
from anymps.rules._versions import OLDEST, TorchVersion, check_supported

READING: Final = Reading(
    "device_checks", "Metal kernels of the macOS arm64 wheels that write into the error buffer", (2, 11), (2, 15)
)

Layout = Literal["advanced", "along", "select", "bag", "unpool"]
"""How an operator takes its indices: a list of tensors; one of the shape of the result along `dim`; a vector for `dim`;
rows of a weight; positions in a pooled plane."""


class DeviceCheck(NamedTuple):
    """Operators (base names: all overloads) whose indices the device checks, or with an empty text does not check.

    `text` has the fields `{index}`, `{dimension}`, `{size}` and `{position}`; `strided` is the text of the kernel for
    tensors that are not contiguous, if it is another one. `until` is None where no end was seen up to `READING.last`.
    """

    operators: tuple[str, ...]
    layout: Layout
    text: str = ""
    strided: str = ""
    since: Release = OLDEST
    until: Release | None = None


DEVICE_CHECKS: Final = [ranged(DeviceCheck, given) for given in read_table(__file__, "device_checks.toml")["check"]]
"""What is known of indices on the device."""

NOT_CHECKED: Final = (
    " (anymps: this check is the virtual device's; MPS of torch {release} does not check the index and reads or "
    "writes out of bounds)"
)
"""Added to the CPU's text where the device is silent."""


def device_checks(version: str | TorchVersion) -> dict[str, tuple[str, str, str]]:
    """By base name: layout, text and strided text, for the native core; an empty text: not checked.

    An operator that is not among them takes no indices, or nothing is known of it. Raises UnsupportedTorchError for a
    release outside the supported range.
    """
    return {
        operator: (check.layout, check.text, check.strided or check.text)
        for check in in_force(DEVICE_CHECKS, check_supported(version).release)
        for operator in check.operators
    }
