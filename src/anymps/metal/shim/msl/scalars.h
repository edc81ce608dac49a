// Scalar types of the Metal Shading Language: sizes as on the GPU, and `bfloat`, which C++17 compilers lack.
#pragma once

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using size_t = decltype(sizeof(0));
using ptrdiff_t = long;
using uintptr_t = unsigned long;
using intptr_t = long;
using half = _Float16;

#define ANYMPS_INLINE inline __attribute__((always_inline))

namespace anymps_msl {

template <class T> struct is_number { static constexpr bool value = false; };
#define ANYMPS_NUMBER(T) template <> struct is_number<T> { static constexpr bool value = true; };
ANYMPS_NUMBER(bool) ANYMPS_NUMBER(char) ANYMPS_NUMBER(signed char) ANYMPS_NUMBER(uchar) ANYMPS_NUMBER(short) ANYMPS_NUMBER(ushort)
ANYMPS_NUMBER(int) ANYMPS_NUMBER(uint) ANYMPS_NUMBER(long) ANYMPS_NUMBER(ulong) ANYMPS_NUMBER(long long)
ANYMPS_NUMBER(unsigned long long) ANYMPS_NUMBER(half) ANYMPS_NUMBER(float)
#undef ANYMPS_NUMBER

template <bool, class T = void> struct when {};
template <class T> struct when<true, T> { using type = T; };

template <class T> const T& any_of();
template <class T> struct is_wider { static constexpr bool value = false; };
template <> struct is_wider<float> { static constexpr bool value = true; };
template <> struct is_wider<half> { static constexpr bool value = true; };

// What a bfloat and a number make together: a float with a float, else a bfloat.
template <class T> struct beside_bfloat;

}  // namespace anymps_msl

// Not <bfloat16> of C++23: rounding to nearest even in integers, which vectorises with every compiler.
struct bfloat {
  ushort bits;

  bfloat() = default;
  // A float becomes a bfloat where a cast asks for it alone, so that `c ? a_float : a_bfloat` is a float.
  template <class T, class = typename anymps_msl::when<anymps_msl::is_number<T>::value && !anymps_msl::is_wider<T>::value>::type>
  constexpr bfloat(T value) : bits(rounded(static_cast<float>(value))) {}
  explicit constexpr bfloat(float value) : bits(rounded(value)) {}
  explicit constexpr bfloat(half value) : bits(rounded(static_cast<float>(value))) {}
  // Of a class with conversions of its own, where a cast asks for one.
  template <class T, class = typename anymps_msl::when<!anymps_msl::is_number<T>::value && __is_class(T)>::type,
            class = decltype(static_cast<float>(anymps_msl::any_of<T>()))>
  explicit constexpr bfloat(const T& value) : bits(rounded(static_cast<float>(value))) {}
  constexpr operator float() const {
    return __builtin_bit_cast(float, static_cast<uint>(bits) << 16);
  }

 private:
  static constexpr ushort rounded(float value) {
    const uint word = __builtin_bit_cast(uint, value);
    const uint up = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    return static_cast<ushort>((word & 0x7fffffffu) > 0x7f800000u ? (word >> 16) | 0x40u : up);
  }
};

namespace anymps_msl {
template <> struct is_number<bfloat> { static constexpr bool value = true; };
template <class T> struct beside_bfloat { using type = bfloat; };
template <> struct beside_bfloat<float> { using type = float; };
template <> struct beside_bfloat<half> { using type = float; };
}  // namespace anymps_msl

// Exact matches for every pair, as both conversions are implicit and the built-in operators would be as good as these.
#define ANYMPS_BFLOAT_PAIRS(OP, RESULT)                                                                                     \
  constexpr RESULT operator OP(bfloat a, bfloat b) {                                                                        \
    return RESULT(static_cast<float>(a) OP static_cast<float>(b));                                                          \
  }
#define ANYMPS_BFLOAT_ARITHMETIC(OP)                                                                                        \
  ANYMPS_BFLOAT_PAIRS(OP, bfloat)                                                                                           \
  template <class T, class = typename anymps_msl::when<anymps_msl::is_number<T>::value>::type>                              \
  constexpr typename anymps_msl::beside_bfloat<T>::type operator OP(bfloat a, T b) {                                        \
    return typename anymps_msl::beside_bfloat<T>::type(static_cast<float>(a) OP static_cast<float>(b));                     \
  }                                                                                                                         \
  template <class T, class = typename anymps_msl::when<anymps_msl::is_number<T>::value>::type>                              \
  constexpr typename anymps_msl::beside_bfloat<T>::type operator OP(T a, bfloat b) {                                        \
    return typename anymps_msl::beside_bfloat<T>::type(static_cast<float>(a) OP static_cast<float>(b));                     \
  }                                                                                                                         \
  template <class T, class = typename anymps_msl::when<anymps_msl::is_number<T>::value>::type>                              \
  constexpr bfloat& operator OP##=(bfloat& a, T b) {                                                                        \
    return a = bfloat(static_cast<float>(a) OP static_cast<float>(b));                                                      \
  }                                                                                                                         \
  template <class T, class = typename anymps_msl::when<anymps_msl::is_number<T>::value>::type>                              \
  constexpr T& operator OP##=(T& a, bfloat b) {                                                                             \
    return a = T(static_cast<float>(a) OP static_cast<float>(b));                                                           \
  }                                                                                                                         \
  constexpr bfloat& operator OP##=(bfloat& a, bfloat b) {                                                                   \
    return a = bfloat(static_cast<float>(a) OP static_cast<float>(b));                                                      \
  }
#define ANYMPS_BFLOAT_COMPARISON(OP)                                                                                        \
  ANYMPS_BFLOAT_PAIRS(OP, bool)                                                                                             \
  template <class T, class = typename anymps_msl::when<anymps_msl::is_number<T>::value>::type>                              \
  constexpr bool operator OP(bfloat a, T b) {                                                                               \
    return static_cast<float>(a) OP static_cast<float>(b);                                                                  \
  }                                                                                                                         \
  template <class T, class = typename anymps_msl::when<anymps_msl::is_number<T>::value>::type>                              \
  constexpr bool operator OP(T a, bfloat b) {                                                                               \
    return static_cast<float>(a) OP static_cast<float>(b);                                                                  \
  }
ANYMPS_BFLOAT_ARITHMETIC(+)
ANYMPS_BFLOAT_ARITHMETIC(-)
ANYMPS_BFLOAT_ARITHMETIC(*)
ANYMPS_BFLOAT_ARITHMETIC(/)
ANYMPS_BFLOAT_COMPARISON(<)
ANYMPS_BFLOAT_COMPARISON(>)
ANYMPS_BFLOAT_COMPARISON(<=)
ANYMPS_BFLOAT_COMPARISON(>=)
ANYMPS_BFLOAT_COMPARISON(==)
ANYMPS_BFLOAT_COMPARISON(!=)
#undef ANYMPS_BFLOAT_PAIRS
#undef ANYMPS_BFLOAT_ARITHMETIC
#undef ANYMPS_BFLOAT_COMPARISON
constexpr bfloat operator-(bfloat a) {
  return bfloat(-static_cast<float>(a));
}
constexpr bfloat operator+(bfloat a) {
  return a;
}

constexpr half operator""_h(long double value) {
  return static_cast<half>(value);
}
constexpr bfloat operator""_bf(long double value) {
  return bfloat(static_cast<float>(value));
}
