"""Functions whose calls touch no memory of a kernel, and those that touch the same memory whatever the values are."""

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
_FLOAT_CALLS = "exp exp2 exp10 log log2 log10 sqrt rsqrt sin cos tan sinh cosh tanh asin acos atan atan2 powr erf"
_TOGETHER = "sum product min max and or xor all any"
_SHUFFLED = "broadcast shuffle shuffle_down shuffle_up shuffle_xor shuffle_rotate_down shuffle_rotate_up"
_ATOMIC = "load store exchange fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min"

FLOATS = frozenset(
    {"half", "float", "bfloat"}
    | {f"{name}{count}" for name in ("half", "float", "bfloat") for count in (2, 3, 4)}
    | {f"{name}{a}x{b}" for name in ("half", "float") for a in (2, 3, 4) for b in (2, 3, 4)}
)
TYPES = (
    frozenset(_SCALARS.split())
    | frozenset(_OTHERS.split())
    | {f"{name}{count}" for name in _SCALARS.split() for count in (2, 3, 4)}
    | FLOATS
)
"""Types whose values hold no address."""
FLOAT_CALLS = frozenset(_FLOAT_CALLS.split())
"""What gives a floating-point number."""
PURE = frozenset(_MATH.split()) | frozenset(_BY_TORCH.split()) | TYPES
"""They take values and give values."""
WHOLE = frozenset({"floor_divide", "remainder", "fmod", "pow"})
"""The same, but with integers they divide or shift."""
VALUES_OF: dict[str, int] = {
    **dict.fromkeys(("threadgroup_barrier", "simdgroup_barrier"), 0),
    **{f"{prefix}_{name}": 1 for prefix in ("simd", "quad") for name in (_TOGETHER + " " + _SHUFFLED).split()},
    **dict.fromkeys(("simd_prefix_inclusive_sum", "simd_prefix_exclusive_sum", "simd_prod"), 1),
    **dict.fromkeys(("simd_shuffle_and_fill_down", "simd_shuffle_and_fill_up"), 2),
    **dict.fromkeys(("simd_ballot", "simd_is_first", "simd_broadcast_first"), 1),
    **dict.fromkeys(("threadgroup_sum", "threadgroup_prod", "threadgroup_max", "threadgroup_min"), 2),
    **dict.fromkeys(("threadgroup_welford_reduce", "threadgroup_welford_combine"), 1),
    **dict.fromkeys(("threadgroup_argmax", "threadgroup_argmin", "threadgroup_sum2"), 4),
}
"""What threads do together, with how many of the first arguments decide nothing: memory of the group, and values."""
ATOMIC_TYPES = frozenset({"atomic_bool", "atomic_int", "atomic_uint", "atomic_float", "atomic_ulong"})
ATOMICS = frozenset(f"atomic_{name}_explicit" for name in _ATOMIC.split())
