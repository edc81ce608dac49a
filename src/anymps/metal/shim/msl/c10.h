// Functions of c10/metal in a form of which compilers make vector code. Where the arguments fit they are chosen before the
// templates of the installed torch, and give the same bits.
#pragma once

#include <msl/polynomials.h>
#include <msl/sync.h>
#include <msl/welford.h>

namespace c10 {
namespace metal {

// `isunordered(a, b) ? NAN : metal::max(a, b)` without a branch: in a loop unrolled, g++ makes a way of its own for values
// behind a NaN, and then no vector code. Of equal zeros the first one wins, so the comparison is that of processors' max.
#define ANYMPS_SPREADS_NAN(NAME, COMPARISON)                                                               \
  ANYMPS_INLINE float NAME(float a, float b) {                                                             \
    const float ordered = b COMPARISON a ? b : a;                                                          \
    const int nan = -int(__builtin_isunordered(a, b));                                                     \
    return anymps_math::bits_to_float((anymps_math::float_to_bits(ordered) & ~nan) | (0x7fc00000 & nan));  \
  }
ANYMPS_SPREADS_NAN(max, >)
ANYMPS_SPREADS_NAN(min, <)
#undef ANYMPS_SPREADS_NAN

// As fibers run it: what msl/fission.h does with rows side by side. The checker looks at all reads of the row first.
#define ANYMPS_WELFORD(NAME, KIND)                                                            \
  ANYMPS_SYNC inline ::metal::float3 NAME(anymps_welford::KIND::Element* data, unsigned size) { \
    ::metal::threadgroup_barrier(::metal::mem_flags::mem_threadgroup);                        \
    const ::metal::float3 result = anymps_welford::of_row<anymps_welford::KIND>(data, size);  \
    ::metal::threadgroup_barrier(::metal::mem_flags::mem_threadgroup);                        \
    return result;                                                                            \
  }
ANYMPS_WELFORD(threadgroup_welford_reduce, Elements)
ANYMPS_WELFORD(threadgroup_welford_combine, Parts)
#undef ANYMPS_WELFORD

}  // namespace metal
}  // namespace c10
