// The functions of `metal`, `metal::precise` and `metal::fast` on scalars and vectors.
//
// Overloads for concrete types, no templates: a program may have templates of the same names, over which these must win,
// and calls with several types must be as ambiguous as they are for Metal's own compiler.
#pragma once

#include <msl/polynomials.h>
#include <msl/traits.h>

#define ANYMPS_FLOATS(F) F(float) F(half) F(bfloat)
#define ANYMPS_INTEGERS(F) F(char) F(uchar) F(short) F(ushort) F(int) F(uint) F(long) F(ulong)
#define ANYMPS_SIGNED(F) F(char) F(short) F(int) F(long)

namespace anymps_math {

ANYMPS_INLINE float sinpi(float x) {
  const float n = __builtin_rintf(x * 0.5f);
  const float r = x - 2.0f * n;  // exact
  const float folded = r > 0.5f ? 1.0f - r : (r < -0.5f ? -1.0f - r : r);
  return __builtin_sin(static_cast<double>(folded) * 3.14159265358979323846);
}
ANYMPS_INLINE float cospi(float x) {
  const float n = __builtin_rintf(x * 0.5f);
  return __builtin_cos(static_cast<double>(x - 2.0f * n) * 3.14159265358979323846);
}
ANYMPS_INLINE float tanpi(float x) { return sinpi(x) / cospi(x); }
ANYMPS_INLINE float exp10(float x) { return __builtin_exp2(static_cast<double>(x) * 3.32192809488736234787); }
ANYMPS_INLINE float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
ANYMPS_INLINE float fract(float x) {
  const float r = x - __builtin_floorf(x);
  return r < 1.0f ? r : (x == x ? 0.999999940395355224609375f : x);
}
ANYMPS_INLINE float sign(float x) { return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : 0.0f * (x == x ? x : 0.0f)); }
// Without branches, so that loops become vector code: the first of two equal values, and what is no NaN.
ANYMPS_INLINE float fmin(float a, float b) { return b != b ? a : !(a <= b) ? b : a; }
ANYMPS_INLINE float fmax(float a, float b) { return b != b ? a : !(a >= b) ? b : a; }
ANYMPS_INLINE float trunc_mod(float a, float b) { return __builtin_fmodf(a, b); }
ANYMPS_INLINE float saturate(float x) { return fmin(fmax(x, 0.0f), 1.0f); }
ANYMPS_INLINE float smoothstep(float low, float high, float x) {
  const float t = saturate((x - low) / (high - low));
  return t * t * (3.0f - 2.0f * t);
}

}  // namespace anymps_math

// Scalars of bfloat are templates with an empty pack, over which any function of the program's own wins: Metal has none
// of these, and programs add them to `metal`.
#define ANYMPS_BFLOAT_ONLY \
  template <class T, class... Ignored, class = enable_if_t<is_same<T, bfloat>::value && sizeof...(Ignored) == 0>> ANYMPS_INLINE
#define ANYMPS_OF_BFLOAT ANYMPS_BFLOAT_ONLY bfloat

// By element, written out: what is a template here would be instantiated for every shader, used or not, and that takes
// longer than to compile a small one.
#define ANYMPS_UNARY_VECTORS_TO(R, NAME, T) \
  ANYMPS_INLINE R##2 NAME(T##2 a) { return R##2(R##2::cells{{R(NAME(a.x)), R(NAME(a.y))}}); } \
  ANYMPS_INLINE R##3 NAME(T##3 a) { return R##3(R##3::cells{{R(NAME(a.x)), R(NAME(a.y)), R(NAME(a.z))}}); } \
  ANYMPS_INLINE R##4 NAME(T##4 a) { return R##4(R##4::cells{{R(NAME(a.x)), R(NAME(a.y)), R(NAME(a.z)), R(NAME(a.w))}}); }
#define ANYMPS_UNARY_VECTORS(NAME, T) ANYMPS_UNARY_VECTORS_TO(T, NAME, T)
// One function of one number: scalars of the three types through float.
#define ANYMPS_UNARY_FLOAT(NAME, EXPRESSION)             \
  ANYMPS_INLINE float NAME(float x) { return EXPRESSION; } \
  ANYMPS_UNARY_VECTORS(NAME, float)
