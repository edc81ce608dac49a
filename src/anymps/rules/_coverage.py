"""What a torch release does with an operator on mps, by the name that people use for it.

The installed release is answered from its own operator list and all tables. Of another one (torch 2.7 to 2.15) it is
known which kernels it registers (`_registered`); which operators are composite is taken from the installed release, and
the answer says so.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from anymps._errors import UnsupportedTorchError
from anymps.rules._dtypes import SCALAR_TYPES, refused_dtype, widened_dtypes
from anymps.rules._limits import OPERATOR_LIMITS, OperatorLimit
from anymps.rules._operators import operator_rules
from anymps.rules._readings import Release, holds
from anymps.rules._registered import native_since, registered, registrations
from anymps.rules._versions import NEWEST, OLDEST, check_supported
from anymps.rules._waits import SyncPoint, wait_of
from anymps.rules._wheel import Overload, installed_torch, native_functions
from anymps.rules.texts import BackendText

# Python modules whose functions carry the module's name in the operator's: torch.linalg.qr is linalg_qr.
_MODULES: Final = ("fft", "linalg", "sparse", "special")
_LAYOUTS: Final = {"MPS": "strided", "Python": "strided", "SparseMPS": "sparse COO", "SparseCsrMPS": "sparse CSR"}


class Kind(str, Enum):
    """What becomes of a call with a dense mps tensor."""

    NATIVE = "native"
    """An MPS kernel is registered."""
    COMPOSITE = "composite"
    """It is made of other operators, whose kernels count."""
    ALWAYS_FALLBACK = "always fallback"
    """It runs on the CPU, regardless of PYTORCH_ENABLE_MPS_FALLBACK."""
    MISSING = "missing"
    """It raises NotImplementedError or, with PYTORCH_ENABLE_MPS_FALLBACK=1, runs on the CPU."""
    ELSEWHERE = "elsewhere"
    """Neither MPS nor the CPU has a kernel: it serves another backend."""


@dataclass(frozen=True)
class Coverage:
    """What one overload (`aten::take.out`) does on mps in one release.

    `layouts` are those with an MPS kernel. `through` is the overload that does the work of a structured one, empty if
    none. `related` are operators behind a composite one that are missing or always fall back. `since` is the first
    release that runs it on mps (the first of the table: or an earlier one), None if none does. `refused` and `widened`
    are dtypes: those that raise, and those that MPS computes and the CPU does not. `limits` are fixed texts for other
    arguments. `wait` is why the host waits inside. `assumed`: the release's operator list is not there, so that it is
    not sure whether a composite or missing operator was the same in it. `details`: whether dtypes, waits and limits of
    the release are known at all.
    """

    operator: str
    kind: Kind
    layouts: tuple[str, ...] = ()
    through: str = ""
    related: tuple[str, ...] = ()
    since: Release | None = None
    refused: tuple[tuple[str, BackendText], ...] = ()
    widened: tuple[str, ...] = ()
    wait: SyncPoint | None = None
    limits: tuple[OperatorLimit, ...] = ()
    assumed: bool = False
    details: bool = True


def find_operators(query: str) -> list[str]:
    """The overloads that a name stands for: `take`, `aten::take.out`, `torch.linalg.qr`, or a pattern (`*pool*`).

    Empty if there are none. A base name stands for all its overloads, a pattern is matched against base names.
    """
    names = _names()
    name = query.strip().removeprefix("aten::").removesuffix("()")
    if any(character in name for character in "*?["):
        return [known for known in names if fnmatchcase(_base(known), name) or fnmatchcase(known, name)]
    if "." in name and name in names:
        return [name]
    for wanted in _spellings(name):
        found = [known for known in names if _base(known) == wanted]
        if found:
            return found
    return []


def nearest_operators(query: str, count: int = 3) -> list[str]:
    """Operators (base names) whose names are most like the query's."""
    bases = list(dict.fromkeys(map(_base, _names())))
    wanted = _spellings(query.strip().removeprefix("aten::"))[0].partition(".")[0]
    return difflib.get_close_matches(wanted, bases, n=count)


def coverage(overload: str, release: Release | None = None) -> Coverage:
    """What the release (None: the installed one) does on mps with an overload (`take.out`).

    Raises UnsupportedTorchError if no release is given and no supported torch is installed.
    """
    if release is None:
        release = check_supported(installed_torch().version).release
    return _with_details(_answer(overload, release), overload, release)


def _base(overload: str) -> str:
    return overload.partition(".")[0]


def _spellings(name: str) -> list[str]:
    """The base names that a Python name may stand for, the likeliest first."""
    *modules, last = name.split(".")
    if modules and modules[-1] in _MODULES:
        return [f"{modules[-1]}_{last}", last]
    return [last] if re.match(r"torch|Tensor|F|nn", name) and modules else [name]


