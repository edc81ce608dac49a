// What Metal's own headers are written with. Programs that add overloads to `metal` call it too (for bfloat, mostly).
//
// The last argument of a function says how exact it is; here all are as exact as they can be.
#pragma once

#include <msl/math.h>
#include <msl/sync.h>

#define __METAL_PRECISE_MATH__ 0
#define __METAL_FAST_MATH__ 1
#define __METAL_MAYBE_FAST_MATH__ 2

#define ANYMPS_BUILTIN_1(BUILTIN, NAME) \
  template <class T> ANYMPS_INLINE T BUILTIN(T x, int = 0) { return metal::NAME(x); }
#define ANYMPS_BUILTIN_2(BUILTIN, NAME) \
  template <class T> ANYMPS_INLINE T BUILTIN(T x, T y, int = 0) { return metal::NAME(x, y); }
#define ANYMPS_BUILTIN_3(BUILTIN, NAME) \
  template <class T> ANYMPS_INLINE T BUILTIN(T x, T y, T z, int = 0) { return metal::NAME(x, y, z); }
ANYMPS_BUILTIN_1(__metal_acos, acos) ANYMPS_BUILTIN_1(__metal_acosh, acosh) ANYMPS_BUILTIN_1(__metal_asin, asin)
ANYMPS_BUILTIN_1(__metal_asinh, asinh) ANYMPS_BUILTIN_1(__metal_atan, atan) ANYMPS_BUILTIN_1(__metal_atanh, atanh)
ANYMPS_BUILTIN_1(__metal_ceil, ceil) ANYMPS_BUILTIN_1(__metal_cos, cos) ANYMPS_BUILTIN_1(__metal_cosh, cosh)
ANYMPS_BUILTIN_1(__metal_cospi, cospi) ANYMPS_BUILTIN_1(__metal_exp, exp) ANYMPS_BUILTIN_1(__metal_exp10, exp10)
ANYMPS_BUILTIN_1(__metal_exp2, exp2) ANYMPS_BUILTIN_1(__metal_fabs, fabs) ANYMPS_BUILTIN_1(__metal_floor, floor)
ANYMPS_BUILTIN_1(__metal_fract, fract) ANYMPS_BUILTIN_1(__metal_log, log) ANYMPS_BUILTIN_1(__metal_log10, log10)
ANYMPS_BUILTIN_1(__metal_log2, log2) ANYMPS_BUILTIN_1(__metal_rint, rint) ANYMPS_BUILTIN_1(__metal_round, round)
ANYMPS_BUILTIN_1(__metal_rsqrt, rsqrt) ANYMPS_BUILTIN_1(__metal_sin, sin) ANYMPS_BUILTIN_1(__metal_sinh, sinh)
ANYMPS_BUILTIN_1(__metal_sinpi, sinpi) ANYMPS_BUILTIN_1(__metal_sqrt, sqrt) ANYMPS_BUILTIN_1(__metal_tan, tan)
ANYMPS_BUILTIN_1(__metal_tanh, tanh) ANYMPS_BUILTIN_1(__metal_tanpi, tanpi) ANYMPS_BUILTIN_1(__metal_trunc, trunc)
ANYMPS_BUILTIN_2(__metal_atan2, atan2) ANYMPS_BUILTIN_2(__metal_divide, divide) ANYMPS_BUILTIN_2(__metal_fmax, fmax)
ANYMPS_BUILTIN_2(__metal_fmin, fmin) ANYMPS_BUILTIN_2(__metal_fmod, fmod) ANYMPS_BUILTIN_2(__metal_nextafter, nextafter)
ANYMPS_BUILTIN_2(__metal_pow, pow) ANYMPS_BUILTIN_2(__metal_powr, powr)
ANYMPS_BUILTIN_3(__metal_fma, fma) ANYMPS_BUILTIN_3(__metal_fmax3, fmax3) ANYMPS_BUILTIN_3(__metal_fmin3, fmin3)
ANYMPS_BUILTIN_3(__metal_fmedian3, fmedian3)
template <class T> ANYMPS_INLINE T __metal_ldexp(T x, int k, int = 0) { return metal::ldexp(x, k); }
template <class T> ANYMPS_INLINE T __metal_frexp(T x, int* k, int = 0) { return metal::frexp(x, *k); }