#define ANYMPS_UNARY(NAME, EXPRESSION)                                                            \
  ANYMPS_UNARY_FLOAT(NAME, EXPRESSION)                                                            \
  ANYMPS_INLINE half NAME(half x) { return static_cast<half>(NAME(static_cast<float>(x))); }      \
  ANYMPS_UNARY_VECTORS(NAME, half)                                                                \
  ANYMPS_OF_BFLOAT NAME(T x, Ignored...) { return bfloat(NAME(static_cast<float>(x))); }          \
  ANYMPS_UNARY_VECTORS(NAME, bfloat)
#define ANYMPS_BINARY_VECTORS(NAME, T) \
  ANYMPS_INLINE T##2 NAME(T##2 a, T##2 b) { return T##2(T##2::cells{{T(NAME(a.x, b.x)), T(NAME(a.y, b.y))}}); } \
  ANYMPS_INLINE T##3 NAME(T##3 a, T##3 b) { return T##3(T##3::cells{{T(NAME(a.x, b.x)), T(NAME(a.y, b.y)), T(NAME(a.z, b.z))}}); } \
  ANYMPS_INLINE T##4 NAME(T##4 a, T##4 b) { return T##4(T##4::cells{{T(NAME(a.x, b.x)), T(NAME(a.y, b.y)), T(NAME(a.z, b.z)), T(NAME(a.w, b.w))}}); }
#define ANYMPS_BINARY_FLOAT(NAME, EXPRESSION)                       \
  ANYMPS_INLINE float NAME(float x, float y) { return EXPRESSION; } \
  ANYMPS_BINARY_VECTORS(NAME, float)
#define ANYMPS_BINARY(NAME, EXPRESSION)                                                                                            \
  ANYMPS_BINARY_FLOAT(NAME, EXPRESSION)                                                                                            \
  ANYMPS_INLINE half NAME(half x, half y) { return static_cast<half>(NAME(static_cast<float>(x), static_cast<float>(y))); }        \
  ANYMPS_BINARY_VECTORS(NAME, half)                                                                                                \
  ANYMPS_OF_BFLOAT NAME(T x, T y, Ignored...) { return bfloat(NAME(static_cast<float>(x), static_cast<float>(y))); }               \
  ANYMPS_BINARY_VECTORS(NAME, bfloat)
#define ANYMPS_TERNARY_VECTORS(NAME, T) \
  ANYMPS_INLINE T##2 NAME(T##2 a, T##2 b, T##2 c) { return T##2(T##2::cells{{T(NAME(a.x, b.x, c.x)), T(NAME(a.y, b.y, c.y))}}); } \
  ANYMPS_INLINE T##3 NAME(T##3 a, T##3 b, T##3 c) { return T##3(T##3::cells{{T(NAME(a.x, b.x, c.x)), T(NAME(a.y, b.y, c.y)), T(NAME(a.z, b.z, c.z))}}); } \
  ANYMPS_INLINE T##4 NAME(T##4 a, T##4 b, T##4 c) { return T##4(T##4::cells{{T(NAME(a.x, b.x, c.x)), T(NAME(a.y, b.y, c.y)), T(NAME(a.z, b.z, c.z)), T(NAME(a.w, b.w, c.w))}}); }
#define ANYMPS_TERNARY_FLOAT(NAME, EXPRESSION)                               \
  ANYMPS_INLINE float NAME(float x, float y, float z) { return EXPRESSION; } \
  ANYMPS_TERNARY_VECTORS(NAME, float)
#define ANYMPS_TERNARY(NAME, EXPRESSION)                                                                                       \
  ANYMPS_TERNARY_FLOAT(NAME, EXPRESSION)                                                                                       \
  ANYMPS_INLINE half NAME(half x, half y, half z) {                                                                            \
    return static_cast<half>(NAME(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z)));                      \
  }                                                                                                                            \
  ANYMPS_TERNARY_VECTORS(NAME, half)                                                                                           \
  ANYMPS_OF_BFLOAT NAME(T x, T y, T z, Ignored...) {                                                                           \
    return bfloat(NAME(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z)));                                  \
  }                                                                                                                            \
  ANYMPS_TERNARY_VECTORS(NAME, bfloat)