def _installed() -> Release | None:
    """The installed release, None if none is installed or its rules are not known."""
    try:
        return check_supported(installed_torch().version).release
    except UnsupportedTorchError:
        return None


@lru_cache(maxsize=1)
def _functions() -> Mapping[str, Overload]:
    """The installed release's operators; none where no such torch is installed, which other releases can do without."""
    return native_functions() if _installed() is not None else {}


@lru_cache(maxsize=1)
def _names() -> Mapping[str, None]:
    """Every overload that is known, in order: a set that keeps it."""
    return dict.fromkeys(sorted({*_functions(), *registrations()}))


def _answer(name: str, release: Release) -> Coverage:
    """By the kernels that a release registers; of operators without one, by the installed torch."""
    keys = registered(release).get(name, frozenset())
    layouts = dict.fromkeys(layout for key, layout in _LAYOUTS.items() if key in keys)
    answer = Coverage(f"aten::{name}", Kind.MISSING, tuple(layouts))
    installed, overload = _installed(), _functions().get(name)
    if "Fallback" in keys:
        return replace(answer, kind=Kind.ALWAYS_FALLBACK)
    if not keys.isdisjoint(("MPS", "Python")):
        return replace(answer, kind=Kind.NATIVE)
    if overload is None or installed is None:  # of an older or newer release
        return replace(answer, assumed=True)
    if release != installed:
        now = _answer(name, installed).kind
        decomposes = any(key.startswith("Composite") for key in overload.dispatch)
        if decomposes or not (overload.dispatch or overload.structured_delegate):  # it can do without a kernel
            now = Kind.COMPOSITE
        return replace(answer, kind=now if now in (Kind.COMPOSITE, Kind.ELSEWHERE) else Kind.MISSING, assumed=True)
    delegate = overload.structured_delegate
    if delegate:
        return replace(answer, kind=_answer(delegate, release).kind, through=f"aten::{delegate}")
    if operator_rules()[name].composite:
        return replace(answer, kind=Kind.COMPOSITE, related=_related(name, release))
    return replace(answer, kind=Kind.MISSING if "CPU" in overload.dispatch else Kind.ELSEWHERE)


def _related(name: str, release: Release) -> tuple[str, ...]:
    """Operators that a composite one most likely calls and that are no help: its other overloads, and `_name`."""
    base = _base(name)
    lacking = (Kind.MISSING, Kind.ALWAYS_FALLBACK)
    others = (other for other in _by_base().get(base, ()) if not operator_rules()[other].composite)
    inner = (other for other in _by_base().get(f"_{base}", ()) if not operator_rules()[other].composite)
    return tuple(f"aten::{other}" for other in (*others, *inner) if _answer(other, release).kind in lacking)


@lru_cache(maxsize=1)
def _by_base() -> Mapping[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for name in operator_rules():
        table[_base(name)] = (*table.get(_base(name), ()), name)
    return table


def _with_details(answer: Coverage, name: str, release: Release) -> Coverage:
    since = native_since(name) if name in registrations() else None
    if not OLDEST <= release <= NEWEST:
        return replace(answer, since=since, details=False)
    version = f"{release[0]}.{release[1]}"
    native = answer.kind is Kind.NATIVE
    said = _refused(name, version) if native or _base(name) in ("convolution", "_convolution") else ()
    texts = {text.text for _, text in said}
    return replace(
        answer,
        since=since,
        refused=said,
        widened=_widened(name, version) if native else (),
        wait=_wait(answer, name, version),
        limits=tuple(limit for limit in _limits(_base(name), release) if limit.text not in texts) if native else (),
    )


def _widened(name: str, version: str) -> tuple[str, ...]:
    """Dtypes that the operator, or the one it is the in-place form of, computes although the CPU does not."""
    return widened_dtypes(_base(name), version) or widened_dtypes(_base(name).removesuffix("_"), version)


def _refused(name: str, version: str) -> tuple[tuple[str, BackendText], ...]:
    base = _base(name)
    pairs = (
        (dtype, refused_dtype(base, dtype, version) or refused_dtype(base.removesuffix("_"), dtype, version))
        for dtype in SCALAR_TYPES
    )
    return tuple((dtype, text) for dtype, text in pairs if text is not None)


def _wait(answer: Coverage, name: str, version: str) -> SyncPoint | None:
    if "strided" in answer.layouts:
        return wait_of(name, version) if answer.kind is Kind.NATIVE else None
    return wait_of(name, version, sparse=True) if "sparse COO" in answer.layouts else None


def _limits(base: str, release: Release) -> Iterable[OperatorLimit]:
    for limit in OPERATOR_LIMITS.values():
        if base in limit.operators and holds(limit, release):
            yield limit
