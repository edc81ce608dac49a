"""Functions whose calls touch no memory of a kernel, and types whose values hold no address."""

from __future__ import annotations

_SCALARS = "bool char uchar short ushort int uint long ulong half float bfloat"
_OTHERS = "unsigned size_t ptrdiff_t int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t"
_MATH = (
    "abs acos acosh asin asinh atan atan2 atanh ceil clamp clz copysign cos cosh cospi cross ctz distance dot "
    "exp exp10 exp2 fabs fdim floor fma fmax fmax3 fmedian3 fmin fmin3 fract hadd isfinite isinf isnan "
    "isnormal isordered isunordered length length_squared log log10 log2 max max3 median3 min min3 mix mulhi "
    "nextafter normalize popcount powr reflect reverse_bits rhadd rint round rsqrt saturate select sign "
    "signbit sin sinh sinpi smoothstep sqrt step tan tanh tanpi trunc all any as_type static_cast"
)
_BY_TORCH = (
    "erf erfc erfinv expm1 log1p sinc i0 i0e i1 i1e log_gamma digamma identity replace rand randn "
    "welford_combine cast_to quiet_NaN infinity lowest"
)

_FLOATS = frozenset(
    {"half", "float", "bfloat"}
    | {f"{name}{count}" for name in ("half", "float", "bfloat") for count in (2, 3, 4)}
    | {f"{name}{a}x{b}" for name in ("half", "float") for a in (2, 3, 4) for b in (2, 3, 4)}
)
TYPES = (
    frozenset(_SCALARS.split())
    | frozenset(_OTHERS.split())
    | {f"{name}{count}" for name in _SCALARS.split() for count in (2, 3, 4)}
    | _FLOATS
)
PURE = frozenset(_MATH.split()) | frozenset(_BY_TORCH.split()) | TYPES
"""They take values and give values."""
WHOLE = frozenset({"floor_divide", "remainder", "fmod", "pow"})
"""The same, but with integers they divide or shift."""