// What `metal`, `precise` and `fast` all have.
#define ANYMPS_UNARY_LIST(F)                                                                          \
  F(exp, anymps_math::exp(x)) F(exp2, anymps_math::exp2(x)) F(exp10, anymps_math::exp10(x))           \
  F(log, anymps_math::log(x)) F(log2, anymps_math::log2(x)) F(log10, anymps_math::log10(x))           \
  F(sin, anymps_math::sin(x)) F(cos, anymps_math::cos(x)) F(tan, __builtin_tanf(x))                   \
  F(asin, __builtin_asinf(x)) F(acos, __builtin_acosf(x)) F(atan, __builtin_atanf(x))                 \
  F(sinh, __builtin_sinhf(x)) F(cosh, __builtin_coshf(x)) F(tanh, anymps_math::tanh(x))               \
  F(asinh, __builtin_asinhf(x)) F(acosh, __builtin_acoshf(x)) F(atanh, __builtin_atanhf(x))           \
  F(sinpi, anymps_math::sinpi(x)) F(cospi, anymps_math::cospi(x)) F(tanpi, anymps_math::tanpi(x))     \
  F(sqrt, __builtin_sqrtf(x)) F(rsqrt, anymps_math::rsqrt(x)) F(floor, __builtin_floorf(x))           \
  F(ceil, __builtin_ceilf(x)) F(trunc, __builtin_truncf(x)) F(rint, __builtin_rintf(x))               \
  F(round, __builtin_roundf(x)) F(fract, anymps_math::fract(x)) F(fabs, __builtin_fabsf(x))
#define ANYMPS_BINARY_LIST(F)                                                                         \
  F(atan2, __builtin_atan2f(x, y)) F(pow, __builtin_powf(x, y)) F(powr, __builtin_powf(x, y))         \
  F(fmod, __builtin_fmodf(x, y)) F(fmin, anymps_math::fmin(x, y)) F(fmax, anymps_math::fmax(x, y))    \
  F(fdim, x > y ? x - y : (x <= y ? 0.0f : x + y)) F(copysign, __builtin_copysignf(x, y))             \
  F(nextafter, __builtin_nextafterf(x, y))
#define ANYMPS_TERNARY_LIST(F) F(fma, __builtin_fmaf(x, y, z))

// By float: what follows for all numbers is written once.
#define ANYMPS_CLASSIFY(NAME, EXPRESSION, T)                                                                    \
  ANYMPS_INLINE bool NAME(T value) { const float x = static_cast<float>(value); return EXPRESSION; }            \
  ANYMPS_UNARY_VECTORS_TO(bool, NAME, T)
#define ANYMPS_CLASSIFIERS(T)                                     \
  ANYMPS_CLASSIFY(isnan, x != x, T)                               \
  ANYMPS_CLASSIFY(isinf, __builtin_fabsf(x) == __builtin_inff(), T) \
  ANYMPS_CLASSIFY(isfinite, x - x == 0.0f, T)                     \
  ANYMPS_CLASSIFY(isnormal, __builtin_isnormal(x), T)             \
  ANYMPS_CLASSIFY(signbit, __builtin_signbit(x) != 0, T)          \
  ANYMPS_INLINE bool isunordered(T a, T b) { return bool(int(a != a) | int(b != b)); } \
  ANYMPS_INLINE bool isordered(T a, T b) { return a == a && b == b; }

#define ANYMPS_MIN_MAX(T)                                                              \
  ANYMPS_INLINE T min(T x, T y) { return y < x ? y : x; }                              \
  ANYMPS_BINARY_VECTORS(min, T)                                                        \
  ANYMPS_INLINE T max(T x, T y) { return x < y ? y : x; }                              \
  ANYMPS_BINARY_VECTORS(max, T)                                                        \
  ANYMPS_INLINE T clamp(T x, T low, T high) { return min(max(x, low), high); }         \
  ANYMPS_TERNARY_VECTORS(clamp, T)                                                     \
  ANYMPS_INLINE T##2 clamp(T##2 x, T low, T high) { return clamp(x, T##2(low), T##2(high)); } \
  ANYMPS_INLINE T##3 clamp(T##3 x, T low, T high) { return clamp(x, T##3(low), T##3(high)); } \
  ANYMPS_INLINE T##4 clamp(T##4 x, T low, T high) { return clamp(x, T##4(low), T##4(high)); }
#define ANYMPS_SCALAR_MIN_MAX(HEAD, T, TAIL)                                           \
  HEAD min(T x, T y TAIL) { return fmin(x, y); }                                       \
  HEAD max(T x, T y TAIL) { return fmax(x, y); }                                       \
  HEAD min3(T x, T y, T z TAIL) { return min(min(x, y), z); }                          \
  HEAD max3(T x, T y, T z TAIL) { return max(max(x, y), z); }                          \
  HEAD median3(T x, T y, T z TAIL) { return max(min(x, y), min(max(x, y), z)); }       \
  HEAD fmin3(T x, T y, T z TAIL) { return min3(x, y, z); }                             \
  HEAD fmax3(T x, T y, T z TAIL) { return max3(x, y, z); }                             \
  HEAD fmedian3(T x, T y, T z TAIL) { return median3(x, y, z); }                       \
  HEAD clamp(T x, T low, T high TAIL) { return min(max(x, low), high); }
