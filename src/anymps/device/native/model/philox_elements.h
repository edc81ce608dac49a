// The element types of Metal kernels as C++ types, and conversions to them. Inside of the model only.
#pragma once

#include "model/philox.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

namespace anymps::philox {

template <class To, class From>
To bit_cast_to(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

inline std::uint16_t to_half(float value) {
  auto bits = bit_cast_to<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  bits &= 0x7FFFFFFFU;
  if (bits >= 0x47800000U) {  // 65536 and more, infinity, NaN
    return static_cast<std::uint16_t>(sign | (bits > 0x7F800000U ? 0x7E00U : 0x7C00U));
  }
  if (bits < 0x38800000U) {  // subnormal half: adding 1/2 rounds to its unit, 2^-24
    const float aligned = bit_cast_to<float>(bits) + 0.5f;
    return static_cast<std::uint16_t>(sign | (bit_cast_to<std::uint32_t>(aligned) - 0x3F000000U));
  }
  bits += 0x0FFFU + ((bits >> 13) & 1U);  // may carry into infinity, rightly
  return static_cast<std::uint16_t>(sign | ((bits - 0x38000000U) >> 13));
}

inline float from_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t rest = half & 0x7FFFU;
  if (rest >= 0x7C00U) return bit_cast_to<float>(sign | 0x7F800000U | ((rest & 0x03FFU) << 13));
  if (rest >= 0x0400U) return bit_cast_to<float>(sign | ((rest << 13) + 0x38000000U));
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;
  return bit_cast_to<float>(sign | bit_cast_to<std::uint32_t>(magnitude));
}

inline std::uint16_t to_bfloat16(float value) {
  const auto bits = bit_cast_to<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | 0x7FC0U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

inline float from_bfloat16(std::uint16_t bits) { return bit_cast_to<float>(static_cast<std::uint32_t>(bits) << 16); }

struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

template <class T>
struct Element;
#define ANYMPS_ELEMENT(TYPE, TAG, METAL, SCALAR)            \
  template <>                                               \
  struct Element<TYPE> {                                    \
    static constexpr ElementType type = ElementType::TAG;   \
    static constexpr const char* metal = METAL;             \
    static constexpr const char* scalar = SCALAR;           \
  };
ANYMPS_ELEMENT(float, f32, "float", "Float")
ANYMPS_ELEMENT(Half, f16, "half", "Half")
ANYMPS_ELEMENT(BFloat16, bf16, "bfloat", "BFloat16")
ANYMPS_ELEMENT(std::uint8_t, u8, "uchar", "Byte")
ANYMPS_ELEMENT(std::int8_t, i8, "char", "Char")
ANYMPS_ELEMENT(std::int16_t, i16, "short", "Short")
ANYMPS_ELEMENT(std::int32_t, i32, "int", "Int")
ANYMPS_ELEMENT(std::int64_t, i64, "long", "Long")
ANYMPS_ELEMENT(std::uint16_t, u16, "ushort", "UInt16")
ANYMPS_ELEMENT(std::uint32_t, u32, "uint", "UInt32")
ANYMPS_ELEMENT(std::uint64_t, u64, "ulong", "UInt64")
ANYMPS_ELEMENT(bool, boolean, "bool", "Bool")
#undef ANYMPS_ELEMENT

template <class... Ts>
struct Types {};
using Floating = Types<float, Half, BFloat16>;
using Geometric = Types<float, Half, BFloat16, std::int32_t, std::int64_t, std::int16_t, std::int8_t, std::uint8_t>;
using Bernoulli =
    Types<float, Half, BFloat16, bool, std::uint8_t, std::int8_t, std::int16_t, std::int32_t, std::int64_t>;
using Every = Types<float, Half, BFloat16, std::uint8_t, std::int8_t, std::int16_t, std::int32_t, std::int64_t,
                    std::uint16_t, std::uint32_t, std::uint64_t, bool>;

// Calls f(T{}) for the T of `type`; false when it is not in the list.
template <class... Ts, class F>
bool visit(Types<Ts...>, ElementType type, F&& f) {
  return ((Element<Ts>::type == type ? (f(Ts{}), true) : false) || ...);
}

// The list is the set of instantiations of the Metal kernel, so a type outside it fails as the kernel look-up does.
template <class List, class F>
void with_kernel(const char* kernel, ElementType type, F&& f) {
  if (!visit(List{}, type, f)) {
    throw KernelMissing(std::string("Failed to create function state object for: ") + kernel + "_" + metal_name(type));
  }
}

template <class T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else if constexpr (std::is_same_v<T, Half>) {
    return {to_half(value)};
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return {to_bfloat16(value)};
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0.0f;
  } else {
    // Bounds as powers of two, which float holds exactly; NaN falls through to zero.
    using Limits = std::numeric_limits<T>;
    const float beyond = std::ldexp(1.0f, Limits::digits);
    if (value >= beyond) return Limits::max();
    if (value <= (Limits::is_signed ? -beyond : 0.0f)) return Limits::min();
    return value == value ? static_cast<T>(value) : T{0};
  }
}

template <class T>
T from_integer(std::int64_t value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(value));
  } else {
    return from_float<T>(static_cast<float>(value));
  }
}

template <class T>
T from_flag(bool flag) {
  if constexpr (std::is_same_v<T, Half>) {
    return {static_cast<std::uint16_t>(flag ? 0x3C00 : 0)};
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return {static_cast<std::uint16_t>(flag ? 0x3F80 : 0)};
  } else {
    return static_cast<T>(flag);
  }
}

inline float to_float(float value) { return value; }
inline float to_float(Half value) { return from_half(value.bits); }
inline float to_float(BFloat16 value) { return from_bfloat16(value.bits); }

}  // namespace anymps::philox
