// What Metal's library declares, as far as the language's rules need it: types, and the spaces of memory.
// libclang reads it before a shader, as C++ for OpenCL, whose spaces of memory are part of its types as Metal's are.
#pragma once

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#pragma OPENCL EXTENSION __cl_clang_variadic_functions : enable
#pragma OPENCL EXTENSION __cl_clang_bitfields : enable

#define device __global
#define threadgroup __local
#define thread __private
#define METAL_FUNC inline
#define METAL_CONST const
#define METAL_ALIGN(n) alignas(n)
#define NULL nullptr
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define M_PI_F 3.14159274101257324219f
#define HUGE_VALF __builtin_inff()

// Words of OpenCL that are none in Metal.
#define global anymps_name_global
#define local anymps_name_local
#define generic anymps_name_generic
#define pipe anymps_name_pipe
#define read_only anymps_name_read_only
#define write_only anymps_name_write_only
#define vec_step anymps_name_vec_step
#define sampler_t anymps_name_sampler_t
#define event_t anymps_name_event_t
#define queue_t anymps_name_queue_t
#define atomic_int anymps_name_atomic_int
#define atomic_uint anymps_name_atomic_uint
#define atomic_long anymps_name_atomic_long
#define atomic_ulong anymps_name_atomic_ulong
#define atomic_float anymps_name_atomic_float
#define atomic_double anymps_name_atomic_double
#define atomic_flag anymps_name_atomic_flag

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using size_t = unsigned long;
using ptrdiff_t = long;
using uintptr_t = unsigned long;
using intptr_t = long;
using bfloat = __bf16;

namespace anymps_types {

template <class T, int N> using anymps_vec = T __attribute__((ext_vector_type(N)));
template <class T, int N> struct anymps_packed { T anymps_elements[N]; };
template <class T, int C, int R = C> struct anymps_matrix {
  anymps_vec<T, R> anymps_columns[C];
  anymps_vec<T, R> operator[](int) const;
};

#define ANYMPS_VECTORS(T, E)      \
  using T##2 = anymps_vec<E, 2>;         \
  using T##3 = anymps_vec<E, 3>;         \
  using T##4 = anymps_vec<E, 4>;         \
  using packed_##T##2 = anymps_vec<E, 2>; \
  using packed_##T##3 = anymps_vec<E, 3>; \
  using packed_##T##4 = anymps_vec<E, 4>;
ANYMPS_VECTORS(char, signed char)
ANYMPS_VECTORS(uchar, unsigned char)
ANYMPS_VECTORS(bool, unsigned char)
ANYMPS_VECTORS(short, short)
ANYMPS_VECTORS(ushort, unsigned short)
ANYMPS_VECTORS(int, int)
ANYMPS_VECTORS(uint, unsigned int)
ANYMPS_VECTORS(long, long)
ANYMPS_VECTORS(ulong, unsigned long)
ANYMPS_VECTORS(half, half)
ANYMPS_VECTORS(float, float)
#undef ANYMPS_VECTORS
using bfloat2 = anymps_packed<bfloat, 2>;
using bfloat3 = anymps_packed<bfloat, 3>;
using bfloat4 = anymps_packed<bfloat, 4>;
#define ANYMPS_MATRICES(T, C)       \
  using T##C##x2 = anymps_matrix<T, C, 2>; \
  using T##C##x3 = anymps_matrix<T, C, 3>; \
  using T##C##x4 = anymps_matrix<T, C, 4>;
ANYMPS_MATRICES(float, 2)
ANYMPS_MATRICES(float, 3)
ANYMPS_MATRICES(float, 4)
ANYMPS_MATRICES(half, 2)
ANYMPS_MATRICES(half, 3)
ANYMPS_MATRICES(half, 4)
#undef ANYMPS_MATRICES

}  // namespace anymps_types
using namespace anymps_types;  // Metal's are there with and without `metal::`

