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

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from anymps.rules._limits import ERROR_CLASSES, OPERATOR_LIMITS
from anymps.rules._operators import core_table
from anymps.rules._readings import Reading, Release, holds, in_force
from anymps.rules._versions import OLDEST, TorchVersion, check_supported
from anymps.rules.texts import BackendText, missing_kernel

READING: Final = Reading(
    "dtypes",
    "OpInfo.dtypesIfMPS and common_mps.py of the wheels; C strings and Metal kernel names of the macOS arm64 wheels",
    (2, 11),
    (2, 15),
)

SCALAR_TYPES: Final[dict[str, int]] = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "complex32": 8,
    "complex64": 9,
    "complex128": 10,
    "bool": 11,
    "bfloat16": 15,
    "float8_e5m2": 23,
    "float8_e4m3fn": 24,
    "float8_e5m2fnuz": 25,
    "float8_e4m3fnuz": 26,
    "uint16": 27,
    "uint32": 28,
    "uint64": 29,
    "float8_e8m0fnu": 44,
}
"""The numbers of `c10::ScalarType`, by the name of the dtype."""

_INTEGERS: Final = ("bool", "uint8", "int8", "int16", "int32", "int64")
_UNSIGNED: Final = {"uint16": "ushort", "uint32": "uint", "uint64": "ulong"}
_FLOAT8: Final = ("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu")
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


def _row(
    operators: str,
    dtypes: Iterable[str],
    text: str | BackendText,
    since: Release = OLDEST,
    until: Release | None = None,
) -> DtypeRefusal:
    said = text if isinstance(text, BackendText) else BackendText("RuntimeError", text)
    return DtypeRefusal(tuple(operators.split()), tuple(dtypes), said, since, until)


def _limit_row(operators: str, dtypes: Iterable[str], limit: str) -> DtypeRefusal:
    known = OPERATOR_LIMITS[limit]
    return _row(operators, dtypes, BackendText(known.error, known.text), known.since, known.until)


class _Range(NamedTuple):
    since: Release = OLDEST
    until: Release | None = None


_COMPLEX: Final = ("complex64",)
_HALVES: Final = ("float16", "bfloat16")
_OTHER_FLOAT8: Final = {
    "float8_e5m2": "Float8_e5m2",
    "float8_e5m2fnuz": "Float8_e5m2fnuz",
    "float8_e4m3fnuz": "Float8_e4m3fnuz",
}

_NOT_IN_HISTOGRAMS: Final = {
    "float16": "Half",
    "bfloat16": "BFloat16",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
}

_PRODUCTS: Final = (
    ("mm addmv", "matmul", None),
    ("addmm", "addmm", None),
    ("bmm", "naive_bmm", None),
    ("baddbmm", "naive_baddbmm", (2, 14)),  # 2.15 was not read
    ("addbmm", "naive_addbmm", (2, 14)),
)

