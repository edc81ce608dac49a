"""Dtypes for which an operator's kernel on MPS does not exist: uint16, uint32, uint64, the 8-bit floats, float64.

An operator with a Metal kernel of PyTorch's own asks for it by a name made of Metal's names for dtypes; one that
MPSGraph computes asks for the graph's dtype. Both fail for what has no name, the first also where no kernel has it.
Copies without a cast, views, fills with zero and kernels that go by the size of an element ask for neither.

Sources: kernel names in the macOS arm64 wheels of torch 2.11 to 2.15, which `python -m tests.conformance.kernel_dtypes`
compares with this table; `exec_unary_kernel`, `exec_binary_kernel`, `getMPSDataType` and `scalarToMetalTypeString` in
aten/src/ATen/native/mps/OperationUtils.mm for how names are made; the format strings of the wheels for releases before
2.13; for MPSGraph the jump table of `getMPSDataType` in each of the wheels: all five releases take uint16 to uint64 and
no 8-bit float. What MPSGraph then makes of unsigned numbers no public source says: there the CPU's own words stand, as
they do for kernels that the wheels give no name for.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from anymps._tables import read_table
from anymps._vocabulary import Fate
from anymps.rules._dtypes import SCALAR_TYPES
from anymps.rules._encoding import Trait
from anymps.rules._metal_kernels import has_metal_kernel
from anymps.rules._operators import core_table
from anymps.rules._readings import Reading, Release, release_of
from anymps.rules._versions import OLDEST, TorchVersion, check_supported, version_rules
from anymps.rules._wheel import native_functions

READING: Final = Reading(
    "metal_dtypes", "names of the compiled Metal kernels in the macOS arm64 wheels", (2, 11), (2, 15)
)

_UNSIGNED: Final = ("uint16", "uint32", "uint64")
_FLOAT8: Final = ("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu")
# Reached by a view alone; a result of one is refused where it is allocated.
_DOUBLE: Final = ("float64", "complex128")
_NEVER: Final = (9, 9)


class Form(IntEnum):
    """Which dtypes of a call a kernel's name is made of."""

    FIRST = 0
    """That of the first tensor."""
    ARITHMETIC = 1
    """That of both operands, or the common one if they differ, which is also the result's."""
    COMPARISON = 2
    """The same, with a result of bool."""
    QUOTIENT = 3
    """The same, with a result of floats."""
    FILL = 4
    """That of the first tensor, unless the number is 0."""
    GRAPH = 5
    """That of each tensor: MPSGraph computes."""


class KernelName(NamedTuple):
    """Of an operator: the names that it asks for, and the rare dtypes that none of its kernels has.

    metal_dtypes.toml says what stands for what in a name. `cast` is the name for operands of two dtypes.
    """

    form: Form
    name: str
    cast: str
    missing: tuple[str, ...]


_TABLE: Final = read_table(__file__, "metal_dtypes.toml")


def _words(name: str) -> list[str]:
    text: str = _TABLE[name]
    return text.split()


def _release(table: str, operator: str, otherwise: Release) -> Release:
    """The release that a table of the file has for an operator."""
    text: str | None = _TABLE[table].get(operator)
    return otherwise if text is None else release_of(text)