#define ANYMPS_THREE(T)                                                                \
  ANYMPS_TERNARY_VECTORS(min3, T) ANYMPS_TERNARY_VECTORS(max3, T) ANYMPS_TERNARY_VECTORS(median3, T)
#define ANYMPS_FLOAT_MIN_MAX(T) ANYMPS_SCALAR_MIN_MAX(ANYMPS_INLINE T, T, ) ANYMPS_VECTOR_MIN_MAX(T)
#define ANYMPS_COMMA_IGNORED , Ignored...
#define ANYMPS_BFLOAT_MIN_MAX ANYMPS_SCALAR_MIN_MAX(ANYMPS_OF_BFLOAT, T, ANYMPS_COMMA_IGNORED) ANYMPS_VECTOR_MIN_MAX(bfloat)
#define ANYMPS_VECTOR_MIN_MAX(T)                                                       \
  ANYMPS_BINARY_VECTORS(min, T)                                                        \
  ANYMPS_BINARY_VECTORS(max, T)                                                        \
  ANYMPS_THREE(T)                                                                      \
  ANYMPS_TERNARY_VECTORS(fmin3, T) ANYMPS_TERNARY_VECTORS(fmax3, T) ANYMPS_TERNARY_VECTORS(fmedian3, T) \
  ANYMPS_TERNARY_VECTORS(clamp, T)                                                     \
  ANYMPS_INLINE T##2 clamp(T##2 x, T low, T high) { return clamp(x, T##2(low), T##2(high)); } \
  ANYMPS_INLINE T##3 clamp(T##3 x, T low, T high) { return clamp(x, T##3(low), T##3(high)); } \
  ANYMPS_INLINE T##4 clamp(T##4 x, T low, T high) { return clamp(x, T##4(low), T##4(high)); }
#define ANYMPS_ABS(T)                                           \
  ANYMPS_INLINE T abs(T x) { return x < T(0) ? T(-x) : x; }     \
  ANYMPS_UNARY_VECTORS(abs, T)
#define ANYMPS_ABS_BFLOAT                                       \
  ANYMPS_OF_BFLOAT abs(T x, Ignored...) { return x < T(0) ? T(-x) : x; } \
  ANYMPS_UNARY_VECTORS(abs, bfloat)
#define ANYMPS_ABS_UNSIGNED(T)                                  \
  ANYMPS_INLINE T abs(T x) { return x; }                        \
  ANYMPS_UNARY_VECTORS(abs, T)
#define ANYMPS_SELECT(T) \
  ANYMPS_INLINE T select(T a, T b, bool c) { return c ? b : a; } \
  ANYMPS_INLINE T##2 select(T##2 a, T##2 b, bool2 c) { return T##2(T##2::cells{{T(c.x ? b.x : a.x), T(c.y ? b.y : a.y)}}); } \
  ANYMPS_INLINE T##3 select(T##3 a, T##3 b, bool3 c) { return T##3(T##3::cells{{T(c.x ? b.x : a.x), T(c.y ? b.y : a.y), T(c.z ? b.z : a.z)}}); } \
  ANYMPS_INLINE T##4 select(T##4 a, T##4 b, bool4 c) { return T##4(T##4::cells{{T(c.x ? b.x : a.x), T(c.y ? b.y : a.y), T(c.z ? b.z : a.z), T(c.w ? b.w : a.w)}}); }

