// Type traits and limits of `metal`, which hold of vectors as of their elements.
#pragma once

#include <msl/vectors.h>

template <class To, class From> constexpr ANYMPS_INLINE To as_type(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs two types of the same size");
  return __builtin_bit_cast(To, from);
}

namespace std {
template <class E> class initializer_list {  // by this name alone compilers make one of `{1, 2}`
  const E* first_ = nullptr;
  size_t size_ = 0;
  constexpr initializer_list(const E* first, size_t size) : first_(first), size_(size) {}

 public:
  constexpr initializer_list() {}
  constexpr size_t size() const { return size_; }
  constexpr const E* begin() const { return first_; }
  constexpr const E* end() const { return first_ + size_; }
};
}  // namespace std

namespace metal {

using std::initializer_list;
template <class T, T V> struct integral_constant {
  static constexpr T value = V;
  using value_type = T;
  using type = integral_constant;
  constexpr operator T() const { return V; }
  constexpr T operator()() const { return V; }
};
template <bool B> using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <class T> struct remove_const { using type = T; };
template <class T> struct remove_const<const T> { using type = T; };
template <class T> struct remove_volatile { using type = T; };
template <class T> struct remove_volatile<volatile T> { using type = T; };
template <class T> struct remove_cv { using type = typename remove_const<typename remove_volatile<T>::type>::type; };
template <class T> struct remove_reference { using type = T; };
template <class T> struct remove_reference<T&> { using type = T; };
template <class T> struct remove_reference<T&&> { using type = T; };
template <class T> struct remove_pointer { using type = T; };
template <class T> struct remove_pointer<T*> { using type = T; };
template <class T> struct remove_extent { using type = T; };
template <class T> struct remove_extent<T[]> { using type = T; };
template <class T, size_t N> struct remove_extent<T[N]> { using type = T; };
template <class T> struct add_const { using type = const T; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> using remove_volatile_t = typename remove_volatile<T>::type;
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> using remove_extent_t = typename remove_extent<T>::type;
template <class T> using add_const_t = const T;
template <class T> using remove_cvref_t = remove_cv_t<remove_reference_t<T>>;
template <class T> using remove_addrspace_t = T;
template <class T> struct decay { using type = remove_cv_t<remove_reference_t<T>>; };
template <class T> using decay_t = typename decay<T>::type;

template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <class... B> struct conjunction : bool_constant<(true && ... && bool(B::value))> {};
template <class... B> struct disjunction : bool_constant<(false || ... || bool(B::value))> {};
template <class... B> using _disjunction = disjunction<B...>;  // what Metal's own headers call them
template <class... B> using _conjunction = conjunction<B...>;
template <class B> struct negation : bool_constant<!bool(B::value)> {};
template <class... B> inline constexpr bool conjunction_v = conjunction<B...>::value;
template <class... B> inline constexpr bool disjunction_v = disjunction<B...>::value;
template <class B> inline constexpr bool negation_v = negation<B>::value;

template <class T> T&& declval() noexcept;

template <class A, class B> struct is_same : false_type {};
template <class T> struct is_same<T, T> : true_type {};

template <class T> struct make_vec { using type = T; };  // the element that decides
template <class T, unsigned N> struct make_vec<anymps_vectors::vec<T, N>> { using type = T; };
template <class T, unsigned N> struct make_vec<anymps_vectors::packed<T, N>> { using type = T; };
template <class T> using anymps_element = typename make_vec<remove_cv_t<T>>::type;

template <class T> struct is_vector : false_type {};
template <class T, unsigned N> struct is_vector<anymps_vectors::vec<T, N>> : true_type {};
template <class T> struct is_floating_point
    : bool_constant<is_same<anymps_element<T>, float>::value || is_same<anymps_element<T>, half>::value || is_same<anymps_element<T>, bfloat>::value> {};
template <class T> struct is_arithmetic : bool_constant<anymps_msl::is_number<anymps_element<T>>::value> {};
template <class T> struct is_integral : bool_constant<is_arithmetic<T>::value && !is_floating_point<T>::value> {};
template <class T> struct is_enum : bool_constant<__is_enum(T)> {};
template <class T> struct is_pointer : false_type {};
template <class T> struct is_pointer<T*> : true_type {};
template <class T> struct is_scalar
    : bool_constant<anymps_msl::is_number<remove_cv_t<T>>::value || __is_enum(T) || is_pointer<remove_cv_t<T>>::value> {};
template <class T, bool = is_arithmetic<T>::value> struct is_signed : false_type {};
template <class T> struct is_signed<T, true> : bool_constant<(anymps_element<T>(-1) < anymps_element<T>(0))> {};
template <class T, bool = is_arithmetic<T>::value> struct is_unsigned : false_type {};
template <class T> struct is_unsigned<T, true> : bool_constant<!is_signed<T>::value> {};
template <class T> struct is_void : is_same<remove_cv_t<T>, void> {};
template <class T> struct is_reference : false_type {};
template <class T> struct is_reference<T&> : true_type {};
template <class T> struct is_array : false_type {};
template <class T, size_t N> struct is_array<T[N]> : true_type {};
template <class T> struct is_const : false_type {};
template <class T> struct is_const<const T> : true_type {};
template <class T> struct is_class : bool_constant<__is_class(T)> {};
template <class T> struct is_trivially_copyable : bool_constant<__is_trivially_copyable(T)> {};
template <class B, class D> struct is_base_of : bool_constant<__is_base_of(B, D)> {};
template <class From, class To> struct is_convertible {
  static true_type test(To);
  static false_type test(...);
  template <class F> static auto ask(int) -> decltype(test(declval<F>()));
  template <class F> static false_type ask(...);
  static constexpr bool value = decltype(ask<From>(0))::value;
};
template <class T> struct rank : integral_constant<size_t, 0> {};
template <class T> struct alignment_of : integral_constant<size_t, alignof(T)> {};

#define ANYMPS_TRAIT(NAME) template <class T> inline constexpr bool NAME##_v = NAME<T>::value;
ANYMPS_TRAIT(is_vector) ANYMPS_TRAIT(is_floating_point) ANYMPS_TRAIT(is_arithmetic) ANYMPS_TRAIT(is_integral) ANYMPS_TRAIT(is_enum)
ANYMPS_TRAIT(is_pointer) ANYMPS_TRAIT(is_scalar) ANYMPS_TRAIT(is_signed) ANYMPS_TRAIT(is_unsigned) ANYMPS_TRAIT(is_void)
ANYMPS_TRAIT(is_reference) ANYMPS_TRAIT(is_array) ANYMPS_TRAIT(is_const) ANYMPS_TRAIT(is_class)
#undef ANYMPS_TRAIT
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <class A, class B> inline constexpr bool is_convertible_v = is_convertible<A, B>::value;
template <class A, class B> inline constexpr bool is_base_of_v = is_base_of<A, B>::value;

template <class T> struct make_unsigned { using type = T; };
template <class T> struct make_signed { using type = T; };
#define ANYMPS_SIGNS(S, U)                                      \
  template <> struct make_unsigned<S> { using type = U; };      \
  template <> struct make_signed<U> { using type = S; };
ANYMPS_SIGNS(char, uchar) ANYMPS_SIGNS(short, ushort) ANYMPS_SIGNS(int, uint) ANYMPS_SIGNS(long, ulong)
#undef ANYMPS_SIGNS
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;
template <class T> using make_signed_t = typename make_signed<T>::type;

template <class T> constexpr remove_reference_t<T>&& move(T&& value) { return static_cast<remove_reference_t<T>&&>(value); }
template <class T> constexpr void swap(T& a, T& b) { T c = a; a = b; b = c; }

template <class A, class B> struct pair { A first; B second; };

// Limits.
template <class T> struct _numeric_limits_impl {
  static constexpr bool is_specialized = anymps_msl::is_number<T>::value;
  static constexpr bool is_signed = T(-1) < T(0);
  static constexpr bool is_integer = true;
  static constexpr int digits = int(sizeof(T) * 8) - (is_signed ? 1 : 0);
  static constexpr bool has_infinity = false;
  static constexpr T max() { return is_signed ? T((((T(1) << (digits - 1)) - 1) << 1) + 1) : T(~T(0)); }
  static constexpr T min() { return is_signed ? T(-max() - 1) : T(0); }
  static constexpr T lowest() { return min(); }
  static constexpr T infinity() { return T(0); }
  static constexpr T quiet_NaN() { return T(0); }
};
template <> struct _numeric_limits_impl<bool> {
  static constexpr bool is_specialized = true, is_signed = false, is_integer = true, has_infinity = false;
  static constexpr int digits = 1;
  static constexpr bool max() { return true; }
  static constexpr bool min() { return false; }
  static constexpr bool lowest() { return false; }
};
#define ANYMPS_LIMITS(T, DIGITS, MAX, MIN, EPSILON, DENORM)                                                       \
  template <> struct _numeric_limits_impl<T> {                                                                          \
    static constexpr bool is_specialized = true, is_signed = true, is_integer = false, has_infinity = true;       \
    static constexpr bool has_quiet_NaN = true, is_iec559 = true;                                                 \
    static constexpr int digits = DIGITS;                                                                         \
    static constexpr T max() { return T(MAX); }                                                                   \
    static constexpr T min() { return T(MIN); }                                                                   \
    static constexpr T lowest() { return T(-MAX); }                                                               \
    static constexpr T epsilon() { return T(EPSILON); }                                                           \
    static constexpr T denorm_min() { return T(DENORM); }                                                         \
    static constexpr T infinity() { return T(__builtin_inff()); }                                                 \
    static constexpr T quiet_NaN() { return T(__builtin_nanf("")); }                                              \
    static constexpr T signaling_NaN() { return T(__builtin_nanf("")); }                                          \
  };
ANYMPS_LIMITS(float, 24, 3.40282346638528859812e+38f, 1.17549435082228750797e-38f, 1.1920928955078125e-7f, 1.40129846432481707092e-45f)
ANYMPS_LIMITS(half, 11, 65504.0f, 6.103515625e-5f, 9.765625e-4f, 5.9604644775390625e-8f)
ANYMPS_LIMITS(bfloat, 8, 3.38953138925153547590e+38f, 1.17549435082228750797e-38f, 7.8125e-3f, 9.18354961579912115600e-41f)
#undef ANYMPS_LIMITS
// Names that Metal's own headers have, and public kernels use.
template <class T> struct numeric_limits : _numeric_limits_impl<T> {};
template <class T> struct vec_elements { static constexpr unsigned value = 1; };
template <class T, unsigned N> struct vec_elements<anymps_vectors::vec<T, N>> { static constexpr unsigned value = N; };
template <class T> struct __is_valid_simdgroup_type : bool_constant<is_arithmetic<T>::value && sizeof(anymps_element<T>) < 8> {};

template <class T, size_t N> struct array {
  T anymps_items[N == 0 ? 1 : N];
  constexpr T& operator[](size_t i) { return anymps_items[i]; }
  constexpr const T& operator[](size_t i) const { return anymps_items[i]; }
  static constexpr size_t size() { return N; }
  static constexpr bool empty() { return N == 0; }
  constexpr T* data() { return anymps_items; }
  constexpr const T* data() const { return anymps_items; }
  constexpr T* begin() { return anymps_items; }
  constexpr const T* begin() const { return anymps_items; }
  constexpr T* end() { return anymps_items + N; }
  constexpr const T* end() const { return anymps_items + N; }
  constexpr T& front() { return anymps_items[0]; }
  constexpr T& back() { return anymps_items[N - 1]; }
  constexpr void fill(const T& value) { for (size_t i = 0; i < N; ++i) anymps_items[i] = value; }
};

// A value that all threads of a group share.
template <class T> struct uniform {
  T value;
  constexpr uniform(T v) : value(v) {}
  constexpr operator T() const { return value; }
};
template <class T> constexpr uniform<T> make_uniform(T value) { return value; }

}  // namespace metal

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define HUGE_VALH ((half)__builtin_inff())
#define MAXFLOAT 3.40282346638528859812e+38f
#define MAXHALF ((half)65504.0f)
#define FLT_MAX 3.40282346638528859812e+38f
#define FLT_MIN 1.17549435082228750797e-38f
#define FLT_EPSILON 1.1920928955078125e-7f
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_RADIX 2
#define HALF_MAX ((half)65504.0f)
#define HALF_MIN ((half)6.103515625e-5f)
#define HALF_EPSILON ((half)9.765625e-4f)
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-9223372036854775807l - 1)
#define ULONG_MAX 18446744073709551615ul
#define INT8_MAX 127
#define INT16_MAX 32767
#define INT32_MAX 2147483647
#define INT64_MAX 9223372036854775807l
#define INT8_MIN (-128)
#define INT16_MIN (-32768)
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807l - 1)
#define UINT8_MAX 255
#define UINT16_MAX 65535
#define UINT32_MAX 4294967295u
#define UINT64_MAX 18446744073709551615ul
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f
#define M_E_H ((half)2.71828182845904523536f)
#define M_LOG2E_H ((half)1.44269504088896340736f)
#define M_LN2_H ((half)0.69314718055994530942f)
#define M_LN10_H ((half)2.30258509299404568402f)
#define M_PI_H ((half)3.14159265358979323846f)
#define M_PI_2_H ((half)1.57079632679489661923f)
#define M_1_PI_H ((half)0.31830988618379067154f)
#define M_SQRT2_H ((half)1.41421356237309504880f)
#define M_SQRT1_2_H ((half)0.70710678118654752440f)