#define ANYMPS_BUILTIN_SIMD(BUILTIN, NAME) \
  template <class T> ANYMPS_SYNC T BUILTIN(T x, unsigned long place = ANYMPS_WHERE) { return metal::NAME(x, place); }
#define ANYMPS_BUILTIN_SHUFFLE(BUILTIN, NAME) \
  template <class T> ANYMPS_SYNC T BUILTIN(T x, ushort by, unsigned long place = ANYMPS_WHERE) { return metal::NAME(x, by, place); }
#define ANYMPS_BUILTIN_FILL(BUILTIN, NAME)                                                             \
  template <class T> ANYMPS_SYNC T BUILTIN(T x, T fill, ushort by, ushort modulo, unsigned long place = ANYMPS_WHERE) { \
    return metal::NAME(x, fill, by, modulo, place);                                                    \
  }
ANYMPS_BUILTIN_SIMD(__metal_simd_max, simd_max) ANYMPS_BUILTIN_SIMD(__metal_simd_min, simd_min)
ANYMPS_BUILTIN_SIMD(__metal_simd_product, simd_product) ANYMPS_BUILTIN_SIMD(__metal_simd_sum, simd_sum)
ANYMPS_BUILTIN_SIMD(__metal_simd_prefix_exclusive_product, simd_prefix_exclusive_product)
ANYMPS_BUILTIN_SIMD(__metal_simd_prefix_exclusive_sum, simd_prefix_exclusive_sum)
ANYMPS_BUILTIN_SIMD(__metal_simd_prefix_inclusive_product, simd_prefix_inclusive_product)
ANYMPS_BUILTIN_SIMD(__metal_simd_prefix_inclusive_sum, simd_prefix_inclusive_sum)
template <class T> ANYMPS_SYNC T __metal_simd_xor(T x, unsigned long place = ANYMPS_WHERE) {  // of a float: of its bits
  return __builtin_bit_cast(T, metal::simd_xor(__builtin_bit_cast(uint, x), place));
}
ANYMPS_BUILTIN_SHUFFLE(__metal_simd_broadcast, simd_broadcast) ANYMPS_BUILTIN_SHUFFLE(__metal_simd_shuffle, simd_shuffle)
ANYMPS_BUILTIN_SHUFFLE(__metal_simd_shuffle_down, simd_shuffle_down)
ANYMPS_BUILTIN_SHUFFLE(__metal_simd_shuffle_rotate_down, simd_shuffle_rotate_down)
ANYMPS_BUILTIN_SHUFFLE(__metal_simd_shuffle_rotate_up, simd_shuffle_rotate_up)
ANYMPS_BUILTIN_SHUFFLE(__metal_simd_shuffle_up, simd_shuffle_up)
ANYMPS_BUILTIN_SHUFFLE(__metal_simd_shuffle_xor, simd_shuffle_xor)
ANYMPS_BUILTIN_FILL(__metal_simd_shuffle_and_fill_down, simd_shuffle_and_fill_down)
ANYMPS_BUILTIN_FILL(__metal_simd_shuffle_and_fill_up, simd_shuffle_and_fill_up)
inline ushort __metal_get_simdgroup_size(ushort) { return 32; }
inline ushort __metal_get_thread_index_in_simdgroup(ushort) { return ushort(anymps_rt_lane()); }
#undef ANYMPS_BUILTIN_1
#undef ANYMPS_BUILTIN_2
#undef ANYMPS_BUILTIN_3
#undef ANYMPS_BUILTIN_SIMD
#undef ANYMPS_BUILTIN_SHUFFLE
#undef ANYMPS_BUILTIN_FILL