@lru_cache(maxsize=1)
def kernel_names(release: Release) -> dict[str, KernelName]:
    """By operator: a base name, `div.Tensor_mode` for one overload, `max()` for that without a name."""
    found: dict[str, KernelName] = {}

    def enter(operator: str, form: Form, name: str, cast: str = "", base: str = "") -> None:
        if _has_kernel(base or operator, release) and _is_named(operator, release):
            found[operator] = KernelName(form, name, cast, _missing(base or operator, release))

    castout, typed = release >= (2, 13), "_%O_%C" if release >= (2, 13) else "_%O"
    for operator in (*_words("floats"), *_words("same")):
        kernel = operator.removeprefix("special_")
        result = "%T" if operator in _words("same") else "float"
        enter(operator, Form.FIRST, f"{kernel}_%L_castout_%T" if castout else f"{kernel}_%L_{result}_%T")
    for operator in _words("numbered"):
        enter(operator, Form.FIRST, f"{operator}_%L_%T_%T_%T")
    forms = {
        **dict.fromkeys(_words("arithmetic"), Form.ARITHMETIC),
        **dict.fromkeys(_words("comparison"), Form.COMPARISON),
        **dict.fromkeys(_TABLE["quotient"], Form.QUOTIENT),
    }
    for operator, form in forms.items():
        kernel = _TABLE["quotient"].get(operator, operator)
        enter(operator, form, f"{kernel}_%B_%O_%I", f"{kernel}_%B_cast{typed}")
    for kernel, overloads in _TABLE["overloads"].items():
        names = f"{kernel}_%B_%O_%I", f"{kernel}_%B_cast{typed}"
        for overload in overloads.split():
            enter(overload, Form.ARITHMETIC, *names, base=overload.partition(".")[0].removesuffix("_"))
    for operator, name in (_TABLE["first"] | (_TABLE["first_since_2_14"] if release >= (2, 14) else {})).items():
        enter(operator, Form.FIRST, name, base=operator.partition(".")[0].removesuffix("()"))
    for operator in _words("by_ne"):
        enter(operator, Form.FIRST, "ne_%L_bool_%T", base="ne")
    for operator in _words("ordered"):
        enter(operator, Form.FIRST, "sort_block_%T_tptg32")
    enter("fill", Form.FILL, "fill_scalar_%L_%T")
    return found


def _without_name(operator: str, release: Release) -> KernelName | None:
    """What an operator (base name) that stands in no table above says of a dtype without a name; None if nothing.

    MPSGraph and other kernels than those above know the unsigned dtypes, or are left to the CPU's words about them.
    """
    if operator in _words("neither") or release >= _release("by_size", operator, _NEVER):
        return None
    other = operator.startswith("special_") or has_metal_kernel(operator, release)
    kernels = _TABLE["other_kernels"].items()
    other = other or any(release_of(since) <= release and operator in names.split() for since, names in kernels)
    return KernelName(Form.FIRST, "", "", _unnamed(release)) if other else KernelName(Form.GRAPH, "", "", _FLOAT8)


KernelRow = tuple[str, int, int, str, str]
"""(`aten::add.Tensor`, Form, bits of the dtypes without a kernel, the name, the name for operands of two dtypes)."""


def kernel_table(torch_version: str | TorchVersion) -> tuple[KernelRow, ...]:
    """The overloads of dense tensors that some dtype has no kernel for, as plain tuples for the native core.

    Raises UnsupportedTorchError like `core_table`.
    """
    release = READING.nearest(check_supported(torch_version).release)
    named = kernel_names(release)
    rows: list[KernelRow] = []
    for full, fate, _, traits, *_ in core_table(torch_version):
        if fate != Fate.NATIVE or not traits & Trait.DENSE:
            continue
        overload = full.removeprefix("aten::")
        base = overload.partition(".")[0]
        base = base if base.startswith("__") else base.removesuffix("_")
        exact = overload if "." in overload else f"{base}()"
        known = named.get(exact) or named.get(base) or _without_name(base, release)
        if known is not None:
            allocates = known.form is not Form.COMPARISON and base not in _words("other_result")
            allocates = allocates and "!" not in native_functions()[overload].schema
            missing = known.missing if allocates else (*known.missing, *_DOUBLE)
            bits = sum(1 << SCALAR_TYPES[dtype] for dtype in missing)
            rows.append((full, int(known.form), bits, known.name, known.cast))
    return tuple(rows)


def _is_named(operator: str, release: Release) -> bool:
    return _release("named_since", operator, OLDEST) <= release <= _release("named_until", operator, release)


def _has_kernel(operator: str, release: Release) -> bool:
    return has_metal_kernel(operator, release) or release >= _release("since", operator, _NEVER)


def _unnamed(release: Release) -> tuple[str, ...]:
    """The 8-bit floats that the release has no name for."""
    known = version_rules(f"{release[0]}.{release[1]}.0").float8_e4m3fn
    return tuple(dtype for dtype in _FLOAT8 if not (known and dtype == "float8_e4m3fn"))


def _missing(operator: str, release: Release) -> tuple[str, ...]:
    has = {
        dtype
        for dtypes, by_release in _TABLE["has"].items()
        for since, operators in by_release.items()
        if release_of(since) <= release and operator in operators.split()
        for dtype in dtypes.split()
    }
    return tuple(dtype for dtype in (*_UNSIGNED, *_FLOAT8) if dtype not in has)