REFUSED_DTYPES: Final = (
    _row("convolution _convolution", (*_INTEGERS, *_UNSIGNED), "Convolution is supported only for Floating types"),
    _limit_row("linear", (*_INTEGERS, *_UNSIGNED, *_FLOAT8), "linear"),
    _row("addr", (*_INTEGERS, *_UNSIGNED, *_FLOAT8), "MPS device does not support addr for non-float input"),
    # products of whole numbers go to Metal kernels (`use_metal_mm`), of which none has these
    *(
        _row(operators, (dtype,), missing_kernel(f"{kernel}_{name}"), until=until)
        for operators, kernel, until in _PRODUCTS
        for dtype, name in {"bool": "bool", **_UNSIGNED}.items()
    ),
    _row("index_reduce", ("int64",), "index_reduce for MPS does not support torch.long dtype", (2, 12)),
    _row("index_reduce", _COMPLEX, "index_reduce for MPS does not support torch.cfloat dtype", (2, 12)),
    _row("_upsample_bilinear2d_aa", ("uint8",), "_upsample_bilineard2d_aa_out_mps only supports floating-point dtypes"),
    _row("_upsample_bicubic2d_aa", ("uint8",), "_upsample_bicubic2d_aa_out_mps only supports floating-point dtypes"),
    _row("upsample_bicubic2d", ("uint8",), missing_kernel("upsample_bicubic2d_uchar")),
    _limit_row("native_batch_norm _native_batch_norm_legit _batch_norm_with_update", ("int64",), "batch norm int64"),
    _row("renorm", _COMPLEX, missing_kernel("renorm_float2")),
    _limit_row("conj_physical.out", (*_INTEGERS, "float16", "bfloat16", "float32"), "conj_physical real"),
    _row("silu", _COMPLEX, missing_kernel("silu_dense_float2_float2"), (2, 12), (2, 14)),
    _row("relu", ("bool",), missing_kernel("relu_dense_bool_bool"), (2, 15)),
    # complex numbers up to torch 2.11
    *(
        _row(operators, _COMPLEX, text, until=(2, 11))
        for operators, text in {
            "cumprod cumsum": "cumulative ops are not yet supported for complex",
            "dist linalg_vector_norm norm": "norm ops are not supported for complex yet",
            "gather": "gather(): Yet not supported for complex",
            "index_fill": "index_fill_(): Complex types are yet not supported",
            "linear": "mps linear does not support complex types",
            "repeat": "repeat(): Not supported for complex yet!",
            "scatter scatter_add scatter_reduce": "scatter(): Yet not supported for complex",
        }.items()
    ),
    _row("linalg_cross", _COMPLEX, missing_kernel("cross_float2"), until=(2, 11)),
    _row("unfold_backward", _COMPLEX, missing_kernel("unfold_backward_float2"), until=(2, 11)),
    # histogramdd_kernel_impl: for float alone in torch 2.11, for all floats in 2.12, for integers too from 2.13 on
    *(
        _row(
            "_histogramdd_from_bin_cts _histogramdd_from_bin_tensors histc",
            (dtype,),
            f"\"histogram_mps\" not implemented for '{scalar_type}'",
            until=(2, 11) if dtype in _HALVES else (2, 12),
        )
        for dtype, scalar_type in _NOT_IN_HISTOGRAMS.items()
    ),
    _row("logspace", _INTEGERS, "logspace is not implemented for integral dtypes on MPS", (2, 15)),
    _row("searchsorted bucketize", ("bool",), missing_kernel("searchsorted_bool_long")),
    _row("searchsorted bucketize", _COMPLEX, missing_kernel("searchsorted_float2_long")),
    _row("index _index_put_impl masked_fill", ("complex128",), "Unsupported data type: Undefined"),
    # linear algebra: float32 alone
    _row("cholesky_inverse", _COMPLEX, "cholesky_inverse: MPS only supports float type!"),
    _row(
        "cholesky linalg_cholesky_ex",  # a Mac computes nonsense and says so
        _COMPLEX,
        "linalg.cholesky: The factorization could not be completed because the input is not positive-definite",
        until=(2, 13),
    ),
    _row("linalg_inv_ex", _COMPLEX, "linalg_inv: not supported for complex types yet!"),
    _limit_row("linalg_lu_factor_ex linalg_lu _linalg_det _linalg_slogdet", _COMPLEX, "lu_factor complex"),
    _limit_row("_linalg_solve_ex", _COMPLEX, "lu_factor dtype"),
    _row("_linalg_solve_ex", _COMPLEX, OPERATOR_LIMITS["lu_factor complex"].text, (2, 14), (2, 14)),
    _row("linalg_lu_solve", _COMPLEX, "linalg.lu_solve(): MPS only supports float32.", (2, 14), (2, 14)),
    _limit_row("linalg_qr", (*_COMPLEX, *_HALVES), "linalg_qr dtype"),
    _row("geqrf linalg_qr", _COMPLEX, missing_kernel("geqrf_float2"), (2, 14)),
    _row(
        "linalg_solve_triangular triangular_solve _cholesky_solve_helper",
        _COMPLEX,
        "linalg.solve.triangular(); Only float is supported!",
        until=(2, 14),
    ),
    # float8: one type alone
    *(
        _row("_scaled_mm_v2", (dtype,), f"Expected mat_a to be Float8_e4m3fn matrix got {scalar_type}", (2, 15))
        for dtype, scalar_type in _OTHER_FLOAT8.items()
    ),
)
"""What MPS refuses and the CPU computes."""

