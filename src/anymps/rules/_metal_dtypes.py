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

from anymps._vocabulary import Fate
from anymps.rules._dtypes import SCALAR_TYPES
from anymps.rules._encoding import Trait
from anymps.rules._metal_kernels import has_metal_kernel
from anymps.rules._operators import core_table
from anymps.rules._readings import Reading, Release
from anymps.rules._versions import OLDEST, TorchVersion, check_supported, version_rules
from anymps.rules._wheel import native_functions

READING: Final = Reading(
    "metal_dtypes", "names of the compiled Metal kernels in the macOS arm64 wheels", (2, 11), (2, 15)
)

_UNSIGNED: Final = ("uint16", "uint32", "uint64")
_FLOAT8: Final = ("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu")
# Reached by a view alone; a result of one is refused where it is allocated.
_DOUBLE: Final = ("float64", "complex128")


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

    In a name, %L and %B stand for how memory lies, %T for the first tensor's dtype, %O for the result's, %I for that of
    both operands, %C for the common one. `cast` is the name for operands of two dtypes.
    """

    form: Form
    name: str
    cast: str
    missing: tuple[str, ...]


_FLOATS: Final = """
    acos asin atan cos cosh digamma erf erfc erfinv exp exp2 expm1 i0 lgamma log log10 log1p log2 reciprocal rsqrt
    sigmoid sin sinc sinh sqrt tan tanh special_entr
"""
_SAME: Final = "abs bitwise_not hardsigmoid hardswish neg relu silu gelu mish"
_NUMBERED: Final = "hardshrink softshrink leaky_relu"
_ARITHMETIC: Final = """
    add sub mul copysign fmax fmin hypot logaddexp logaddexp2 maximum minimum nextafter gcd lcm bitwise_and bitwise_or
    bitwise_xor bitwise_left_shift bitwise_right_shift remainder fmod igamma igammac
