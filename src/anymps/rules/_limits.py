"""Fixed texts with which single MPS operators refuse an argument, by torch release, as `limits.toml` has them.

Source: the C strings of `libtorch_cpu.dylib` in the macOS arm64 wheels of torch 2.11 to 2.15. What the native core
raises, and when: `limits.cpp` and `limit_checks.cpp` in `device/native/kernels` for shapes and options, `_dtypes.py`
for dtypes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from anymps._tables import read_table
from anymps.rules._readings import Reading, Release, holds, ranged
from anymps.rules._versions import OLDEST, TorchVersion, check_supported
from anymps.rules.texts import BackendText

READING: Final = Reading("limits", "C strings of libtorch_cpu.dylib in the macOS arm64 wheels", (2, 11), (2, 15))

ERROR_CLASSES: Final = (
    "RuntimeError",
    "TypeError",
    "NotImplementedError",
    "ValueError",
    "IndexError",
    "AcceleratorError",
)
"""Exception classes by the number that the native core knows them by."""


class OperatorLimit(NamedTuple):
    """A fixed text of some operators (base names: all overloads), and the first and last release that has it.

    `until` is None where no end was seen up to `READING.last`.
    Without operators it is one that any operator in an MPSGraph can give. `refused_before`: earlier releases refuse the
    same calls in words that are not the backend's.
    """

    text: str
    error: str = "RuntimeError"
    since: Release = OLDEST
    until: Release | None = None
    operators: tuple[str, ...] = ()
    refused_before: bool = False


OPERATOR_LIMITS: Final = {
    name: ranged(OperatorLimit, given) for name, given in read_table(__file__, "limits.toml").items()
}
"""Fixed texts of single operators by a short name; looked up in the strings of each release."""


# By release: the line of aten/src/ATen/native/DispatchStub.cpp that the assertion names.
_STUB_LINES: Final = {(2, 11): 276, (2, 12): 269, (2, 13): 282, (2, 14): 282, (2, 15): 280}


def missing_stub(version: str | TorchVersion) -> BackendText:
    """An operator whose dispatch stub has no MPS kernel (`torch.kaiser_window`): an internal assertion, on a Mac too.

    Raises UnsupportedTorchError for a release outside the supported range.
    """
    release = READING.nearest(check_supported(version).release)
    folder = "/Users/runner/work/pytorch/pytorch" + ("/pytorch" if release == (2, 11) else "")
    return BackendText(
        "RuntimeError",
        f'false INTERNAL ASSERT FAILED at "{folder}/aten/src/ATen/native/DispatchStub.cpp":{_STUB_LINES[release]}, '
        "please report a bug to PyTorch. DispatchStub: missing kernel for mps",
    )


def operator_limits(version: str | TorchVersion) -> dict[str, tuple[int, str]]:
    """The limits of a release by name, as numbers of `ERROR_CLASSES` and texts, for the native core; no warnings.

    Raises UnsupportedTorchError for a release outside the supported range.
    """
    release = check_supported(version).release
    stub = missing_stub(version)
    return {"missing stub": (ERROR_CLASSES.index(stub.error), stub.text)} | {
        name: (ERROR_CLASSES.index(limit.error), limit.text)
        for name, limit in OPERATOR_LIMITS.items()
        if holds(limit, release) and limit.error in ERROR_CLASSES
    }