namespace metal {

using namespace ::anymps_types;
using ::int8_t, ::uint8_t, ::int16_t, ::uint16_t, ::int32_t, ::uint32_t, ::int64_t, ::uint64_t;
using ::uchar, ::ushort, ::uint, ::ulong, ::size_t, ::ptrdiff_t;

template <class T, int N> using vec = anymps_vec<T, N>;
template <class T, int C, int R = C> using matrix = anymps_matrix<T, C, R>;

template <class T, int C, int R> struct simdgroup_matrix {};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;
struct simd_vote {};
struct simdgroup_event {};
template <class T, size_t N> struct array {
  T anymps_elements[N];
};
template <class T> struct uniform {};

enum memory_order { memory_order_relaxed, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst };
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };
enum class mem_flags { mem_none, mem_device, mem_threadgroup, mem_texture, mem_threadgroup_imageblock, mem_object_data };
template <class T> struct atomic {
  T anymps_value;
};
template <class T> using _atomic = atomic<T>;
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_bool = atomic<bool>;
using atomic_float = atomic<float>;
using atomic_ulong = atomic<ulong>;

template <class T, class U> inline constexpr bool is_same_v = false;
template <class T> inline constexpr bool is_same_v<T, T> = true;
template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <class T, T V> struct integral_constant {
  static constexpr constant T value = V;
};
template <bool B> using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;
template <bool B, class T, class F> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;

// Atomics: which there are for which type, and the order that all but fences take (Metal 4.1 takes others).
#define ANYMPS_ORDER(O) __attribute__((enable_if((O) == memory_order_relaxed, "anymps: order")))
#define ANYMPS_TYPE(...) __attribute__((enable_if((__VA_ARGS__), "anymps: type")))
#define ANYMPS_IS(A) is_same_v<T, A>
template <class T> inline constexpr bool anymps_is_word = ANYMPS_IS(int) || ANYMPS_IS(uint);
template <class T>
inline constexpr bool anymps_is_atomic = anymps_is_word<T> || ANYMPS_IS(bool) || ANYMPS_IS(float) || ANYMPS_IS(ulong);
template <class T, class V>
void atomic_store_explicit(volatile atomic<T>* object, V, memory_order order) ANYMPS_ORDER(order) ANYMPS_TYPE(anymps_is_atomic<T>);
template <class T> T atomic_load_explicit(const volatile atomic<T>* object, memory_order order) ANYMPS_ORDER(order)
    ANYMPS_TYPE(anymps_is_atomic<T>);
template <class T, class V>
T atomic_exchange_explicit(volatile atomic<T>* object, V, memory_order order) ANYMPS_ORDER(order) ANYMPS_TYPE(anymps_is_atomic<T>);
template <class T, class V>
bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* object, thread T* expected, V, memory_order order, memory_order other)
    ANYMPS_ORDER(order) ANYMPS_ORDER(other) ANYMPS_TYPE(anymps_is_atomic<T>);
#define ANYMPS_FETCH(NAME, CONDITION) \
  template <class T, class V>         \
  T atomic_##NAME##_explicit(volatile atomic<T>* object, V, memory_order order) ANYMPS_ORDER(order) ANYMPS_TYPE(CONDITION);
ANYMPS_FETCH(fetch_add, anymps_is_word<T>)
ANYMPS_FETCH(fetch_sub, anymps_is_word<T>)
ANYMPS_FETCH(fetch_min, anymps_is_word<T>)
ANYMPS_FETCH(fetch_max, anymps_is_word<T>)
ANYMPS_FETCH(fetch_and, anymps_is_word<T>)
ANYMPS_FETCH(fetch_or, anymps_is_word<T>)
ANYMPS_FETCH(fetch_xor, anymps_is_word<T>)
ANYMPS_FETCH(min, ANYMPS_IS(ulong))
ANYMPS_FETCH(max, ANYMPS_IS(ulong))
#undef ANYMPS_FETCH
template <class V> float atomic_fetch_add_explicit(volatile device atomic<float>* object, V, memory_order order) ANYMPS_ORDER(order);
template <class V> float atomic_fetch_sub_explicit(volatile device atomic<float>* object, V, memory_order order) ANYMPS_ORDER(order);

namespace precise {}
namespace fast {}
namespace simd {}

}  // namespace metal