"""
_COMPARISON: Final = "eq ne lt le gt ge logical_and logical_or logical_xor"
_QUOTIENT: Final = {"div": "div_true", "atan2": "atan2", "xlogy": "xlogy", "special_xlog1py": "xlog1py"}
# Overloads with a kernel of another name than that of the others.
_OVERLOADS: Final = {
    **dict.fromkeys(("div.Tensor_mode", "div_.Tensor_mode", "div.out_mode"), "div_floor"),
    **dict.fromkeys(("floor_divide", "floor_divide_.Tensor", "floor_divide.out"), "div_floor"),
}
# Names made of the first tensor's dtype: (of torch 2.13, of 2.14 and later if it is another).
_FIRST: Final = {
    "sum": ("sum_reduction_%T_long", "sum_reduction_flat_%T_long"),
    "any": ("any_reduction_%T_uchar", "any_reduction_flat_%T_uchar"),
    "all": ("all_reduction_%T_uchar", "all_reduction_flat_%T_uchar"),
    "amax": ("max_reduction_%T_%T", "max_reduction_flat_%T_%T"),
    "amin": ("min_reduction_%T_%T", "min_reduction_flat_%T_%T"),
    "argmax": ("argmax_reduction_%T_long", "argmax_reduction_combine_%T"),
    "argmin": ("argmin_reduction_%T_long", "argmin_reduction_combine_%T"),
    "count_nonzero": ("count_nonzero_reduction_%T_long", "count_nonzero_reduction_flat_%T_long"),
    "clamp": ("clamp_scalar_%L_%T_%T_ClampScalarParams_%T",),
    "clamp_min": ("clamp_min_scalar_%L_%T_%T_%T",),
    "clamp_max": ("clamp_max_scalar_%L_%T_%T_%T",),
    "gather": ("gather_%L_%T_long",),
    "scatter": ("scatter_set_%L_%T_long",),
    "scatter_add": ("scatter_add_%L_%T_long",),
    "index_fill": ("index_fill_%L_%T",),
    "linalg_cross": ("cross_%L_%T",),
    "tril": ("tril_int_%T",),
    "triu": ("triu_int_%T",),
    "eye": ("eye_%T",),
    "bernoulli": ("bernoulli_scalar_%T",),
    "bucketize": ("searchsorted_%T_long",),
    "searchsorted": ("searchsorted_%T_long",),
    "arange": ("arange_%T_i32",),
    "linspace": ("linspace_%T_i32",),
    "index_add": ("index_add_%T_long",),
    "cat": ("cat_int32_t_%T_%T",),
    "roll": ("cat_int32_t_%T_%T",),
    "nonzero": ("count_nonzero_prefix_sum_%T", "count_nonzero_prefix_sum_%T_uint"),
    "where": ("where_%L_%T_bool",),
    "constant_pad_nd": ("constant_pad_nd_dense_%T",),
    **{
        f"{name}{end}": (f"{name}_reduction_%T_%T", f"{name}_reduction_flat_%T_%T")
        for name in ("max", "min")
        for end in ("()", ".unary_out")
    },
}
# Made of `ne`.
_BY_NE: Final = ("isnan", "equal")
_ORDERED: Final = ("sort", "topk")
# Releases of kernels that `_metal_kernels` does not list.
_SINCE: Final = {"nonzero": (2, 12), "roll": (2, 11)}
# The first and the last release whose names are those above, where others have other names.
_NAMED_SINCE: Final = {"digamma": (2, 12), "lgamma": (2, 12), "linalg_cross": (2, 12)}
_NAMED_UNTIL: Final = {"relu": (2, 14)}
# Kernels that go by an element's size, by the first release; MPSGraph computes before.
_BY_SIZE: Final = {"index_select": (2, 14), "flip": (2, 15)}
# The result of any dtype is allocated, which refuses float64, but for these.
_OTHER_RESULT: Final = "all any argmax argmin bucketize count_nonzero equal isnan nonzero searchsorted"
# The first release whose wheel has kernels of a rare dtype, by operator.
_HAS: Final[dict[tuple[str, ...], dict[Release, str]]] = {
    _UNSIGNED: {
        (2, 11): "cat roll",
        (2, 12): "fill",
        (2, 13): "sort topk",
        (2, 15): "constant_pad_nd eq ge gt le logical_and logical_or logical_xor lt ne where",
    },
    ("float8_e4m3fn",): {(2, 15): "cat constant_pad_nd eq eye gather ne roll scatter"},
}
# Kernels whose names depend on more than a dtype, by the first release; all of `special_` but what stands above.
_OTHER_KERNELS: Final = {
    (2, 11): """
        _embedding_bag _embedding_bag_backward _embedding_bag_per_sample_weights_backward _logcumsumexp _softmax
        _upsample_bicubic2d_aa _upsample_bilinear2d_aa cauchy geometric log_normal unfold_backward
        upsample_bicubic2d_backward upsample_linear1d
    """,
    (2, 12): "_standard_gamma _standard_gamma_grad exponential grid_sampler_3d index_reduce norm",
    (2, 13): """
        _assert_async _cdist_backward _dirichlet_grad grid_sampler_2d_backward grid_sampler_3d_backward
        replication_pad1d replication_pad1d_backward
    """,
    (2, 14): "_unique _unique2 upsample_nearest1d",
    (2, 15): """
        _grouped_mm _scaled_mm_v2 histc reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d
        replication_pad3d
    """,
}
# Operators of dense tensors that read no element, go by its size, check for themselves or are made of others.
_NEITHER: Final = """
    _copy_from _copy_from_and_resize _efficientzerotensor _index_put_impl _local_scalar_dense _reshape_alias _to_copy
    _convert_weight_to_int4pack as_strided clone conj_physical contiguous copy empty empty_strided index
    is_set_to masked_fill masked_select mean permute polar complex random randperm
    repeat_interleave resize round floor ceil trunc set stack tril_indices triu_indices uniform normal unfold view
    view_as_complex view_as_real zero max min cumsum cumprod _weight_int4pack_mm _weight_int8pack_mm