// Bits of integers.
#define ANYMPS_BITS(T)                                                                                                          \
  ANYMPS_INLINE T popcount(T x) { return T(__builtin_popcountl(ulong(make_unsigned_t<T>(x)))); }                                \
  ANYMPS_UNARY_VECTORS(popcount, T)                                                                                             \
  ANYMPS_INLINE T clz(T x) { return T(x == 0 ? int(sizeof(T) * 8) : __builtin_clzl(ulong(make_unsigned_t<T>(x))) - int(64 - sizeof(T) * 8)); } \
  ANYMPS_UNARY_VECTORS(clz, T)                                                                                                  \
  ANYMPS_INLINE T ctz(T x) { return T(x == 0 ? int(sizeof(T) * 8) : __builtin_ctzl(ulong(make_unsigned_t<T>(x)))); }            \
  ANYMPS_UNARY_VECTORS(ctz, T)                                                                                                  \
  ANYMPS_INLINE T rotate(T x, T by) {                                                                                           \
    using U = make_unsigned_t<T>;                                                                                               \
    constexpr unsigned bits = sizeof(T) * 8;                                                                                    \
    const unsigned n = unsigned(by) % bits;                                                                                     \
    return n == 0 ? x : T(U(U(x) << n) | U(U(x) >> (bits - n)));                                                                \
  }                                                                                                                             \
  ANYMPS_BINARY_VECTORS(rotate, T)                                                                                              \
  ANYMPS_INLINE T reverse_bits(T x) {                                                                                           \
    make_unsigned_t<T> from = make_unsigned_t<T>(x), to = 0;                                                                    \
    for (unsigned i = 0; i < sizeof(T) * 8; ++i, from >>= 1) to = make_unsigned_t<T>((to << 1) | (from & 1));                   \
    return T(to);                                                                                                               \
  }                                                                                                                             \
  ANYMPS_UNARY_VECTORS(reverse_bits, T)                                                                                         \
  ANYMPS_INLINE T extract_bits(T x, uint offset, uint count) {                                                                  \
    if (count == 0) return 0;                                                                                                   \
    constexpr unsigned bits = sizeof(T) * 8;                                                                                    \
    return T(T(make_unsigned_t<T>(x) << (bits - offset - count)) >> (bits - count));                                            \
  }                                                                                                                             \
  ANYMPS_INLINE T insert_bits(T base, T insert, uint offset, uint count) {                                                      \
    using U = make_unsigned_t<T>;                                                                                               \
    if (count == 0) return base;                                                                                                \
    const U mask = U((count >= sizeof(T) * 8 ? U(~U(0)) : U((U(1) << count) - 1)) << offset);                                   \
    return T((U(base) & U(~mask)) | (U(U(insert) << offset) & mask));                                                           \
  }                                                                                                                             \
  ANYMPS_INLINE T mulhi(T x, T y) { return T((__int128(x) * __int128(y)) >> (sizeof(T) * 8)); }                                 \
  ANYMPS_BINARY_VECTORS(mulhi, T)                                                                                               \
  ANYMPS_INLINE T madhi(T x, T y, T z) { return T(mulhi(x, y) + z); }                                                           \
  ANYMPS_TERNARY_VECTORS(madhi, T)                                                                                              \
  ANYMPS_INLINE T madsat(T x, T y, T z) {                                                                                       \
    using W = conditional_t<is_signed_v<T>, __int128, unsigned __int128>;                                                       \
    const W sum = W(x) * W(y) + W(z), least = W(numeric_limits<T>::min()), most = W(numeric_limits<T>::max());                  \
    return T(sum < least ? least : sum > most ? most : sum);                                                                    \
  }                                                                                                                             \
  ANYMPS_TERNARY_VECTORS(madsat, T)                                                                                             \
  ANYMPS_INLINE T absdiff(T x, T y) { return x < y ? T(y - x) : T(x - y); }                                                     \
  ANYMPS_BINARY_VECTORS(absdiff, T)                                                                                             \
  ANYMPS_INLINE T addsat(T x, T y) {                                                                                            \
    T r;                                                                                                                        \
    return !__builtin_add_overflow(x, y, &r) ? r : (y < 0 ? numeric_limits<T>::min() : numeric_limits<T>::max());               \
  }                                                                                                                             \
  ANYMPS_BINARY_VECTORS(addsat, T)                                                                                              \
  ANYMPS_INLINE T subsat(T x, T y) {                                                                                            \
    T r;                                                                                                                        \
    return !__builtin_sub_overflow(x, y, &r) ? r : (!is_signed_v<T> || y > 0 ? numeric_limits<T>::min() : numeric_limits<T>::max()); \
  }                                                                                                                             \
  ANYMPS_BINARY_VECTORS(subsat, T)                                                                                              \
  ANYMPS_INLINE T hadd(T x, T y) { return T((__int128(x) + __int128(y)) >> 1); }                                                \
  ANYMPS_BINARY_VECTORS(hadd, T)                                                                                                \
  ANYMPS_INLINE T rhadd(T x, T y) { return T((__int128(x) + __int128(y) + 1) >> 1); }                                           \
  ANYMPS_BINARY_VECTORS(rhadd, T)                                                                                               \
  ANYMPS_INLINE T mad24(T x, T y, T z) { return T(x * y + z); }                                                                 \
  ANYMPS_TERNARY_VECTORS(mad24, T)                                                                                              \
  ANYMPS_INLINE T mul24(T x, T y) { return T(x * y); }                                                                          \
  ANYMPS_BINARY_VECTORS(mul24, T)                                                                                               \
  ANYMPS_INLINE T min3(T x, T y, T z) { return min(min(x, y), z); }                                                             \
  ANYMPS_INLINE T max3(T x, T y, T z) { return max(max(x, y), z); }                                                             \
  ANYMPS_INLINE T median3(T x, T y, T z) { return max(min(x, y), min(max(x, y), z)); }                                          \
  ANYMPS_THREE(T)                                                                                                               \
  ANYMPS_BITS_OF(T, 2) ANYMPS_BITS_OF(T, 3) ANYMPS_BITS_OF(T, 4)
