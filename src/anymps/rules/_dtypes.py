"""Dtypes that MPS operators refuse although the CPU computes them, and the other way round, by torch release.

Sources. Which pairs: `OpInfo.dtypesIfMPS` and the lists of `torch/testing/_internal/common_mps.py` in the wheel,
brought down to operators by `python -m tests.conformance.derive`, which prints what these tables lack for the installed
torch, and by the runs behind `docs/fidelity.md`. Texts: the comments beside the marks in
`common_methods_invocations.py` and `opinfo/definitions/linalg.py`, which quote what a Mac raised, and the C strings and
Metal kernel names in `libtorch_cpu.dylib` of the macOS arm64 wheels; for products of whole numbers the machine code of
`use_metal_mm`, `bmm`, `addbmm_or_baddbmm_out_mps_impl` and `addmv`, which send bool and uint16 to uint64 to kernels.
Pairs are those of the lists of each release, 2.11 to 2.15. Where the lists do not tell, a range is that of the releases
whose macOS wheel holds the text or lacks the kernel; that they refuse the same dtypes is an assumption.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from anymps._tables import read_table
from anymps.rules._limits import ERROR_CLASSES, OPERATOR_LIMITS
from anymps.rules._operators import core_table
from anymps.rules._readings import Reading, Release, holds, in_force, ranged
from anymps.rules._versions import OLDEST, TorchVersion, check_supported
from anymps.rules.texts import BackendText, missing_kernel

READING: Final = Reading(
    "dtypes",
    "OpInfo.dtypesIfMPS and common_mps.py of the wheels; C strings and Metal kernel names of the macOS arm64 wheels",
    (2, 11),
    (2, 15),
)

_TABLE: Final = read_table(__file__, "dtypes.toml")
SCALAR_TYPES: Final[dict[str, int]] = _TABLE["scalar_types"]
"""The numbers of `c10::ScalarType`, by the name of the dtype."""

# Operators that are composite on a Mac and have a kernel in the native core.
_COMPOSITE: Final = ("convolution", "_convolution")


class DtypeRefusal(NamedTuple):
    """Operators that raise `text` if their first tensor has one of the dtypes.

    A base name stands for all overloads, a name with an overload (`conj_physical.out`) for that one. `until` is None
    where no end was seen up to `READING.last`.
    """

    operators: tuple[str, ...]
    dtypes: tuple[str, ...]
    text: BackendText
    since: Release = OLDEST
    until: Release | None = None


class _Widened(NamedTuple):
    """The releases in which operators compute what the CPU does not."""

    operators: tuple[str, ...]
    since: Release = OLDEST
    until: Release | None = None


def _refusals(given: dict[str, Any]) -> Iterator[DtypeRefusal]:
    """The rows that one of the file stands for: a text that names the dtype makes one of each."""
    groups: dict[str, str] = _TABLE["groups"]
    dtypes = [name for word in given["dtypes"].split() for name in groups.get(word, word).split()]
    range_of: dict[str, Any] = {name: given[name] for name in ("since", "until") if name in given}
    row: dict[str, Any] = {"operators": given["operators"].split(), **range_of}
    if "limit" in given:
        known = OPERATOR_LIMITS[given["limit"]]
        refusal = ranged(DtypeRefusal, {**row, "dtypes": dtypes, "text": BackendText(known.error, known.text)})
        yield refusal if range_of else refusal._replace(since=known.since, until=known.until)
        return
    template = missing_kernel(given["kernel"]).text if "kernel" in given else given["text"]
    for these in [[dtype] for dtype in dtypes] if "{" in template else [dtypes]:
        names = {kind: _TABLE[kind].get(these[0], "") for kind in ("metal", "cpp")}
        text = BackendText("RuntimeError", template.format(**names))
        yield ranged(DtypeRefusal, {**row, "dtypes": these, "text": text})


REFUSED_DTYPES: Final = tuple(row for given in _TABLE["refused"] for row in _refusals(given))
"""What MPS refuses and the CPU computes."""

_WIDENED: Final[dict[str, str]] = _TABLE["widened"]
_WIDENED_IN: Final[dict[str, _Widened]] = {
    name: row
    for given in _TABLE["widened_in"]
    for row in [ranged(_Widened, {**given, "operators": given["operators"].split()})]
    for name in row.operators
}

DtypeRow = tuple[str, tuple[tuple[int, int, str], ...], int, int]
"""(`aten::silu`, ((ScalarType, error class, text), ...), bits of the widened types, 1 if results stay wide or 2 if the
wider type is taken even where the CPU has the dtype)."""


def widened_dtypes(operator: str, version: str | TorchVersion) -> tuple[str, ...]:
    """Dtypes that the operator (base name) computes on MPS and not on the CPU, where a wider type must stand in.

    Raises UnsupportedTorchError for a release outside the supported range.
    """
    release = check_supported(version).release
    if operator in _WIDENED_IN and not holds(_WIDENED_IN[operator], release):
        return ()
    names = [name for dtypes, operators in _WIDENED.items() if operator in operators.split() for name in dtypes.split()]
    fewer: str = _TABLE["fewer"].get(operator, {}).get("{}.{}".format(*release), " ".join(names))
    return tuple(name for name in names if name in fewer.split())


def refused_dtype(operator: str, dtype: str, version: str | TorchVersion) -> BackendText | None:
    """What MPS says to a first tensor of this dtype; None if the operator is not in the table with it.

    `operator` is a name as `DtypeRefusal` has it.

    Raises UnsupportedTorchError for a release outside the supported range.
    """
    release = check_supported(version).release
    rows = _refused(release).get(operator, ())
    return next((row.text for row in rows if dtype in row.dtypes), None)


@lru_cache(maxsize=1)
def _refused(release: Release) -> dict[str, list[DtypeRefusal]]:
    """The rows of a release by operator, each in their order: every start asks for thousands."""
    found: dict[str, list[DtypeRefusal]] = {}
    for row in in_force(REFUSED_DTYPES, release):
        for operator in row.operators:
            found.setdefault(operator, []).append(row)
    return found


@lru_cache(maxsize=1)
def dtype_table(torch_version: str | TorchVersion) -> tuple[DtypeRow, ...]:
    """For every overload with a dtype rule: what is refused and what is widened, as plain tuples for the native core.

    Raises UnsupportedTorchError like `operator_rules`.
    """
    rows: list[DtypeRow] = []
    for full in [*(row[0] for row in core_table(torch_version)), *(f"aten::{name}" for name in _COMPOSITE)]:
        overload = full.removeprefix("aten::")
        base = overload.partition(".")[0]
        name = next((name for name in (overload, base, base.removesuffix("_")) if name in _known()), None)
        if name is None:
            continue
        refused: list[tuple[int, int, str]] = []
        for dtype, number in SCALAR_TYPES.items():
            said = refused_dtype(name, dtype, torch_version)
            if said is not None:
                refused.append((number, ERROR_CLASSES.index(said.error), said.text))
        widened = sum(1 << SCALAR_TYPES[dtype] for dtype in widened_dtypes(name, torch_version))
        if refused or widened:
            kept, always = (name in _TABLE[kind].split() for kind in ("kept_wide", "always_wide"))
            rows.append((full, tuple(refused), widened, 1 if kept else 2 if always else 0))
    return tuple(rows)


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    widened = {name for operators in _WIDENED.values() for name in operators.split()}
    return frozenset(widened.union(*(row.operators for row in REFUSED_DTYPES)))