"""


@lru_cache(maxsize=1)
def kernel_names(release: Release) -> dict[str, KernelName]:
    """By operator: a base name, `div.Tensor_mode` for one overload, `max()` for that without a name."""
    found: dict[str, KernelName] = {}

    def enter(operator: str, form: Form, name: str, cast: str = "", base: str = "") -> None:
        if _has_kernel(base or operator, release) and _is_named(operator, release):
            found[operator] = KernelName(form, name, cast, _missing(base or operator, release))

    castout, typed = release >= (2, 13), "_%O_%C" if release >= (2, 13) else "_%O"
    for operator in (*_FLOATS.split(), *_SAME.split()):
        kernel = operator.removeprefix("special_")
        result = "%T" if operator in _SAME.split() else "float"
        enter(operator, Form.FIRST, f"{kernel}_%L_castout_%T" if castout else f"{kernel}_%L_{result}_%T")
    for operator in _NUMBERED.split():
        enter(operator, Form.FIRST, f"{operator}_%L_%T_%T_%T")
    forms = {
        **dict.fromkeys(_ARITHMETIC.split(), Form.ARITHMETIC),
        **dict.fromkeys(_COMPARISON.split(), Form.COMPARISON),
    }
    for operator, form in {**forms, **dict.fromkeys(_QUOTIENT, Form.QUOTIENT)}.items():
        kernel = _QUOTIENT.get(operator, operator)
        enter(operator, form, f"{kernel}_%B_%O_%I", f"{kernel}_%B_cast{typed}")
    for overload, kernel in _OVERLOADS.items():
        names = f"{kernel}_%B_%O_%I", f"{kernel}_%B_cast{typed}"
        enter(overload, Form.ARITHMETIC, *names, base=overload.partition(".")[0].removesuffix("_"))
    for operator, (name, *later) in _FIRST.items():
        base = operator.partition(".")[0].removesuffix("()")
        enter(operator, Form.FIRST, later[0] if later and release >= (2, 14) else name, base=base)
    for operator in _BY_NE:
        enter(operator, Form.FIRST, "ne_%L_bool_%T", base="ne")
    for operator in _ORDERED:
        enter(operator, Form.FIRST, "sort_block_%T_tptg32")
    enter("fill", Form.FILL, "fill_scalar_%L_%T")
    return found


def _without_name(operator: str, release: Release) -> KernelName | None:
    """What an operator (base name) that stands in no table above says of a dtype without a name; None if nothing.

    MPSGraph and other kernels than those above know the unsigned dtypes, or are left to the CPU's words about them.
    """
    if operator in _NEITHER.split() or release >= _BY_SIZE.get(operator, (9, 9)):
        return None
    other = operator.startswith("special_") or has_metal_kernel(operator, release)
    other = other or any(since <= release and operator in names.split() for since, names in _OTHER_KERNELS.items())
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
            allocates = known.form is not Form.COMPARISON and base not in _OTHER_RESULT.split()
            allocates = allocates and "!" not in native_functions()[overload].schema
            missing = known.missing if allocates else (*known.missing, *_DOUBLE)
            bits = sum(1 << SCALAR_TYPES[dtype] for dtype in missing)
            rows.append((full, int(known.form), bits, known.name, known.cast))
    return tuple(rows)


def _is_named(operator: str, release: Release) -> bool:
    return _NAMED_SINCE.get(operator, OLDEST) <= release <= _NAMED_UNTIL.get(operator, release)


def _has_kernel(operator: str, release: Release) -> bool:
    return has_metal_kernel(operator, release) or release >= _SINCE.get(operator, (9, 9))


def _unnamed(release: Release) -> tuple[str, ...]:
    """The 8-bit floats that the release has no name for."""
    known = version_rules(f"{release[0]}.{release[1]}.0").float8_e4m3fn
    return tuple(dtype for dtype in _FLOAT8 if not (known and dtype == "float8_e4m3fn"))


def _missing(operator: str, release: Release) -> tuple[str, ...]:
    has = {
        dtype
        for dtypes, by_release in _HAS.items()
        for since, operators in by_release.items()
        if since <= release and operator in operators.split()
        for dtype in dtypes
    }
    return tuple(dtype for dtype in (*_UNSIGNED, *_FLOAT8) if dtype not in has)
