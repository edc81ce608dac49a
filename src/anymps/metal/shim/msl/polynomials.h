// exp, log, tanh, sin and cos of floats without a branch or a call, so that any compiler makes vector code of a loop over
// them. About 1 ulp; the coefficients of exp, log and tanh are those of Cephes (S. Moshier), public domain.
#pragma once

#include <msl/scalars.h>

namespace anymps_math {

ANYMPS_INLINE float bits_to_float(int word) {
  return __builtin_bit_cast(float, word);
}
ANYMPS_INLINE int float_to_bits(float value) {
  return __builtin_bit_cast(int, value);
}
// Shaders are compiled without contraction, so that a checked one rounds where the unchecked one does. Here it pays.
ANYMPS_INLINE float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
// value * 2^n; two factors, as a result near the limits needs an exponent that one float does not have.
ANYMPS_INLINE float scaled(float value, int n) {
  const int half_way = n >> 1;
  return value * bits_to_float(int(unsigned(half_way + 127) << 23)) * bits_to_float(int(unsigned(n - half_way + 127) << 23));
}
constexpr float kShift = 12582912.0f;  // added to a float below 2^22, its lowest bits are the nearest integer
ANYMPS_INLINE int integer_of(float shifted) {
  return int(unsigned(float_to_bits(shifted)) - unsigned(float_to_bits(kShift)));
}

ANYMPS_INLINE float exp_core(float r) {  // |r| <= ln(2) / 2
  float p = 1.9875691500e-4f;
  p = fused(p, r, 1.3981999507e-3f);
  p = fused(p, r, 8.3334519073e-3f);
  p = fused(p, r, 4.1665795894e-2f);
  p = fused(p, r, 1.6666665459e-1f);
  p = fused(p, r, 5.0000001201e-1f);
  return fused(p * r, r, r) + 1.0f;
}
// Whatever comes of numbers that are too large or too small is replaced at the end. With limits at the start g++ would
// follow each limit through all that comes behind it, and choose between the ways a dozen times.
ANYMPS_INLINE float exp(float x) {
  const float shifted = x * 1.44269504088896341f + kShift, n = shifted - kShift;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  const float result = scaled(exp_core(r), integer_of(shifted));
  const float large = x > 88.7228394f ? __builtin_inff() : result;
  const float known = x < -104.0f ? 0.0f : large;
  return x == x ? known : x;
}
ANYMPS_INLINE float exp2(float x) {
  const float shifted = x + kShift, n = shifted - kShift;
  const float result = scaled(exp_core((x - n) * 0.693147180559945309f), integer_of(shifted));
  const float large = x >= 128.0f ? __builtin_inff() : result;
  const float known = x < -151.0f ? 0.0f : large;
  return x == x ? known : x;
}

// x = m * 2^e with m in [sqrt(1/2), sqrt(2)); gives log(m) - (m - 1) and m - 1.
struct LogParts {
  float rest, m1, e;
};
ANYMPS_INLINE LogParts log_parts(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const int word = float_to_bits(tiny ? x * 8388608.0f : x);
  const int shifted = word - 0x3f3504f3;
  const int e = shifted >> 23;
  const float m1 = bits_to_float(word - (e << 23)) - 1.0f;
  const float z = m1 * m1;
  float p = 7.0376836292e-2f;
  p = fused(p, m1, -1.1514610310e-1f);
  p = fused(p, m1, 1.1676998740e-1f);
  p = fused(p, m1, -1.2420140846e-1f);
  p = fused(p, m1, 1.4249322787e-1f);
  p = fused(p, m1, -1.6668057665e-1f);
  p = fused(p, m1, 2.0000714765e-1f);
  p = fused(p, m1, -2.4999993993e-1f);
  p = fused(p, m1, 3.3333331174e-1f);
  return {p * m1 * z - 0.5f * z, m1, static_cast<float>(e - (tiny ? 23 : 0))};
}
ANYMPS_INLINE float log_ends(float x, float result) {
  const float finite = x > 0.0f ? result : (x == 0.0f ? -__builtin_inff() : __builtin_nanf(""));
  return x < __builtin_inff() ? finite : x;  // inf and nan
}
ANYMPS_INLINE float log(float x) {
  const LogParts t = log_parts(x);
  return log_ends(x, (t.m1 + (t.rest + t.e * -2.12194440e-4f)) + t.e * 0.693359375f);
}
ANYMPS_INLINE float log2(float x) {
  const LogParts t = log_parts(x);
  // log2(e) = 1 + 0.4427: the large part of the product stays exact.
  return log_ends(x, (((t.rest * 0.44269504088896341f + t.m1 * 0.44269504088896341f) + t.rest) + t.m1) + t.e);
}
ANYMPS_INLINE float log10(float x) {
  const LogParts t = log_parts(x);
  const float small = (t.m1 + t.rest) * 0.434294481903251828f + t.e * 4.605038981195214e-6f;
  return log_ends(x, small + t.e * 0.30102539062500000f);
}

ANYMPS_INLINE float tanh(float x) {
  const float size = x < 0.0f ? -x : x;
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = fused(p, z, 2.06390887954e-2f);
  p = fused(p, z, -5.37397155531e-2f);
  p = fused(p, z, 1.33314422036e-1f);
  p = fused(p, z, -3.33332819422e-1f);
  const float near = fused(p * z, x, x);
  const float far = 1.0f - 2.0f / (exp(2.0f * size) + 1.0f);
  return size < 0.625f ? near : (x < 0.0f ? -far : far);
}

// The argument less a multiple of pi / 2, in double, and the last bits of that multiple: with fused products exact enough up
// to 2^50, without them up to 2^30. Beyond that it is taken for zero, so that sin and cos stay within 1.
struct Quadrant {
  float r;
  int k;
};
ANYMPS_INLINE Quadrant quadrant(float x) {
  const double wide = static_cast<double>(x);
  const double sum = wide * 0.636619772367581343 + 6755399441055744.0;  // 1.5 * 2^52: the integer is in its last bits
  const double n = sum - 6755399441055744.0;
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  const double r = __builtin_fma(n, -6.12323399573676604e-17, __builtin_fma(n, -1.57079632679489656, wide));
  constexpr double largest = 1125899906842624.0;
#else
  const double r = (wide - n * 1.57079632679489656) - n * 6.12323399573676604e-17;
  constexpr double largest = 1073741824.0;
#endif
  const bool near = wide < largest && wide > -largest;
  const int k = static_cast<int>(__builtin_bit_cast(long, sum));
  return {near ? static_cast<float>(r) : 0.0f, near ? k : 0};
}
ANYMPS_INLINE float sin_core(float r) {
  const float z = r * r;
  float p = 2.6083159809786593541503e-06f;
  p = fused(p, z, -0.0001981069071916863322258f);
  p = fused(p, z, 0.00833307858556509017944336f);
  p = fused(p, z, -0.166666597127914428710938f);
  return fused(p * z, r, r);
}
ANYMPS_INLINE float cos_core(float r) {
  const float z = r * r;
  float p = -2.718118419567122e-07f;
  p = fused(p, z, 2.4799764424679e-05f);
  p = fused(p, z, -0.00138888711f);
  p = fused(p, z, 0.0416666657f);
  p = fused(p, z, -0.5f);
  return fused(p, z, 1.0f);
}
ANYMPS_INLINE float sin(float x) {
  const Quadrant q = quadrant(x);
  const float part = (q.k & 1) ? cos_core(q.r) : sin_core(q.r);
  const float result = (q.k & 2) ? -part : part;
  return x - x == 0.0f ? result : __builtin_nanf("");
}
ANYMPS_INLINE float cos(float x) {
  const Quadrant q = quadrant(x);
  const float part = (q.k & 1) ? sin_core(q.r) : cos_core(q.r);
  const float result = ((q.k + 1) & 2) ? -part : part;
  return x - x == 0.0f ? result : __builtin_nanf("");
}

}  // namespace anymps_math