#define ANYMPS_BITS_OF(T, N)                                                                                                    \
  ANYMPS_INLINE T##N extract_bits(T##N x, uint offset, uint count) {                                                            \
    for (unsigned i = 0; i < N; ++i) x[i] = extract_bits(x.at(i), offset, count);                                               \
    return x;                                                                                                                   \
  }                                                                                                                             \
  ANYMPS_INLINE T##N insert_bits(T##N base, T##N insert, uint offset, uint count) {                                             \
    for (unsigned i = 0; i < N; ++i) base[i] = insert_bits(base.at(i), insert.at(i), offset, count);                            \
    return base;                                                                                                                \
  }

// Lengths and angles.
#define ANYMPS_GEOMETRY(T, N)                                                                                                   \
  ANYMPS_INLINE T dot(T##N a, T##N b) {                                                                                         \
    T sum = a.at(0) * b.at(0);                                                                                                  \
    for (unsigned i = 1; i < N; ++i) sum += a.at(i) * b.at(i);                                                                  \
    return sum;                                                                                                                 \
  }                                                                                                                             \
  ANYMPS_INLINE T length_squared(T##N a) { return dot(a, a); }                                                                  \
  ANYMPS_INLINE T length(T##N a) { return sqrt(dot(a, a)); }                                                                    \
  ANYMPS_INLINE T distance(T##N a, T##N b) { return length(a - b); }                                                            \
  ANYMPS_INLINE T distance_squared(T##N a, T##N b) { return length_squared(a - b); }                                            \
  ANYMPS_INLINE T##N normalize(T##N a) { return a * rsqrt(dot(a, a)); }                                                         \
  ANYMPS_INLINE T##N reflect(T##N i, T##N n) { return i - n * (T(2) * dot(n, i)); }                                             \
  ANYMPS_INLINE T##N faceforward(T##N n, T##N i, T##N ref) { return dot(ref, i) < T(0) ? n : -n; }                              \
  ANYMPS_INLINE T##N refract(T##N i, T##N n, T eta) {                                                                           \
    const T d = dot(n, i), k = T(1) - eta * eta * (T(1) - d * d);                                                               \
    return k < T(0) ? T##N(T(0)) : i * eta - n * (eta * d + sqrt(k));                                                           \
  }
#define ANYMPS_MIXING(T)                                                                                                        \
  ANYMPS_INLINE T mix(T x, T y, T a) { return x + (y - x) * a; }                                                                \
  ANYMPS_TERNARY_VECTORS(mix, T)                                                                                                \
  ANYMPS_INLINE T##2 mix(T##2 x, T##2 y, T a) { return x + (y - x) * a; }                                                       \
  ANYMPS_INLINE T##3 mix(T##3 x, T##3 y, T a) { return x + (y - x) * a; }                                                       \
  ANYMPS_INLINE T##4 mix(T##4 x, T##4 y, T a) { return x + (y - x) * a; }                                                       \
  ANYMPS_INLINE T saturate(T x) { return T(anymps_math::saturate(static_cast<float>(x))); }                                     \
  ANYMPS_UNARY_VECTORS(saturate, T)                                                                                             \
  ANYMPS_INLINE T sign(T x) { return T(anymps_math::sign(static_cast<float>(x))); }                                             \
  ANYMPS_UNARY_VECTORS(sign, T)                                                                                                 \
  ANYMPS_INLINE T step(T edge, T x) { return x < edge ? T(0) : T(1); }                                                          \
  ANYMPS_BINARY_VECTORS(step, T)                                                                                                \
  ANYMPS_INLINE T smoothstep(T low, T high, T x) { return T(anymps_math::smoothstep(low, high, x)); }                           \
  ANYMPS_TERNARY_VECTORS(smoothstep, T)                                                                                         \
  ANYMPS_INLINE T##3 cross(T##3 a, T##3 b) {                                                                                    \
    return T##3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);                                           \
  }                                                                                                                             \
  ANYMPS_INLINE int ilogb(T x) { return __builtin_ilogbf(static_cast<float>(x)); }                                              \
  ANYMPS_INLINE T modf(T x, T& whole) { whole = T(__builtin_truncf(static_cast<float>(x))); return x - whole; }                 \
  ANYMPS_INLINE T sincos(T x, T& cosine) { cosine = cos(x); return sin(x); }
#define ANYMPS_PARTS(HEAD, T, TAIL)                                                                                             \
  HEAD ldexp(T x, int k TAIL) { return T(__builtin_ldexpf(static_cast<float>(x), k)); }                                         \
  HEAD frexp(T x, int& k TAIL) { return T(__builtin_frexpf(static_cast<float>(x), &k)); }                                       \
  HEAD divide(T x, T y TAIL) { return x / y; }
#define ANYMPS_PARTS_OF(T, N)                                                                                                   \
  ANYMPS_INLINE T##N modf(T##N x, T##N& whole) {                                                                                \
    for (unsigned i = 0; i < N; ++i) { whole[i] = trunc(x.at(i)); x[i] = x.at(i) - whole.at(i); }                               \
    return x;                                                                                                                   \
  }                                                                                                                             \
  ANYMPS_INLINE T##N sincos(T##N x, T##N& cosine) { cosine = cos(x); return sin(x); }                                           \
  ANYMPS_INLINE T##N divide(T##N x, T##N y) {                                                                                   \
    for (unsigned i = 0; i < N; ++i) x[i] = x.at(i) / y.at(i);                                                                  \
    return x;                                                                                                                   \
  }                                                                                                                             \
  ANYMPS_INLINE T##N ldexp(T##N x, int##N k) {                                                                                  \
    for (unsigned i = 0; i < N; ++i) x[i] = ldexp(x.at(i), k.at(i));                                                            \
    return x;                                                                                                                   \
  }                                                                                                                             \
  ANYMPS_INLINE T##N frexp(T##N x, int##N& k) {                                                                                 \
    for (unsigned i = 0; i < N; ++i) { int one; x[i] = frexp(x.at(i), one); k[i] = one; }                                       \
    return x;                                                                                                                   \
  }                                                                                                                             \
  ANYMPS_INLINE int##N ilogb(T##N x) {                                                                                          \
    int##N found;                                                                                                               \
    for (unsigned i = 0; i < N; ++i) found[i] = ilogb(x.at(i));                                                                 \
    return found;                                                                                                               \
  }