# Dtypes, then the operators whose MPS kernel has them and whose CPU kernel has not (base names).
_WIDENED: Final = {
    "bool": """
        ceil dot floor floor_divide fmod kthvalue linspace max_pool2d
        max_pool2d_with_indices max_pool3d_with_indices median
        nanmedian pow reflection_pad1d reflection_pad2d reflection_pad3d relu remainder replication_pad1d
        replication_pad2d replication_pad3d scatter_reduce threshold trace trunc vdot
    """,
    "bool uint8 int8 int16 int32 int64": """
        adaptive_max_pool2d lerp max_pool2d_with_indices_backward max_unpool2d max_unpool3d nll_loss2d_forward
        nll_loss_forward
    """,
    "bool uint8 int8 int16 int32": """
        avg_pool2d avg_pool3d glu huber_loss log_sigmoid_forward mish native_batch_norm silu softplus std_mean
        var_mean
    """,
    "uint8 int8 int16 int32 int64": "histc round",
    "uint8 int8 int16 int32": "_log_softmax native_group_norm",
    "complex64": "native_dropout_backward",
    "uint16 uint32": "ge gt le lt",
    "uint16 uint32 uint64": "flip index_select masked_fill",
    "float16": "_cdist_backward _fft_r2c avg_pool3d_backward polar",
    "float16 bfloat16": """
        _cdist_forward avg_pool3d grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward
        linalg_householder_product special_bessel_j0 special_bessel_j1 special_bessel_y0
        special_bessel_y1 special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
        special_chebyshev_polynomial_w special_erfcx special_hermite_polynomial_h special_hermite_polynomial_he
        special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
        special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t
        special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
        special_laguerre_polynomial_l special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 special_zeta
        trace
    """,
}
# Where the wheel of a later release gives no text, the CPU's words stand.
_UNTIL_2_12: Final = ("native_dropout_backward", "native_group_norm", "scatter_reduce", "std_mean", "var_mean")
_UNTIL_2_13: Final = ("log_sigmoid_forward", "median", "nanmedian", "native_batch_norm")
_UNTIL_2_14: Final = """
    _log_softmax ceil floor mish nll_loss2d_forward nll_loss_forward relu softplus trunc
"""
# The first and last release whose lists have the dtypes above, where that is not every one.
_WIDENED_IN: Final = {
    **dict.fromkeys(_UNTIL_2_12, _Range(until=(2, 12))),
    **dict.fromkeys(_UNTIL_2_13, _Range(until=(2, 13))),
    **dict.fromkeys(_UNTIL_2_14.split(), _Range(until=(2, 14))),
    "histc": _Range((2, 13)),
    **dict.fromkeys(("flip", "ge", "gt", "le", "lt"), _Range((2, 15))),
    "special_laguerre_polynomial_l": _Range((2, 15)),
}
# A release whose lists have fewer of the dtypes.
_FEWER: Final = {
    ("native_group_norm", (2, 11)): ("int16", "int32"),
    ("trace", (2, 11)): ("bool",),
    **{("trace", (2, minor)): ("bool",) for minor in (13, 14, 15)},  # the CPU has the others, too
}
# Sums of bools are int64: the wide result stays.
_KEPT_WIDE: Final = frozenset({"trace"})
# The CPU's half kernels round on the way, MPS rounds the sums once.
_ALWAYS_WIDE: Final = frozenset(
    ["grid_sampler_2d", "grid_sampler_2d_backward", "grid_sampler_3d", "grid_sampler_3d_backward"]
)

DtypeRow = tuple[str, tuple[tuple[int, int, str], ...], int, int]
"""(`aten::silu`, ((ScalarType, error class, text), ...), bits of the widened types, 1 if results stay wide or 2 if the
wider type is taken even where the CPU has the dtype)."""


def widened_dtypes(operator: str, version: str | TorchVersion) -> tuple[str, ...]:
    """Dtypes that the operator (base name) computes on MPS and not on the CPU, where a wider type must stand in.

    Raises UnsupportedTorchError for a release outside the supported range.
    """
    release = check_supported(version).release
    if not holds(_WIDENED_IN.get(operator, _Range()), release):
        return ()
    names = [name for dtypes, operators in _WIDENED.items() if operator in operators.split() for name in dtypes.split()]
    fewer = _FEWER.get((operator, release), names)
    return tuple(name for name in names if name in fewer)


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
            rows.append((full, tuple(refused), widened, 1 if name in _KEPT_WIDE else 2 if name in _ALWAYS_WIDE else 0))
    return tuple(rows)


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    widened = {name for operators in _WIDENED.values() for name in operators.split()}
    return frozenset(widened.union(*(row.operators for row in REFUSED_DTYPES)))
