// What compiled Metal kernels call beside the runtime: SIMD operations by type, 8x8 matrices, rare mathematics.
//
// The operations are those of shim/msl/sync.h, so kernels compiled by Apple and those compiled from source add in one order.
#include <msl/sync.h>

namespace {

// Rounds a float to the nearest multiple of a half, and gives what is left, in [-1/4, 1/4].
float quarter(float x, int& turns) {
  const float doubled = __builtin_fmodf(x, 2.0f) * 2.0f;
  const float nearest = __builtin_rintf(doubled);
  turns = static_cast<int>(nearest) & 3;
  return (doubled - nearest) * 0.5f;
}

constexpr double kPi = 3.14159265358979323846;

float turned(float rest, int turns) {  // sin(pi * (rest + turns / 2))
  const double angle = kPi * static_cast<double>(rest);
  const double value = (turns & 1) != 0 ? __builtin_cos(angle) : __builtin_sin(angle);
  return static_cast<float>((turns & 2) != 0 ? -value : value);
}

template <class T> T next_after(T from, T to, int mantissa, T exponent) {  // on the bits of a 16-bit float
  const T sign = static_cast<T>(T(1) << 15);
  const T infinite = static_cast<T>(exponent << mantissa);
  const T a = static_cast<T>(from & ~sign), b = static_cast<T>(to & ~sign);
  if (a > infinite) return from;
  if (b > infinite) return to;
  if (from == to || (a == 0 && b == 0)) return to;
  if (a == 0) return static_cast<T>((to & sign) | 1);
  const bool away = (from & sign) == (to & sign) ? b > a : false;
  return static_cast<T>(away ? from + 1 : from - 1);
}

struct Product {
  float a[2], b[2], c[2], d[2];
};
unsigned row_of(unsigned lane) { return ((lane >> 2) & 4u) | ((lane >> 1) & 3u); }
unsigned column_of(unsigned lane) { return ((lane >> 1) & 4u) | ((lane & 1u) << 1); }

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT float anymps_k_sinpi(float x) {
  int turns;
  const float rest = quarter(x, turns);
  return turned(rest, turns);
}
EXPORT unsigned anymps_k_nextafter_32(unsigned from, unsigned to) {
  return __builtin_bit_cast(unsigned, __builtin_nextafterf(__builtin_bit_cast(float, from), __builtin_bit_cast(float, to)));
}
EXPORT unsigned short anymps_k_nextafter_16(unsigned short from, unsigned short to) {
  return next_after<unsigned short>(from, to, 10, 31);
}

// What compilers call for 16-bit floats where the processor has no instruction. A bfloat is passed as a half is.
EXPORT half anymps_k_to_bfloat(float x) { return __builtin_bit_cast(half, bfloat(x).bits); }
EXPORT half anymps_k_double_to_bfloat(double x) { return __builtin_bit_cast(half, bfloat(static_cast<float>(x)).bits); }
EXPORT half anymps_k_to_half(float x) { return static_cast<half>(x); }
EXPORT half anymps_k_double_to_half(double x) { return static_cast<half>(x); }
EXPORT float anymps_k_from_half(half x) { return static_cast<float>(x); }

EXPORT void anymps_k_nothing(void* const*, unsigned) {}
EXPORT void anymps_k_vote(void* const* slots, unsigned lanes) { anymps_sync::vote(slots, lanes); }

EXPORT void anymps_k_matrix(void* const* slots, unsigned lanes) {
  float a[8][8] = {}, b[8][8] = {};
  anymps_sync::each_lane(lanes, [&](unsigned lane) {
    const Product& mine = *static_cast<const Product*>(slots[lane]);
    for (unsigned i = 0; i < 2; ++i) {
      a[row_of(lane)][column_of(lane) + i] = mine.a[i];
      b[row_of(lane)][column_of(lane) + i] = mine.b[i];
    }
  });
  anymps_sync::each_lane(lanes, [&](unsigned lane) {
    Product& mine = *static_cast<Product*>(slots[lane]);
    for (unsigned i = 0; i < 2; ++i) {
      float sum = mine.c[i];
      for (unsigned k = 0; k < 8; ++k) sum = __builtin_fmaf(a[row_of(lane)][k], b[k][column_of(lane) + i], sum);
      mine.d[i] = sum;
    }
  });
}

#define RESOLVE(NAME, SUFFIX, TYPE, ...)                                              \
  EXPORT void anymps_k_##NAME##_##SUFFIX(void* const* slots, unsigned lanes) {        \
    anymps_sync::__VA_ARGS__(slots, lanes);                                           \
  }
#define OF_NUMBERS(SUFFIX, TYPE)                                                      \
  RESOLVE(sum, SUFFIX, TYPE, reduce<TYPE, anymps_sync::Sum, 32>)                      \
  RESOLVE(product, SUFFIX, TYPE, reduce<TYPE, anymps_sync::Product, 32>)              \
  RESOLVE(min, SUFFIX, TYPE, reduce<TYPE, anymps_sync::Min, 32>)                      \
  RESOLVE(max, SUFFIX, TYPE, reduce<TYPE, anymps_sync::Max, 32>)                      \
  RESOLVE(prefix_exclusive_sum, SUFFIX, TYPE, scan<TYPE, anymps_sync::Sum, false>)    \
  RESOLVE(shuffle, SUFFIX, TYPE, shuffle<TYPE, anymps_sync::To, 32>)                  \
  RESOLVE(broadcast, SUFFIX, TYPE, shuffle<TYPE, anymps_sync::To, 32>)                \
  RESOLVE(shuffle_down, SUFFIX, TYPE, shuffle<TYPE, anymps_sync::Down, 32>)           \
  RESOLVE(shuffle_xor, SUFFIX, TYPE, shuffle<TYPE, anymps_sync::Xor_, 32>)            \
  RESOLVE(shuffle_and_fill_down, SUFFIX, TYPE, shuffle<TYPE, anymps_sync::FillDown, 32>) \
  RESOLVE(shuffle_and_fill_up, SUFFIX, TYPE, shuffle<TYPE, anymps_sync::FillUp, 32>)  \
  RESOLVE(broadcast_first, SUFFIX, TYPE, first_of<TYPE>)

OF_NUMBERS(f32, float)
OF_NUMBERS(f16, half)
OF_NUMBERS(s8, signed char)
OF_NUMBERS(u8, unsigned char)
OF_NUMBERS(s16, short)
OF_NUMBERS(u16, unsigned short)
OF_NUMBERS(s32, int)
OF_NUMBERS(u32, unsigned)
OF_NUMBERS(s64, long)
OF_NUMBERS(u64, unsigned long)