#define ANYMPS_VECTOR_PARTS(T) ANYMPS_PARTS_OF(T, 2) ANYMPS_PARTS_OF(T, 3) ANYMPS_PARTS_OF(T, 4)
#define ANYMPS_GEOMETRIES(T) ANYMPS_GEOMETRY(T, 2) ANYMPS_GEOMETRY(T, 3) ANYMPS_GEOMETRY(T, 4)

namespace metal {
ANYMPS_UNARY_LIST(ANYMPS_UNARY)
ANYMPS_BINARY_LIST(ANYMPS_BINARY)
ANYMPS_TERNARY_LIST(ANYMPS_TERNARY)
ANYMPS_FLOATS(ANYMPS_CLASSIFIERS)
ANYMPS_FLOAT_MIN_MAX(float) ANYMPS_FLOAT_MIN_MAX(half) ANYMPS_BFLOAT_MIN_MAX
ANYMPS_INTEGERS(ANYMPS_MIN_MAX)
ANYMPS_ABS(float) ANYMPS_ABS(half) ANYMPS_ABS_BFLOAT
ANYMPS_SIGNED(ANYMPS_ABS)
ANYMPS_ABS_UNSIGNED(uchar) ANYMPS_ABS_UNSIGNED(ushort) ANYMPS_ABS_UNSIGNED(uint) ANYMPS_ABS_UNSIGNED(ulong)
ANYMPS_FLOATS(ANYMPS_SELECT)
ANYMPS_INTEGERS(ANYMPS_SELECT)
ANYMPS_SELECT(bool)
ANYMPS_INTEGERS(ANYMPS_BITS)
ANYMPS_FLOATS(ANYMPS_GEOMETRIES)
ANYMPS_FLOATS(ANYMPS_MIXING)
ANYMPS_PARTS(ANYMPS_INLINE float, float, )
ANYMPS_PARTS(ANYMPS_INLINE half, half, )
ANYMPS_PARTS(ANYMPS_OF_BFLOAT, T, ANYMPS_COMMA_IGNORED)
ANYMPS_FLOATS(ANYMPS_VECTOR_PARTS)
ANYMPS_INLINE int dot(int2 a, int2 b) { return a.x * b.x + a.y * b.y; }
ANYMPS_INLINE int dot(int3 a, int3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
ANYMPS_INLINE int dot(int4 a, int4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
ANYMPS_INLINE bool any(bool a) { return a; }
ANYMPS_INLINE bool any(bool2 a) { return a.x || a.y; }
ANYMPS_INLINE bool any(bool3 a) { return a.x || a.y || a.z; }
ANYMPS_INLINE bool any(bool4 a) { return a.x || a.y || a.z || a.w; }
ANYMPS_INLINE bool all(bool a) { return a; }
ANYMPS_INLINE bool all(bool2 a) { return a.x && a.y; }
ANYMPS_INLINE bool all(bool3 a) { return a.x && a.y && a.z; }
ANYMPS_INLINE bool all(bool4 a) { return a.x && a.y && a.z && a.w; }

// Floats only: a call with an integer has one way to go.
// A bfloat goes there as a float: it has no conversion of the language's own, which would win over those to vectors.
#define ANYMPS_UNARY_BFLOAT(NAME, EXPRESSION) \
  ANYMPS_BFLOAT_ONLY float NAME(T x, Ignored...) { return NAME(static_cast<float>(x)); }
#define ANYMPS_BINARY_BFLOAT(NAME, EXPRESSION) \
  ANYMPS_BFLOAT_ONLY float NAME(T x, T y, Ignored...) { return NAME(static_cast<float>(x), static_cast<float>(y)); }
#define ANYMPS_FLOAT_ONLY                                                                              \
  ANYMPS_UNARY_LIST(ANYMPS_UNARY_FLOAT)                                                                \
  ANYMPS_UNARY_LIST(ANYMPS_UNARY_BFLOAT)                                                               \
  ANYMPS_BINARY_LIST(ANYMPS_BINARY_FLOAT)                                                              \
  ANYMPS_BINARY_LIST(ANYMPS_BINARY_BFLOAT)                                                             \
  ANYMPS_TERNARY_LIST(ANYMPS_TERNARY_FLOAT)                                                            \
  ANYMPS_FLOAT_MIN_MAX(float)                                                                          \
  ANYMPS_INLINE float abs(float x) { return fabs(x); }                                                 \
  ANYMPS_INLINE float divide(float x, float y) { return x / y; }                                       \
  ANYMPS_INLINE float ldexp(float x, int k) { return __builtin_ldexpf(x, k); }                         \
  ANYMPS_INLINE float frexp(float x, int& k) { return __builtin_frexpf(x, &k); }                       \
  ANYMPS_INLINE float saturate(float x) { return anymps_math::saturate(x); }                           \
  ANYMPS_INLINE float sincos(float x, float& cosine) { cosine = cos(x); return sin(x); }               \
  ANYMPS_INLINE float modf(float x, float& whole) { whole = trunc(x); return x - whole; }              \
  ANYMPS_INLINE int ilogb(float x) { return __builtin_ilogbf(x); }                                     \
  ANYMPS_VECTOR_PARTS(float)                                                                           \
  ANYMPS_GEOMETRIES(float)
namespace precise {
ANYMPS_FLOAT_ONLY
}
namespace fast {
ANYMPS_FLOAT_ONLY
ANYMPS_CLASSIFIERS(float)
}
#undef ANYMPS_FLOAT_ONLY

// Pixel formats of compute kernels.
ANYMPS_INLINE float4 unpack_unorm4x8_to_float(uint x) {
  return float4(x & 255u, (x >> 8) & 255u, (x >> 16) & 255u, x >> 24) / 255.0f;
}
ANYMPS_INLINE uint pack_float_to_unorm4x8(float4 x) {
  const float4 v = rint(saturate(x) * 255.0f);
  return uint(v.x) | (uint(v.y) << 8) | (uint(v.z) << 16) | (uint(v.w) << 24);
}
ANYMPS_INLINE float4 unpack_snorm4x8_to_float(uint x) {
  return max(float4(char(x & 255u), char((x >> 8) & 255u), char((x >> 16) & 255u), char(x >> 24)) / 127.0f, float4(-1.0f));
}
ANYMPS_INLINE float2 unpack_unorm2x16_to_float(uint x) { return float2(x & 65535u, x >> 16) / 65535.0f; }
}  // namespace metal
